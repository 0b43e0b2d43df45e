"""Steps of a generation whose logits are kept until their tokens are known, and scored several at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from semtoken.core.rows import any_masked, normalized_rows
from semtoken.errors import SemtokenError
from semtoken.models.scores import AnswerScores
from semtoken.support.arrays import as_rows

ROWS_TOGETHER = 8
"""The number of rows of logits that are scored together, unless those of one step are more: 5 MB of a large vocabulary.
To score one row takes hardly less time than to score several of them."""


class KeptSteps:
    """The newest steps of a batch of B answers: copies of their logits, and the tokens as far as they are known."""

    def __init__(self, scores: AnswerScores) -> None:
        self._scores = scores
        self._rows = torch.empty(0, 0, 0)
        """[steps, B, columns], the same memory for the whole generation: to allocate it for the rows of a batch takes
        longer than to score them."""
        self._kept = 0
        """The number of steps in it, the newest of which may be without tokens."""
        self._steps: list[tuple[int, Sequence[int], Sequence[int]]] = []
        """The place of each step that has its tokens, the answers that got one, and the tokens."""
        self._fault: SemtokenError | None = None
        """The error of a step that cannot be scored: from it on its generation has no scores."""
        self._looks_for_masks = False
        self.masked = False
        """True once some token of a scored step had no probability, where that was asked for."""

    def keep(self, rows: torch.Tensor, *, may_be_masked: bool) -> None:
        """Copy the logits [B, columns] of a new step, as others may change them before its tokens are known.

        From a step with `may_be_masked` on, `masked` says whether some token has no probability.
        """
        self._looks_for_masks = self._looks_for_masks or may_be_masked
        fits = (rows.shape, rows.dtype, rows.device) == (self._rows.shape[1:], self._rows.dtype, self._rows.device)
        if not fits or self._kept == len(self._rows):
            self.score()
            self._kept = 0
        if not fits:
            together = max(1, ROWS_TOGETHER // len(rows))
            self._rows = _memory(together, rows)
        self._rows[self._kept].copy_(rows)
        self._kept += 1

    def add_tokens(self, answers: Sequence[int], tokens: Sequence[int]) -> None:
        """Say which answers of the batch got a token in the newest step, and which tokens they are."""
        self._steps.append((self._kept - 1, answers, tokens))

    def score(self) -> None:
        """Have all steps scored whose tokens are known.

        `InvalidLogits` if a row of theirs, or of a step before them, holds no distribution.
        """
        if self._fault is not None:
            raise self._fault
        if not self._steps:
            return
        kept, self._steps = self._steps, []
        batch, size = self._rows.shape[1], self._scores.scorer.vocabulary.size
        places = np.array([place * batch + answer for place, answers, _ in kept for answer in answers])
        rows = normalized_rows(as_rows(self._rows.flatten(0, 1)), size, places)
        if self._looks_for_masks and not self.masked:
            self.masked = any_masked(rows, size)
        steps = [(answers, tokens) for _, answers, tokens in kept]
        try:
            self._scores.observe_together(steps, replace(rows, numbers=places % batch))
        except SemtokenError as error:
            self._fault = error
            raise


def _memory(steps: int, rows: torch.Tensor) -> torch.Tensor:
    """Memory [steps, B, columns] for steps of such rows, in their precision and on their device."""
    shape = (steps, *rows.shape)
    if not rows.is_cpu:
        return torch.empty(shape, dtype=rows.dtype, device=rows.device)
    # NumPy asks the system for large pages, torch does not: the first writing to small ones takes longer than to score
    # what is written.
    numbers = torch.from_numpy(np.empty(math.prod(shape) * rows.element_size(), dtype=np.uint8))
    return numbers.view(rows.dtype).view(shape)
