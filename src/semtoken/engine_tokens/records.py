"""One decoding step as an engine lists it: the token it chose and the most probable ones. Plain records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

NOT_GIVEN = -9999.0
"""Stands for a log-probability that the engine did not give; vLLM and SGLang write it themselves."""
ABOVE_ZERO = 1e-3
"""How far above 0 rounding may lift a log-probability."""


def is_given(log_prob: float) -> bool:
    """Whether a log-probability is one: engines write -9999 for "very unlikely" and for "not known"."""
    return log_prob > NOT_GIVEN + 1


class TopToken(NamedTuple):
    """One token of a step, named as its engine named it: by id, by bytes, by text, or by several of them.

    A tuple, since an answer has twenty of them for every token and a tuple is made in a moment.
    """

    log_prob: float
    """Natural log of its next-token probability."""
    id: int | None = None
    text: str | None = None
    bytes: bytes | None = None

    @property
    def name(self) -> str:
        """For messages."""
        if self.text is not None:
            return repr(self.text)
        return f"id {self.id}" if self.id is not None else repr(self.bytes)


@dataclass(frozen=True)
class TopStep:
    """One decoding step: the token that was chosen, and the most probable ones."""

    chosen: TopToken
    top: tuple[TopToken, ...]
    """As the engine listed them; the chosen token may be among them or not."""


@dataclass(frozen=True)
class StepList:
    """The steps of one list of log-probabilities, and what is wrong with them."""

    steps: tuple[TopStep, ...] = ()
    missing: tuple[int, ...] = ()
    """Positions of the steps without a log-probability."""
    fault: str | None = None
    """Why there are no steps although the engine sent some."""

    @property
    def problem(self) -> str | None:
        """Why they cannot be scored; None if they can."""
        if self.fault or not self.missing:
            return self.fault
        return (
            f"{len(self.missing)} of {len(self.steps)} steps have no log-probability, the first of them step "
            f"{self.missing[0]}: the engine left them out."
        )

    @staticmethod
    def chained(parts: Sequence[StepList]) -> StepList:
        """The steps of several lists, one after the other."""
        steps: list[TopStep] = []
        missing: list[int] = []
        for part in parts:
            missing += [len(steps) + i for i in part.missing]
            steps += part.steps
        return StepList(tuple(steps), tuple(missing), next((part.fault for part in parts if part.fault), None))
