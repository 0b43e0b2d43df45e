"""`@statistic`: an observer of the answering model that fills a field of `Generation`, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np

from semtoken.observers.steps import Observer, Step
from semtoken.results.generation import PER_TOKEN, Layout, declare_field
from semtoken.support.arrays import FloatArray


class Statistic(Observer):
    """An observer that fills one field of `Generation`. Put `@statistic` above the class, and say what it `reads`."""

    field: ClassVar[str] = ""
    """The field, which `@statistic` sets."""

    def of(self, answer: int) -> Any:
        """The recorded value of an answer; None where the engine gave too little to know it."""
        raise NotImplementedError

    def bounds(self, answer: int) -> tuple[Any, Any] | None:
        """Lower and upper bounds of the value, where only the best tokens of each step are known; else None."""
        return None

    def forget(self, answer: int) -> None:
        """Drop an answer, so that another one can have its number."""


Kind = TypeVar("Kind", bound=type[Statistic])
_statistics: dict[str, type[Statistic]] = {}
STATISTICS: Mapping[str, type[Statistic]] = MappingProxyType(_statistics)
"""Field of `Generation` -> the observer that fills it."""


def statistic(field: str, layout: Layout = PER_TOKEN) -> Callable[[Kind], Kind]:
    """Add the decorated observer to the table of statistics.

    Parameters
    ----------
    field
        The field that it fills. One that `Generation` does not have becomes a further one of every record.
    layout
        How the field is laid out in a file; by default one number a token.

    Raises
    ------
    TypeError
        Another observer fills the field, or it is laid out differently there.
    """

    def enter(observer: Kind) -> Kind:
        if field in _statistics:
            raise TypeError(f"{field!r} is filled by {_statistics[field].__name__} and by {observer.__name__}.")
        declare_field(field, layout)
        observer.field = field
        _statistics[field] = observer
        return observer

    return enter


class PerStep(Statistic):
    """A statistic with one value for every step. Override `values`, and `of`, which makes the field of a record from
    them.
    """

    def __init__(self) -> None:
        self._found: dict[int, list[Any]] = {}

    def values(self, step: Step) -> Iterable[Any]:
        """The value of each of the n answers in a step."""
        raise NotImplementedError

    def observe(self, step: Step) -> None:
        """Record the values of one decoding step."""
        for answer, value in zip(step.answers, self.values(step), strict=True):
            self._found.setdefault(answer, []).append(value)

    def recorded(self, answer: int) -> list[Any]:
        """The values of an answer, one for each of its steps."""
        return self._found.get(answer, [])

    def forget(self, answer: int) -> None:
        """Drop what was recorded of an answer."""
        self._found.pop(answer, None)


class TokenNumbers(PerStep):
    """A statistic with one number for every step. Override `numbers`, which is all that a new statistic of this kind
    needs.
    """

    def numbers(self, step: Step) -> FloatArray | tuple[FloatArray, FloatArray]:
        """The number of each of the n answers in a step, [n]; or its lower and upper bounds."""
        raise NotImplementedError

    def values(self, step: Step) -> Iterable[tuple[float, float]]:
        """Lower and upper bound of the number of each answer in a step."""
        found = self.numbers(step)
        low, high = found if isinstance(found, tuple) else (found, found)
        return zip(low.tolist(), high.tolist(), strict=True)

    def of(self, answer: int) -> FloatArray:
        """The numbers of an answer, [n]; the middle of the bounds where these differ."""
        pairs = self._pairs(answer)
        return np.where(pairs[:, 0] == pairs[:, 1], pairs[:, 0], pairs.mean(axis=1))

    def bounds(self, answer: int) -> tuple[FloatArray, FloatArray] | None:
        """[n] lower and upper bounds; None where every number is exact."""
        pairs = self._pairs(answer)
        return None if (pairs[:, 0] == pairs[:, 1]).all() else (pairs[:, 0], pairs[:, 1])

    def _pairs(self, answer: int) -> FloatArray:
        return np.array(self.recorded(answer), dtype=np.float64).reshape(-1, 2)
