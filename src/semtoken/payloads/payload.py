"""What every engine's reply becomes: plain records, the same for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.top_steps import TopStep
from semtoken.results import Distribution


@dataclass(frozen=True)
class Segment:
    """A part of one choice: what the user reads, or what came beside it."""

    kind: SegmentKind
    """`answer`, `reasoning`, `refusal` or `tool_call`."""
    text: str
    """What the message says in this part."""
    steps: tuple[TopStep, ...]
    """Its decoding steps with the best tokens of each; empty where the engine gives no log-probabilities for it."""
    problem: str | None = None
    """Why its steps cannot be scored, and what to do; None if they can."""


@dataclass(frozen=True)
class PayloadChoice:
    """One of the answers of a payload."""

    index: int
    """Its number in the reply, from 0."""
    segments: tuple[Segment, ...]
    """In the order in which the model wrote them, at most one of each kind."""
    finish_reason: str | None = None
    """Why the engine ended it, in the engine's words; None if it does not say."""
    flags: tuple[str, ...] = ()
    """What a reader of the score should know, one sentence each."""
    complete: bool = True
    """The engine said that the choice is complete; False for one whose stream was cut off."""

    def segment(self, kind: SegmentKind) -> Segment | None:
        """The part of a kind, or None."""
        return next((segment for segment in self.segments if segment.kind == kind), None)


@dataclass(frozen=True)
class Payload:
    """An engine's reply, read."""

    format: str
    """Which shape it had, one of `semtoken.payloads.FORMATS`."""
    model: str | None
    """The model's name in the reply, if it has one."""
    distribution: Distribution
    """What the log-probabilities are: `raw`, `processed` or `unknown`."""
    choices: tuple[PayloadChoice, ...]
    """In the order of their index."""


@dataclass(frozen=True)
class StreamEvent:
    """What a chunk of a stream added to one choice."""

    choice: int
    """Index of the choice."""
    kind: SegmentKind
    text: str
    """What the message gained."""
    steps: tuple[TopStep, ...]
    """The steps that became known to belong to this part; they may come a chunk later than their text."""
