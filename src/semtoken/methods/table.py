"""`METHODS`: every method with what it needs, what it costs and where it comes from; `score` applies one.

A method is a function of plain arrays with `@method(...)` above it; nothing else has to name it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from semtoken.errors import InvalidInput, MissingStatistic
from semtoken.results.generation import Generation
from semtoken.support.inputs import instance, shown

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
    """What it reads: a name of `FAMILIES`, or another."""
    function: Callable[..., float]
    """Arrays -> uncertainty, higher is riskier."""
    needs: tuple[str, ...]
    """Fields of `Generation` that must be recorded. The function gets them in this order, unless there are
    `arguments`."""
    range: tuple[float, float]
    """The smallest and the largest value that the function can give."""
    reference: str
    """Where it was published."""
    semantic_aware: bool
    """Whether it knows that different words can mean the same."""
    single_sample: bool
    """Whether it reads the one answer alone, without further samples."""
    external_model_free: bool
    """Whether it needs no model but the one that answered."""
    overhead: Overhead
    """What it costs beyond the greedy generation: `low`, `medium` or `high`."""
    arguments: Arguments | None = None
    """Turns a generation into the arguments of a function that does not take the fields themselves, by name."""
    monotone: bool = True
    """Whether the uncertainty only rises, or only falls, with the numbers in each array that it reads. Then bounds of
    the arrays give bounds of it."""

    def of(self, generation: Generation, **options: Any) -> float:
        """The uncertainty of a recorded answer by this method."""
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
    name
        Key in `METHODS`; by default the name of the function.
    title, family, needs, reference, range, arguments, monotone
        See `Method`.
    semantic_aware, single_sample, external_model_free, overhead
        See `Method`.

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
        entries = sorted([*_methods.values(), entry], key=lambda one: place.get(one.family, len(place)))
        _methods.clear()
        _methods.update({one.name: one for one in entries})
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
    InvalidInput
        There is no such method, or a record cannot be used.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidInput(f"There is no method {shown(name)}; there are {', '.join(METHODS)}.")
    instance(generation, Generation, "generation")
    found = METHODS[name]
    missing = [field for field in found.needs if getattr(generation, field, None) is None]
    if missing:
        raise MissingStatistic(
            f"{name} needs {', '.join(missing)}, which this generation does not hold. "
            "Record it first, or leave the method out."
        )
    try:
        return found.of(generation, **options)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
