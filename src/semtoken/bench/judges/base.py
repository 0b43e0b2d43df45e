"""What a judge is given, what it says, and what every judge can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.almanac import Question
from semtoken.support.inputs import instance, listed

FloatArray = npt.NDArray[np.float64]
OnJudged: TypeAlias = Callable[[int], None]
"""Called with the number of answers judged so far."""


@dataclass(frozen=True)
class AnswerToJudge:
    """One answer to judge."""

    question: Question
    """With its id and all accepted answers."""
    answer: str
    record: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The record of a file that it was read from."""


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one answer."""

    correct: float
    """1 correct, 0 incorrect, NaN without a usable verdict."""
    quality: float | None = None
    """How good the answer is, in [0, 1], from judges that measure it before they decide."""
    reply: str | None = None
    """What a judge that answers in words said."""


class Judge(Protocol):
    """Says whether answers are correct."""

    @property
    def name(self) -> str:
        """Its name in files and tables, one for each judge of a run."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that decides its verdicts, plain values; part of the key of stored judgements."""

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """One verdict for each item, in their order."""


def correctness(verdicts: Sequence[Verdict]) -> FloatArray:
    """`Verdict.correct` of each, [n]: 1, 0 or NaN. Raises `InvalidInput` where one is no verdict."""
    found = [instance(one, Verdict, "verdicts") for one in listed(verdicts, "verdicts")]
    return np.array([verdict.correct for verdict in found], dtype=np.float64)
