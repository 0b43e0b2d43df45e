"""Statistics of what stands inside the answering model."""

from __future__ import annotations

from typing import Any

import numpy as np

from semtoken.backends.base import ATTENTION, Step
from semtoken.observers.table import Statistic, statistic
from semtoken.results.generation import Layout
from semtoken.support.arrays import FloatArray


@statistic("attention_to_previous", Layout("float64", 3, "token", "array"))
class AttentionToPrevious(Statistic):
    """How much every head attends to the token before, where each token is chosen."""

    reads = frozenset({ATTENTION})

    def __init__(self) -> None:
        self._found: dict[int, list[Any]] = {}

    def observe(self, step: Step) -> None:
        """Take in one step."""
        attended = step.attention.float().cpu().numpy()
        for answer, row in zip(step.answers, step.rows, strict=True):
            self._found.setdefault(answer, []).append(attended[row])

    def of(self, answer: int) -> FloatArray:
        """[n, L, heads]; of the first token it is about the prompt and means nothing."""
        return np.array(self._found.get(answer, []), dtype=np.float64)

    def forget(self, answer: int) -> None:
        """Drop what was recorded of an answer."""
        self._found.pop(answer, None)
