"""Statistics of what stands inside the answering model."""

from __future__ import annotations

from typing import Any

import numpy as np

from semtoken.observers.steps import ATTENTION, Completion, Observer, Step, states
from semtoken.observers.table import PerStep, Statistic, statistic
from semtoken.results.generation import DEPTH, Layout
from semtoken.support.arrays import FloatArray


@statistic("attention_to_previous", Layout("float64", 3, "token", "array"))
class AttentionToPrevious(PerStep):
    """Records how much each head attends to the previous token where each token is chosen."""

    reads = frozenset({ATTENTION})

    def values(self, step: Step) -> list[Any]:
        """The attention of each answer in a step to the previous token, [L, heads]."""
        attended = step.attention.float().cpu().numpy()
        return [attended[row] for row in step.rows]

    def of(self, answer: int) -> FloatArray:
        """The attention to the previous token, [n, L, heads]; that of the first token is about the prompt, and has no
        meaning.
        """
        return np.array(self.recorded(answer), dtype=np.float64)


MIDDLE = 0.5
"""Depth of the middle layer."""


class LastStates(Observer):
    """Records the hidden state of every answer at the position that chose its last token.

    Parameters
    ----------
    depth
        The depth of the layer, in (0, 1].
    """

    def __init__(self, depth: float = MIDDLE) -> None:
        self.depth = depth
        self.reads = frozenset({states(depth)})
        self._rows: dict[int, tuple[Any, int]] = {}

    def observe(self, step: Step) -> None:
        """Record the hidden states of one decoding step, replacing those of the step before."""
        for answer, row in zip(step.answers, step.rows, strict=True):
            self._rows[answer] = (step.states[self.depth], row)

    def finish(self, answer: int, completion: Completion) -> None:
        """Keep the state of a complete answer, apart from its batch."""
        if answer in self._rows:
            found, row = self._rows[answer]
            self._rows[answer] = (found[row].clone()[None], 0)

    def of(self, answer: int) -> FloatArray | None:
        """The hidden state [H] that chose the last token of an answer; None for an answer without tokens."""
        if answer not in self._rows:
            return None
        found, row = self._rows[answer]
        state: FloatArray = found[row].double().cpu().numpy()
        return state

    def forget(self, answer: int) -> None:
        """Drop what was recorded of an answer."""
        self._rows.pop(answer, None)


@statistic("answer_state", Layout("float32", 1, "", "array"))
class AnswerState(LastStates, Statistic):
    """Records the hidden state at the end of every answer, [H], from which calibration can learn."""

    reads = frozenset({states(DEPTH)})

    def __init__(self) -> None:
        super().__init__(DEPTH)
