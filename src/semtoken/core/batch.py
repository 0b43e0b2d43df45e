"""Several answers in progress, to which rows of logits are added together, as an engine computes them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from semtoken.core.columns import Columns, joined
from semtoken.core.growing import GrowingAnswer, check_normalizers
from semtoken.core.results import Distribution, Running, ScoredAnswer
from semtoken.core.rows import NormalizedRows, WholeRow, reduce_rows
from semtoken.core.scorer import Scorer
from semtoken.support.arrays import IdArray

MOST_WAITING = 256
"""The most steps that wait, reduced and not yet taken in by their answers: a few hundred numbers of each sequence and
step."""
MOST_ROWS = 64
"""The most whole rows that are kept for these steps, where a token does not decide what the text begins with: 40 MB of
a large vocabulary."""


AnswersStep: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""One decoding step of several answers: their numbers, and the tokens that were chosen."""


class AnswerBatch:
    """Unfinished answers by their numbers, to which rows are added for several of them together.

    What a step costs in Python does not depend on how many answers it has: reduced steps wait as a few arrays until
    somebody asks for one of the answers.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._answers: dict[int, GrowingAnswer] = {}
        self._waiting: list[tuple[IdArray, Columns]] = []
        self._rows: dict[int, WholeRow] = {}
        """Rows that some of these steps need, by their place among all of them."""
        self._n_waiting = 0
        """The number of steps of answers that wait."""
        self._last = np.full(64, -1)
        """The last token of each answer, -1 for none."""
        self._opens = np.ones(64, dtype=bool)
        """True for each answer that has nothing but blanks so far."""

    def __getitem__(self, number: int) -> GrowingAnswer:
        """An answer, as far as it is known; an empty one under a new number."""
        self._take_in()
        return self._answer(number)

    def __delitem__(self, number: int) -> None:
        """Forget an answer; its number is new again."""
        self._take_in()
        self._reserve(number)
        self._answers.pop(number, None)
        self._last[number], self._opens[number] = -1, True

    def add(self, steps: Sequence[AnswersStep], rows: NormalizedRows) -> None:
        """Add one decoding step of some answers, or several.

        Each step names its answers by their numbers, and the ids chosen for them. `rows` are those of the answers of
        the first step, then those of the second one, and so on. `InvalidLogits` if one holds no distribution; the
        message names the answer by its row.
        """
        if not len(rows.row_ids):
            return
        self._reserve(max(number for numbers, _ in steps for number in numbers))
        if np.isfinite(rows.log_normalizers).all():
            self._reduce(steps, rows, range(len(rows.row_ids)))
            return
        # Step by step, so that everything before the broken row is scored, and the message has the number of its step.
        firsts = itertools.accumulate((len(numbers) for numbers, _ in steps), initial=0)
        for (numbers, tokens), first in zip(steps, firsts, strict=False):
            own, places = slice(first, first + len(numbers)), range(first, first + len(numbers))
            lengths = [len(self[number].ids) for number in numbers]
            check_normalizers(rows.log_normalizers[own], lengths, rows.numbers[own] if len(numbers) > 1 else None)
            self._reduce([(numbers, tokens)], rows, places)

    def _reduce(self, steps: Sequence[AnswersStep], rows: NormalizedRows, places: Sequence[int]) -> None:
        """Reduce some steps, which then wait; `places` are those of their answers among the rows."""
        columns = []
        for numbers, tokens in steps:
            which, chosen = np.array(numbers, dtype=np.int64), np.array(tokens, dtype=np.int64)
            opening = self._opens[which]
            columns.append((which, chosen, self._last[which], opening))
            self._last[which] = chosen
            self._opens[which] = opening & self.scorer.vocabulary.blank[chosen]
        which, chosen, before, openings = map(np.concatenate, zip(*columns, strict=True))
        taken = np.array(places, dtype=np.int64)
        reduced, waiting = reduce_rows(self.scorer, rows, taken, chosen, before, openings)
        for k, row in waiting.items():
            self._rows[self._n_waiting + k] = row
        self._waiting.append((which, reduced))
        self._n_waiting += len(which)
        if len(self._rows) >= MOST_ROWS or len(self._waiting) >= MOST_WAITING:
            self._take_in()

    def running(self, numbers: Sequence[int]) -> list[Running]:
        """The scores of some unfinished answers, from their tokens so far."""
        self._take_in()
        return [self._answer(number).running() for number in numbers]

    def finish(self, lengths: Mapping[int, int], distribution: Distribution = "raw") -> list[ScoredAnswer]:
        """Score some complete answers, in the order of `lengths`.

        That is the number of an answer -> how many of its tokens count; those after them are dropped from it.
        """
        self._take_in()
        for number, length in lengths.items():
            answer = self._answer(number)
            if length < len(answer.ids):
                answer.truncate(length)
                self._last[number], self._opens[number] = answer.ids[-1] if answer.ids else -1, answer.opens
        return [self._answer(number).finish(distribution) for number in lengths]

    def _answer(self, number: int) -> GrowingAnswer:
        if number not in self._answers:
            self._answers[number] = GrowingAnswer(self.scorer)
        return self._answers[number]

    def _reserve(self, number: int) -> None:
        """Make room for a number."""
        missing = number + 1 - len(self._last)
        if missing > 0:
            # At least doubled, so that many new numbers cost one copy.
            more = max(missing, len(self._last))
            self._last = np.append(self._last, np.full(more, -1))
            self._opens = np.append(self._opens, np.ones(more, dtype=bool))

    def _take_in(self) -> None:
        """Have the answers take in the steps that wait."""
        if not self._waiting:
            return
        (which, reduced), waiting_rows = zip(*self._waiting, strict=True), self._rows
        self._waiting, self._rows, self._n_waiting = [], {}, 0
        numbers = np.concatenate(which)
        # Stable: the steps of each answer stay in the order in which they came.
        order = np.argsort(numbers, kind="stable")
        steps, place = joined(reduced).take(order), np.argsort(order).tolist()
        rows = {place[k]: row for k, row in waiting_rows.items()}
        each, counts = np.unique(numbers, return_counts=True)
        bounds = itertools.accumulate(counts.tolist(), initial=0)
        for number, (low, high) in zip(each.tolist(), itertools.pairwise(bounds), strict=True):
            own = {at - low: rows[at] for at in range(low, high) if at in rows}
            self._answer(number).take_in(steps.part(low, high), own)
