"""The reply of any engine as plain records: its choices, their segments, and what a chunk of a stream adds."""

from __future__ import annotations

from dataclasses import dataclass, field

from semtoken.choices import SegmentKind
from semtoken.core.engine_tokens.top_steps import TopStep
from semtoken.core.parts import ToolCall
from semtoken.core.results import Distribution


@dataclass(frozen=True)
class Segment:
    """A part of one choice: what the user reads, or what came with it."""

    kind: SegmentKind
    """`answer`, `reasoning`, `refusal` or `tool_call`."""
    text: str
    """The text of this part of the message."""
    steps: tuple[TopStep, ...]
    """The decoding steps, each with its best tokens; empty where the engine gives no log-probabilities for it."""
    problem: str | None = None
    """Why its steps cannot be scored, and what to do; None if they can."""


@dataclass(frozen=True)
class ReplyChoice:
    """One of the answers of a reply."""

    index: int
    """The number of the choice in its reply, from 0."""
    segments: tuple[Segment, ...]
    """Segments in the order in which the model wrote them, at most one of each kind."""
    finish_reason: str | None = None
    """Why the engine ended it, in the engine's words; None if it does not say."""
    flags: tuple[str, ...] = ()
    """What a reader of the score should know, one sentence each."""
    broken: str | None = None
    """Why the choice is not whole, so that it cannot be scored: its stream broke off, or went on after its end."""
    calls: tuple[ToolCall, ...] = ()
    """The tool calls that the engine read out of what the model wrote, with arguments as the engine gives them."""
    question: str | None = field(default=None, compare=False)
    """What was asked, as the request or the saved line around the reply has it; None if that is not known."""

    def segment(self, kind: SegmentKind) -> Segment | None:
        """The part of this kind; None if the choice has none."""
        return next((segment for segment in self.segments if segment.kind == kind), None)


@dataclass(frozen=True)
class Reply:
    """The reply of an engine in semtoken's form: its choices and what their log-probabilities are."""

    format: str
    """The format of the reply, one of `semtoken.replies.known_formats()`."""
    model: str | None
    """The model's name in the reply, if it has one."""
    distribution: Distribution
    """What the log-probabilities are: `raw`, `processed` or `unknown`."""
    choices: tuple[ReplyChoice, ...]
    """The choices in the order of their index."""


@dataclass(frozen=True)
class ReplyEvent:
    """The text and steps that a chunk of a stream added to one segment of a choice."""

    choice: int
    """The index of the choice."""
    kind: SegmentKind
    """The kind of segment: the answer, reasoning, a refusal or a tool call."""
    text: str
    """The text that the message gained."""
    steps: tuple[TopStep, ...]
    """The steps that became known to belong to this part; they may come a chunk later than their text."""
