"""Files of answers that a person labels: the order to look at them in, the labels so far, and the file of both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import AnswerRecord, read_answers
from semtoken.guarantees.labels import chosen_method, log_confidences
from semtoken.support.files.safe_files import replacing_file
from semtoken.support.files.strict_json import dump_json


def labeling_order(answers: Sequence[AnswerRecord]) -> list[int]:
    """The places of the answers in the order in which to label them; those without a text are left out.

    Every beginning of it is a fair sample that spreads over the scores (`label_order`). One field of each
    document comes before the second of any, since the fields of a document are not independent. `InvalidInputError` if
    an answer has no score.
    """
    scores = log_confidences(answers, chosen_method(answers, None)).tolist()
    order = [place for place in label_order(scores, 0) if answers[place].text.strip()]
    seen: Counter[str] = Counter()
    rounds: dict[int, int] = {}
    for place in order:
        document = answers[place].document
        rounds[place] = 0 if document is None else seen[document]
        if document is not None:
            seen[document] += 1
    return sorted(order, key=rounds.__getitem__)


def label_order(log_confidences: list[float], seed: int = 0) -> list[int]:
    """An order in which to label answers: each beginning of it is spread evenly over the scores.

    Ranks of the scores are visited in van der Corput's order from a random start; equal scores rank in an order that is
    drawn at random. So a hundred labels teach the calibrator its whole range, and remain a fair sample of all answers,
    which the guarantees need; answers near the threshold only would teach the threshold more, and break its guarantee.
    """
    n = len(log_confidences)
    generator = np.random.default_rng(seed)
    shift = generator.random()
    by_score = np.lexsort((generator.permutation(n), np.asarray(log_confidences)))
    order: list[int] = []
    seen: set[int] = set()
    i = 0
    while len(order) < n:
        # The sequence is dense in [0, 1), so that every rank comes in the end.
        rank = int((_van_der_corput(i) + shift) % 1 * n)
        if rank not in seen:
            seen.add(rank)
            order.append(int(by_score[rank]))
        i += 1
    return order


def _van_der_corput(i: int) -> float:
    """The bits of i behind the point, in reverse: 0, 1/2, 1/4, 3/4, 1/8, ..."""
    return int(f"{i:b}"[::-1], 2) / 2 ** i.bit_length() if i else 0.0


def with_earlier(answers: Sequence[AnswerRecord], path: Path) -> list[AnswerRecord]:
    """The answers with the labels and all fields of a file that `write_labeled` wrote, which go before their own:
    somebody may have written remarks into it.

    `InvalidInputError` if the file is there and holds other answers.
    """
    if not path.exists():
        return list(answers)
    earlier = read_answers(path)
    if [_identity(answer) for answer in answers] != [_identity(answer) for answer in earlier]:
        raise InvalidInputError(f"{path} holds other answers than the input. Choose another --output.")
    return [
        replace(
            answer,
            record={**answer.record, **before.record},
            correct=answer.correct if before.correct is None else before.correct,
        )
        for answer, before in zip(answers, earlier, strict=True)
    ]


def labels_of(answers: Sequence[AnswerRecord]) -> dict[int, bool]:
    """The labels of answers by their places; those without one are left out."""
    return {i: answer.correct for i, answer in enumerate(answers) if answer.correct is not None}


class LabelingSession:
    """A person's labels of answers, one answer after the other in the order of `labeling_order`.

    Answers that have a label are not asked about again. A label can be taken back, and an answer put off to the end.

    Parameters
    ----------
    answers
        The answers; `InvalidInputError` if one has no score.
    limit
        The number of labels, earlier ones among them, at which it ends; None: when all answers have one.
    """

    def __init__(self, answers: Sequence[AnswerRecord], limit: int | None = None) -> None:
        self.answers = answers
        self.labels = labels_of(answers)
        """The labels so far, by the places of the answers."""
        self._limit = limit
        order = labeling_order(answers)
        self._total = len(order)
        self._waiting = [place for place in order if place not in self.labels]
        self._given: list[int] = []

    @property
    def next(self) -> AnswerRecord | None:
        """The answer to label next; None at the end."""
        full = self._limit is not None and len(self.labels) >= self._limit
        return None if full or not self._waiting else self.answers[self._waiting[0]]

    @property
    def progress(self) -> str:
        """The number of labels so far as a sentence."""
        n, right = len(self.labels), sum(self.labels.values())
        return f"{n:,} of {self._total:,} answers have a label ({right:,} right, {n - right:,} wrong)."

    def give(self, correct: bool) -> None:
        """Label the next answer as right or wrong."""
        self._given.append(self._waiting.pop(0))
        self.labels[self._given[-1]] = correct

    def skip(self) -> None:
        """Put the next answer off until all others have had their turn; the last one that waits ends the session."""
        skipped = self._waiting.pop(0)
        if self._waiting:
            self._waiting.append(skipped)

    def undo(self) -> None:
        """Take back the last label of this session, if there is one: its answer is the next."""
        if self._given:
            self.labels.pop(self._given[-1])
            self._waiting.insert(0, self._given.pop())


def write_labeled(path: Path, answers: Sequence[AnswerRecord], labels: Mapping[int, bool]) -> None:
    """Write all answers as JSON lines with all their fields, and with the labels by their places as `correct`.

    The file is replaced as a whole. `InvalidInputError` if it cannot be written.
    """
    with replacing_file(path) as file:
        for i, answer in enumerate(answers):
            score = answer.log_confidence
            plain = {"log_confidence": None if score is None or score == -math.inf else score}
            file.write(dump_json({**answer.record, **plain, "correct": labels.get(i)}) + b"\n")


def _identity(answer: AnswerRecord) -> tuple[str, str, float | None]:
    return answer.question, answer.text, answer.log_confidence
