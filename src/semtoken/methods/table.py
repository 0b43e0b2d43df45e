"""`METHODS`: every method with what it needs, what it costs and where it comes from; `score` applies one.

A method is a function of plain arrays with `@method(...)` above it; nothing else has to name it.

Arguments of the methods as checked arrays: bad input raises `InvalidInputError`, it never yields a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError, MissingStatistic
from semtoken.support.arrays import FloatArray, IntArray, real_numbers
from semtoken.support.inputs import instance, listed, shown

Overhead = Literal["low", "medium", "high"]
Arguments = Callable[[Any], dict[str, Any]]
Formula = TypeVar("Formula", bound=Callable[..., float])


@dataclass(frozen=True)
class Method:
    """One way to give an answer an uncertainty.

    The fields from `semantic_aware` to `overhead` are the columns of the paper's Table 1.
    """

    name: str
    """Key in `METHODS`; for the methods that STC is compared with, also the name of the function."""
    title: str
    """The method's name in tables."""
    family: str
    """The kind of data that it reads: a name of `FAMILIES`, or another."""
    function: Callable[..., float]
    """Arrays -> uncertainty, higher is riskier."""
    needs: tuple[str, ...]
    """Fields of `Generation` that must be recorded. The function gets them in this order, unless there are
    `arguments`."""
    range: tuple[float, float]
    """The smallest and the largest value that the function can give."""
    reference: str
    """The publication that it comes from."""
    semantic_aware: bool
    """True if it knows that different words can mean the same."""
    single_sample: bool
    """True if it reads only the one answer, without further samples."""
    external_model_free: bool
    """True if it needs no model but the one that answered."""
    overhead: Overhead
    """The cost beyond the greedy generation: `low`, `medium` or `high`."""
    arguments: Arguments | None = None
    """Turns a generation into the arguments of a function that does not take the fields themselves, by name."""
    monotone: bool = True
    """True if the uncertainty only rises, or only falls, with the numbers in each array that it reads. Then bounds of
    the arrays give bounds of it."""

    def of(self, generation: Generation, **options: Any) -> float:
        """The uncertainty of a recorded answer by this method, in its `range`; higher is riskier.

        `options` go to the formula. The record must hold the fields that the method `needs`: `score` checks that.
        """
        if self.arguments is not None:
            return self.function(**self.arguments(generation), **options)
        return self.function(*(getattr(generation, name) for name in self.needs), **options)


FAMILIES = (
    *("clusters", "likelihood", "entropy", "attention", "words", "prompted"),
    *("relevance", "semantic", "graph", "frequency", "states", "claims"),
)
"""The order of `METHODS`; families that are not here come after these."""
ONE_PASS_FAMILIES = frozenset({"entropy", "attention", "words"})
"""Families of which every method reads nothing but what one generation leaves behind."""
_methods: dict[str, Method] = {}
METHODS: Mapping[str, Method] = MappingProxyType(_methods)
"""Every method by name: STC with its ablations, then the methods it is compared with, family by family."""


def withdraw(name: str) -> None:
    """Remove a method from the table, such as one that was tried and does not work."""
    _methods.pop(name, None)


def method(
    name: str = "",
    *,
    title: str,
    family: str,
    needs: tuple[str, ...],
    reference: str,
    range: tuple[float, float] = (0.0, math.inf),
    arguments: Arguments | None = None,
    semantic_aware: bool = False,
    single_sample: bool = True,
    external_model_free: bool = True,
    overhead: Overhead = "low",
    monotone: bool = True,
) -> Callable[[Formula], Formula]:
    """Add the decorated formula to `METHODS`.

    Parameters
    ----------
    name : str
        The name of the method; that of the function if none is given.
    title, family : str
        What tables call it, and next to which methods it stands there.
    needs : tuple of str
        The fields of `Generation` that the formula gets, in this order. Only these are recorded.
    reference : str
        The paper, with its year.
    range : (float, float)
        The smallest and the largest value; higher is riskier.
    arguments, semantic_aware, single_sample, external_model_free, overhead, monotone
        As the fields of `Method` with these names say.

    Raises
    ------
    TypeError
        There is a method of that name.
    """

    def enter(function: Formula) -> Formula:
        own = name or function.__name__
        entry = Method(
            name=own,
            title=title,
            family=family,
            function=function,
            needs=needs,
            range=range,
            reference=reference,
            semantic_aware=semantic_aware,
            single_sample=single_sample,
            external_model_free=external_model_free,
            overhead=overhead,
            arguments=arguments,
            monotone=monotone,
        )
        if entry.name in _methods:
            raise TypeError(f"There are two methods called {entry.name!r}.")
        place = {family: number for number, family in enumerate(FAMILIES)}
        # Stable, so that methods of one family keep the order in which they were entered.
        entries = sorted([*_methods.values(), entry], key=lambda row: place.get(row.family, len(place)))
        # In place: `METHODS` is a view of this dictionary, and others hold it.
        _methods.clear()
        _methods.update({row.name: row for row in entries})
        return function

    return enter


method_on_samples = partial(
    method, semantic_aware=True, single_sample=False, external_model_free=False, overhead="high"
)
"""`method` for formulas that compare the meanings of several samples by another model."""


def score(name: str, generation: Generation, **options: Any) -> float:
    """The uncertainty of a recorded answer by the method with this name.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    generation : Generation
        With the fields that the method needs.
    **options
        Passed to the method's function, `temperature=3.0` for example.

    Returns
    -------
    float
        Higher is riskier; the range is the method's.

    Raises
    ------
    MissingStatistic
        A field that the method needs was not recorded.
    InvalidInputError
        There is no such method, or a record cannot be used.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidInputError(f"There is no method {shown(name)}; there are {', '.join(METHODS)}.")
    instance(generation, Generation, "generation")
    entry = METHODS[name]
    missing = [field for field in entry.needs if getattr(generation, field, None) is None]
    if missing:
        raise MissingStatistic(
            f"{name} needs {', '.join(missing)}, which this generation does not hold. "
            "Record it first, or leave the method out."
        )
    try:
        return entry.of(generation, **options)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


Rows: TypeAlias = Sequence[npt.ArrayLike]
"""One array per sample, each with a length of its own."""

CONTRADICTION, NEUTRAL, ENTAILMENT = 0, 1, 2
_CLASS_OF_NAME = {
    "contradiction": CONTRADICTION,
    "contra": CONTRADICTION,
    "neutral": NEUTRAL,
    "entailment": ENTAILMENT,
    "entail": ENTAILMENT,
}
_ROUNDING = 1e-6


def numbers(values: npt.ArrayLike, name: str, *, dimensions: int) -> FloatArray:
    """Check the numbers that a formula was given, for a method of your own: a float64 array.

    `InvalidInputError`, which calls them `name`, if they have another number of dimensions, are empty, or hold NaN.
    """
    array = real_numbers(values, name).astype(np.float64)
    if array.ndim != dimensions:
        raise InvalidInputError(f"'{name}' must have {dimensions} dimension(s), got the shape {array.shape}.")
    if array.size == 0:
        raise InvalidInputError(f"'{name}' is empty, its shape is {array.shape}.")
    if np.isnan(array).any():
        where = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise InvalidInputError(f"'{name}' holds NaN, first at {where}.")
    return array


def log_probs(values: npt.ArrayLike, name: str) -> FloatArray:
    """Natural-log probabilities of tokens, rounding errors above 0 made 0; `InvalidInputError` for NaN and positive
    ones.
    """
    array = numbers(values, name, dimensions=1)
    if array.max() > _ROUNDING:
        raise InvalidInputError(
            f"'{name}' holds {array.max():g}, but the logarithm of a probability is never positive. "
            "Give natural logs, not probabilities or negative logs."
        )
    return np.minimum(array, 0.0)


def sample_log_probs(values: Rows) -> list[FloatArray]:
    """One checked array of log-probabilities per sample; `InvalidInputError` if there is no sample or one is bad."""
    rows = listed(values, "sample_logprobs")
    if not rows:
        raise InvalidInputError("'sample_logprobs' is empty: give at least one sample.")
    return [log_probs(row, f"sample_logprobs[{m}]") for m, row in enumerate(rows)]


def booleans(values: npt.ArrayLike, name: str) -> npt.NDArray[np.bool_]:
    """Convert values to booleans [n]; 1 and 0 count as true and false, anything else raises `InvalidInputError`."""
    array = real_numbers(values, name, booleans=True)
    if array.ndim != 1 or not np.isin(array, (0, 1)).all():
        raise InvalidInputError(f"'{name}' must be a list of true and false, got {shown(values)}.")
    return array.astype(bool)


def square(values: npt.ArrayLike, name: str, *, low: float, high: float) -> FloatArray:
    """Convert values to a matrix [M, M]; `InvalidInputError` if it is not square or a value lies outside [low,
    high].
    """
    matrix = numbers(values, name, dimensions=2)
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInputError(f"'{name}' must be square, one row and column per sample, got {matrix.shape}.")
    within(matrix, name, low=low, high=high)
    return matrix


def similarities(values: npt.ArrayLike, name: str, *, dimensions: int) -> FloatArray:
    """Similarities clipped to [0, 1]; those of a cosine may be negative, raw logits are rejected."""
    array = numbers(values, name, dimensions=dimensions)
    within(array, name, low=-1.0, high=1.0)
    return np.clip(array, 0.0, 1.0)


def within(array: FloatArray, name: str, *, low: float, high: float) -> None:
    """Raise `InvalidInputError` for values outside [low, high], apart from rounding errors."""
    slack = 1e-3 if high == 1.0 else 0.0  # a similarity computed in half precision may reach 1.0005
    if array.min() < low - slack or array.max() > high + slack:
        worst = array.min() if array.min() < low - slack else array.max()
        raise InvalidInputError(
            f"'{name}' must lie in [{low:g}, {high:g}], got {worst:g}; are these raw model outputs?"
        )


def same_count(name: str, count: int, other: str, other_count: int) -> None:
    """Raise `InvalidInputError` for arguments that have different numbers of tokens or samples."""
    if count != other_count:
        raise InvalidInputError(f"'{name}' has {count} entries and '{other}' has {other_count}; both need the same.")


def indices(values: npt.ArrayLike, name: str, *, below: int | None = None) -> IntArray:
    """Whole numbers of at least 0 and below `below`; `InvalidInputError` if there are none, or others."""
    array = numbers(values, name, dimensions=1)
    if np.abs(array).max() > 2**53:
        raise InvalidInputError(f"'{name}' holds numbers beyond 2^53, which are not exact.")
    whole = array.astype(np.int64)
    if (whole != array).any() or whole.min() < 0:
        raise InvalidInputError(f"'{name}' must hold whole numbers from 0, got {array.tolist()}.")
    if below is not None and whole.max() >= below:
        raise InvalidInputError(f"'{name}' holds {whole.max()}, but there are only {below} texts.")
    return whole


def nli_classes(values: Iterable[Any], name: str) -> IntArray:
    """NLI classes, given as numbers or names, as 0 (contradiction), 1 (neutral) and 2 (entailment)."""
    classes = []
    for value in listed(values, name):
        label = _CLASS_OF_NAME.get(value.lower()) if isinstance(value, str) else value
        # True == 1 would pass for "neutral".
        a_number = isinstance(label, int | float | np.integer | np.floating) and not isinstance(label, bool)
        if not a_number or label not in (CONTRADICTION, NEUTRAL, ENTAILMENT):
            raise InvalidInputError(
                f"'{name}' holds {shown(value)}; an NLI class is 0 or 'contradiction', 1 or 'neutral', 2 or "
                "'entailment'."
            )
        classes.append(int(label))
    return np.array(classes, dtype=np.int64)


def log_sum_exp(values: FloatArray) -> float:
    """log(sum(exp(values))) that does not depend on the order of the values."""
    highest = float(values.max())
    # -inf - -inf is NaN.
    if highest == -math.inf:
        return highest
    return highest + math.log(math.fsum(np.exp(values - highest).tolist()))


def total(values: FloatArray) -> float:
    """Exactly rounded sum, so that the order of samples cannot show, and never -0.0."""
    try:
        return math.fsum(values.tolist()) + 0.0
    except OverflowError:  # the sum is beyond the largest float
        return float(np.sum(values))


def mean(values: Sequence[float] | FloatArray) -> float:
    """The exactly rounded mean; 0.0 rather than -0.0."""
    numbers = np.asarray(values, dtype=np.float64)
    whole = total(numbers)
    # The sum overflows where the mean does not: divided first, it fits.
    if math.isinf(whole) and np.isfinite(numbers).all():
        whole, numbers = total(numbers / len(numbers)), numbers[:1]
    return whole / len(numbers) + 0.0
