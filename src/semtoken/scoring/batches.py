"""Answers that are written together: what a step costs in Python does not depend on how many they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semtoken._arrays import IdArray
from semtoken.scoring.logits import LogitsAnswer, add_step, take_in_steps
from semtoken.scoring.rows import NormalizedRows
from semtoken.scoring.scorer import Scorer
from semtoken.scoring.steps import ReducedSteps, reduce_rows

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
        touched: dict[int, LogitsAnswer] = {}
        for place, (numbers, steps) in enumerate(waiting, start=1):
            answers = [self._answer(number) for number in numbers.tolist()]
            touched |= dict(zip(numbers.tolist(), answers, strict=True))
            last = place == len(waiting)
            take_in_steps(answers, steps, rows if last else None, taken if last else None)
        for answer in touched.values():
            answer.advance()
        if touched:
            self._holds_rows = any(answer.holds_rows() for answer in touched.values())
