"""Judges of correctness: one interface, six kinds, and how far they agree.

============ ===================================================================== ==================
kind         correct if                                                            needs
============ ===================================================================== ==================
exact        the answer equals an accepted one after normalization                 nothing
contains     it holds the words of an accepted one                                 nothing
rouge        its ROUGE-L F1 with an accepted one is above a threshold              rouge-score
similarity   a cross-encoder finds it similar to an accepted one                   sentence-transformers
llm          a language model says "True" to the paper's prompt                    an endpoint
imported     a file says so                                                        the file
============ ===================================================================== ==================

Enter by `bench run --judge` or `bench judge`; in Python `kinds.judge_from` makes a judge from settings, and
`correctness` makes labels of its verdicts. A judge is its own settings; llm.py holds the one that asks a model.
"No usable verdict" is NaN, never a guess: it is counted, and whoever shows figures shows that count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import AnswerRecord
from semtoken.support.almanac import Question
from semtoken.support.arrays import FloatArray, real_numbers
from semtoken.support.extras import require
from semtoken.support.inputs import instance, listed, shown

require("pydantic", extra="bench")

from pydantic import BaseModel, ConfigDict, field_serializer, model_validator  # noqa: E402

OnJudged: TypeAlias = Callable[[int], None]
"""Called with the number of answers judged so far."""


@dataclass(frozen=True)
class AnswerToJudge:
    """One answer for a judge, with its question and the accepted answers."""

    question: Question
    answer: str
    record: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The record of a file that it was read from."""


@dataclass(frozen=True)
class Verdict:
    """The result of a judge for one answer."""

    correct: float
    """1 correct, 0 incorrect, NaN without a usable verdict."""
    quality: float | None = None
    """The quality of the answer, in [0, 1], from judges that measure it before they decide."""
    reply: str | None = None
    """The words of a judge that answers in words."""


class Judge(Protocol):
    """The interface of all judges: they say whether answers are correct."""

    @property
    def name(self) -> str:
        """The name of the judge in files and tables, different for each judge of a run."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Plain values of everything that decides the verdicts; part of the key of stored judgments."""

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """Judge answers; returns one verdict for each item, in the same order."""


class Strict(BaseModel):
    """The base of all settings: unknown names are rejected, and values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, ignored_types=(cached_property,))


class JudgeBase(Strict):
    """The base of our judges, which are their own settings; each has a field `kind` and a method `judge`."""

    name: str = ""
    """The judge's name in files and tables; its kind if not given. Two judges of a kind need different ones."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {**given, "name": given.get("name") or cls.model_fields["kind"].default}

    @field_serializer("name")
    def _written(self, name: str) -> str | None:
        return None if name == type(self).model_fields["kind"].default else name

    @property
    def settings(self) -> Mapping[str, Any]:
        """Plain values of everything that decides the verdicts."""
        return self.model_dump(exclude={"name"})


def correctness(verdicts: Sequence[Verdict]) -> FloatArray:
    """The labels of n verdicts, for metrics: [n] of 1 (right), 0 (wrong) or NaN (no usable verdict).

    `InvalidInputError` if something is not a `Verdict`.
    """
    checked = [instance(entry, Verdict, "verdicts") for entry in listed(verdicts, "verdicts")]
    return np.array([verdict.correct for verdict in checked], dtype=np.float64)


def label_records(answers: Sequence[AnswerRecord], judge: Judge) -> list[AnswerRecord]:
    """The answers in the same order, labeled by a judge where they have accepted answers and no label.

    Those without a usable verdict stay without a label.
    """
    to_judge = [i for i, answer in enumerate(answers) if answer.needs_a_judge]
    items = [
        AnswerToJudge(Question(str(i), answers[i].question, answers[i].references), answers[i].text) for i in to_judge
    ]
    labeled = list(answers)
    for i, right in zip(to_judge, correctness(judge.judge(items)), strict=True):
        if not math.isnan(right):
            labeled[i] = replace(answers[i], correct=bool(right))
    return labeled


@dataclass(frozen=True)
class Tally:
    """The verdicts of one judge on all answers, counted."""

    correct: int
    incorrect: int
    missing: int
    """Answers without a usable verdict (NaN)."""

    @property
    def accuracy(self) -> float:
        """Share of correct answers among those with a verdict; NaN without any."""
        judged = self.correct + self.incorrect
        return self.correct / judged if judged else math.nan


def tally(judgments: npt.ArrayLike) -> Tally:
    """Count the verdicts of one judge, [N]; `InvalidInputError` if one is neither 1, 0 nor NaN."""
    values = _checked(judgments, "judgments")
    return Tally(int((values == 1).sum()), int((values == 0).sum()), int(np.isnan(values).sum()))


@dataclass(frozen=True)
class Agreement:
    """The agreement of two judges on the same answers."""

    first: str
    second: str
    both_correct: int
    only_first: int
    """Correct for the first judge, incorrect for the second."""
    only_second: int
    both_incorrect: int
    first_missing: int
    """Answers without a usable verdict (NaN) of the first judge. They are in no other count."""
    second_missing: int
    agreement: float
    """Share of the answers with both verdicts on which they are equal; NaN without such answers."""
    kappa: float
    """Cohen's kappa in [-1, 1]: 0 is what chance would give. NaN where both judges give one and the same verdict to all
    answers, or no answer has both."""

    @property
    def n(self) -> int:
        """The number of answers on which both judges gave a verdict."""
        return self.both_correct + self.only_first + self.only_second + self.both_incorrect


def agreement(judgments: Mapping[str, npt.ArrayLike]) -> list[Agreement]:
    """Compare every two judges on the answers that both gave a verdict on.

    `judgments` are [N] of 1, 0 or NaN by the name of a judge, as in `Cell.judgments`. Returns an `Agreement` for each
    pair, in the order of their names. `InvalidInputError` if lengths differ, or there are other values.
    """
    if not isinstance(judgments, Mapping):
        raise InvalidInputError(f"'judgments' must be verdicts by the name of their judge, got {shown(judgments)}.")
    arrays = {name: _checked(values, f"judgments of {name}") for name, values in judgments.items()}
    for name, values in arrays.items():
        if values.shape != next(iter(arrays.values())).shape:
            raise InvalidInputError(f"The judgments of {name} have shape {values.shape}; all must be of one length.")
    return [_pair(first, arrays[first], second, arrays[second]) for first, second in combinations(arrays, 2)]


def _checked(judgments: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    values = np.asarray(real_numbers(judgments, name), dtype=np.float64)
    if values.ndim != 1 or not np.isin(values[~np.isnan(values)], (0, 1)).all():
        raise InvalidInputError(f"The {name} must be a list of 1, 0 and NaN.")
    return values


def _pair(first: str, a: npt.NDArray[np.float64], second: str, b: npt.NDArray[np.float64]) -> Agreement:
    usable = ~(np.isnan(a) | np.isnan(b))
    x, y = a[usable].astype(bool), b[usable].astype(bool)
    varied = len(x) > 0 and len(np.unique([x, y])) > 1
    kappa = require("sklearn.metrics", extra="bench").cohen_kappa_score(x, y) if varied else math.nan
    return Agreement(
        first=first,
        second=second,
        both_correct=int((x & y).sum()),
        only_first=int((x & ~y).sum()),
        only_second=int((~x & y).sum()),
        both_incorrect=int((~x & ~y).sum()),
        first_missing=int(np.isnan(a).sum()),
        second_missing=int(np.isnan(b).sum()),
        agreement=float((x == y).mean()) if len(x) else math.nan,
        kappa=float(kappa),
    )
