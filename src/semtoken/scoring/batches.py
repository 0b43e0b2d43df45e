"""Answers that are written together: what a step costs in Python does not depend on how many they are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from semtoken._arrays import IdArray
from semtoken.results import Distribution, Running, ScoredResponse
from semtoken.scoring.logits import LogitsAnswer, add_step, finish_answers, running_answers
from semtoken.scoring.rows import NormalizedRows
from semtoken.scoring.scorer import Scorer
from semtoken.scoring.steps import ReducedSteps, joined, reduce_rows

MOST_WAITING = 256
"""Steps that are reduced and not yet taken in by their answers: a few hundred numbers of each sequence and step."""


class AnswerBatch:
    """Answers in progress by their numbers. Steps go in for several of them together.

    A step that the compiled kernel has reduced waits as a few arrays until somebody asks for one of the answers.

    Parameters
    ----------
    scorer
        Clusters and rules.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._answers: dict[int, LogitsAnswer] = {}
        self._waiting: list[tuple[IdArray, ReducedSteps]] = []
        self._holds_rows = False
        """Some answer keeps a whole row until it is known what follows it."""
        self._last = np.full(64, -1)
        """The last token of each answer, -1 for none."""
        self._opens = np.ones(64, dtype=bool)
        """Whether each has nothing but blanks so far."""

    def __getitem__(self, number: int) -> LogitsAnswer:
        """An answer, as far as it is known; an empty one under a new number."""
        self._take_in()
        return self._answer(number)

    def __setitem__(self, number: int, answer: LogitsAnswer) -> None:
        """Put an answer in place of another, or go on from where it is now."""
        self._take_in()
        self._reserve(number)
        self._answers[number] = answer
        self._last[number] = answer.ids[-1] if answer.ids else -1
        self._opens[number] = answer.opens

    def __delitem__(self, number: int) -> None:
        """Forget an answer; its number is new again."""
        self[number] = LogitsAnswer(self.scorer)
        del self._answers[number]

    def add(self, numbers: Sequence[int], rows: NormalizedRows, places: Sequence[int], tokens: Sequence[int]) -> None:
        """Take in the next step of some answers.

        Parameters
        ----------
        numbers
            Of the answers.
        rows
            What the model gave.
        places, tokens
            The place of each answer among the rows, and the token that was chosen from it.

        Raises
        ------
        InvalidLogits
            A row holds no distribution; the message names the answer by its row.
        """
        if not numbers:
            return
        self._reserve(max(numbers))
        if rows.readable is None or not np.isfinite(rows.log_normalizers).all():
            answers = [self[number] for number in numbers]
            add_step(answers, rows, places, tokens)
            for number, answer in zip(numbers, answers, strict=True):
                self[number] = answer
            return
        which, chosen = np.array(numbers, dtype=np.int64), np.array(tokens, dtype=np.int64)
        taken, opening = np.array(places, dtype=np.int64), self._opens[which]
        steps = reduce_rows(self.scorer, rows, taken, chosen, self._last[which], opening)
        self._last[which] = chosen
        self._opens[which] = opening & self.scorer.vocabulary.blank[chosen]
        self._waiting.append((which, steps))
        tells = self.scorer.tables.tells[chosen].all()
        if self._holds_rows or not tells or len(self._waiting) >= MOST_WAITING:
            self._take_in(rows, taken)

    def running(self, numbers: Sequence[int]) -> list[Running]:
        """What is known so far of some answers."""
        self._take_in()
        return running_answers([self._answer(number) for number in numbers])

    def finish(self, lengths: Mapping[int, int], distribution: Distribution = "raw") -> list[ScoredResponse]:
        """The results of complete answers by their numbers, and how many of their tokens count: all or the first."""
        self._take_in()
        for number, length in lengths.items():
            answer = self._answer(number)
            if length < len(answer.ids):
                answer.truncate(length)
                self[number] = answer
        return finish_answers([self._answer(number) for number in lengths], distribution)

    def _answer(self, number: int) -> LogitsAnswer:
        if number not in self._answers:
            self._answers[number] = LogitsAnswer(self.scorer)
        return self._answers[number]

    def _reserve(self, number: int) -> None:
        """Make room for a number."""
        missing = number + 1 - len(self._last)
        if missing > 0:
            more = max(missing, len(self._last))
            self._last = np.append(self._last, np.full(more, -1))
            self._opens = np.append(self._opens, np.ones(more, dtype=bool))

    def _take_in(self, rows: NormalizedRows | None = None, taken: IdArray | None = None) -> None:
        """Have the answers take in the steps that wait; the rows are those of the last one."""
        waiting, self._waiting = self._waiting, []
        touched = {number: self._answer(number) for numbers, _ in waiting for number in numbers.tolist()}
        last = waiting.pop() if rows is not None and waiting else None
        if waiting:
            numbers = np.concatenate([which for which, _ in waiting])
            steps = joined([found for _, found in waiting]).take(np.argsort(numbers, kind="stable"))
            each, counts = np.unique(numbers, return_counts=True)
            places = itertools.accumulate(counts.tolist(), initial=0)
            for number, (low, high) in zip(each.tolist(), itertools.pairwise(places), strict=True):
                touched[number].take_in(steps.part(low, high))
        if last is not None:
            assert rows is not None and taken is not None
            for k, number in enumerate(last[0].tolist()):
                touched[number].take_in_with_row(last[1].part(k, k + 1), rows, int(taken[k]))
        for answer in touched.values():
            answer.advance()
        if touched:
            self._holds_rows = any(answer.holds_rows() for answer in touched.values())
