"""A model's answers to pairs of texts, each different pair asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
Pair: TypeAlias = tuple[str, str]
AskPairs: TypeAlias = Callable[[Sequence[Pair]], FloatArray]
"""Pairs of texts -> one row (or number) for each."""


class UniquePairs:
    """Remembers what was asked: a pair of texts reaches the model once in the life of this object.

    One for each recording step, so that every step is charged for its own pairs and the seconds of a method do
    not depend on which other method ran before.

    Parameters
    ----------
    ask : callable
        Pairs of texts -> array with one entry a pair, in order.
    """

    def __init__(self, ask: AskPairs) -> None:
        self._ask = ask
        self._known: dict[Pair, npt.NDArray[Any]] = {}

    @property
    def asked(self) -> int:
        """Pairs that reached the model so far."""
        return len(self._known)

    def __call__(self, pairs: Iterable[Pair]) -> FloatArray:
        """The model's answers, in the order of the pairs."""
        listed = list(pairs)
        new = [pair for pair in dict.fromkeys(listed) if pair not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))
        return np.array([self._known[pair] for pair in listed], dtype=np.float64)


def with_question(question: str | None, text: str) -> str:
    """What similarity and NLI models read of an answer: "question answer", one blank between, both stripped."""
    return f"{question.strip()} {text.strip()}".strip() if question is not None else text.strip()
