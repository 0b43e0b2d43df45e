"""Arguments of the methods as checked arrays: bad input raises `InvalidInput`, it never yields a number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInput
from semtoken.support.arrays import FloatArray, IntArray, real_numbers
from semtoken.support.inputs import listed, shown

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
    """Convert values to a float64 array.

    Raises
    ------
    InvalidInput
        It has another number of dimensions, is empty, or holds NaN; the message calls it `name`.
    """
    array = real_numbers(values, name).astype(np.float64)
    if array.ndim != dimensions:
        raise InvalidInput(f"'{name}' must have {dimensions} dimension(s), got the shape {array.shape}.")
    if array.size == 0:
        raise InvalidInput(f"'{name}' is empty, its shape is {array.shape}.")
    if np.isnan(array).any():
        where = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise InvalidInput(f"'{name}' holds NaN, first at {where}.")
    return array


def log_probs(values: npt.ArrayLike, name: str) -> FloatArray:
    """Check the natural-log probabilities of one answer's tokens; -inf is allowed, positive rounding errors
    become 0.

    Raises
    ------
    InvalidInput
        A value is NaN or positive, or there is none; the message calls them `name`.
    """
    array = numbers(values, name, dimensions=1)
    if array.max() > _ROUNDING:
        raise InvalidInput(
            f"'{name}' holds {array.max():g}, but the logarithm of a probability is never positive. "
            "Give natural logs, not probabilities or negative logs."
        )
    return np.minimum(array, 0.0)


def sample_log_probs(values: Rows) -> list[FloatArray]:
    """One checked array of log-probabilities per sample; `InvalidInput` if there is no sample or one is bad."""
    rows = listed(values, "sample_logprobs")
    if not rows:
        raise InvalidInput("'sample_logprobs' is empty: give at least one sample.")
    return [log_probs(row, f"sample_logprobs[{m}]") for m, row in enumerate(rows)]


def booleans(values: npt.ArrayLike, name: str) -> npt.NDArray[np.bool_]:
    """Convert values to booleans [n]; 1 and 0 count as true and false, anything else raises `InvalidInput`."""
    array = real_numbers(values, name, booleans=True)
    if array.ndim != 1 or not np.isin(array, (0, 1)).all():
        raise InvalidInput(f"'{name}' must be a list of true and false, got {shown(values)}.")
    return array.astype(bool)


def square(values: npt.ArrayLike, name: str, *, low: float, high: float) -> FloatArray:
    """Convert values to a matrix [M, M]; `InvalidInput` if it is not square or a value lies outside [low, high]."""
    matrix = numbers(values, name, dimensions=2)
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInput(f"'{name}' must be square, one row and column per sample, got {matrix.shape}.")
    within(matrix, name, low=low, high=high)
    return matrix


def similarities(values: npt.ArrayLike, name: str, *, dimensions: int) -> FloatArray:
    """Similarities clipped to [0, 1]; those of a cosine may be negative, raw logits are refused."""
    array = numbers(values, name, dimensions=dimensions)
    within(array, name, low=-1.0, high=1.0)
    return np.clip(array, 0.0, 1.0)


def within(array: FloatArray, name: str, *, low: float, high: float) -> None:
    """Raise `InvalidInput` for values outside [low, high], apart from rounding errors."""
    slack = 1e-3 if high == 1.0 else 0.0  # a similarity computed in half precision may reach 1.0005
    if array.min() < low - slack or array.max() > high + slack:
        worst = array.min() if array.min() < low - slack else array.max()
        raise InvalidInput(f"'{name}' must lie in [{low:g}, {high:g}], got {worst:g}; are these raw model outputs?")


def same_count(name: str, count: int, other: str, other_count: int) -> None:
    """Raise `InvalidInput` for arguments that have different numbers of tokens or samples."""
    if count != other_count:
        raise InvalidInput(f"'{name}' has {count} entries and '{other}' has {other_count}; both need the same.")


def indices(values: npt.ArrayLike, name: str, *, below: int | None = None) -> IntArray:
    """Convert values to an array of whole numbers of at least 0 and below `below`, if that is given.

    Raises
    ------
    InvalidInput
        There are no values, or one of them is not such a number.
    """
    array = numbers(values, name, dimensions=1)
    if np.abs(array).max() > 2**53:
        raise InvalidInput(f"'{name}' holds numbers beyond 2^53, which are not exact.")
    whole = array.astype(np.int64)
    if (whole != array).any() or whole.min() < 0:
        raise InvalidInput(f"'{name}' must hold whole numbers from 0, got {array.tolist()}.")
    if below is not None and whole.max() >= below:
        raise InvalidInput(f"'{name}' holds {whole.max()}, but there are only {below} texts.")
    return whole


def nli_classes(values: Iterable[Any], name: str) -> IntArray:
    """Convert NLI classes, given as numbers or names, to 0 (contradiction), 1 (neutral) and 2 (entailment).

    Anything else raises `InvalidInput`.
    """
    classes = []
    for value in listed(values, name):
        found = _CLASS_OF_NAME.get(value.lower()) if isinstance(value, str) else value
        if not _is_whole(found) or found not in (CONTRADICTION, NEUTRAL, ENTAILMENT):
            raise InvalidInput(
                f"'{name}' holds {shown(value)}; an NLI class is 0 or 'contradiction', 1 or 'neutral', 2 or "
                "'entailment'."
            )
        classes.append(int(found))
    return np.array(classes, dtype=np.int64)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def log_sum_exp(values: FloatArray) -> float:
    """log(sum(exp(values))) that does not depend on the order of the values."""
    highest = float(values.max())
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
    if math.isinf(whole) and np.isfinite(numbers).all():
        whole, numbers = total(numbers / len(numbers)), numbers[:1]
    return whole / len(numbers) + 0.0
