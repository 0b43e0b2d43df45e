"""What every engine's log-probabilities become: plain records, the same for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semtoken.results import Distribution
from semtoken.top_logprobs import TopStep

SegmentKind = Literal["answer", "reasoning", "refusal", "tool_call"]


@dataclass(frozen=True)
class Segment:
    """A part of one choice: what the user reads, or what came beside it."""

    kind: SegmentKind
    text: str
    steps: tuple[TopStep, ...]
    """Empty where the engine gives no log-probabilities for this part."""


@dataclass(frozen=True)
class Choice:
    """One of the answers of a payload."""

    index: int
    segments: tuple[Segment, ...]
    finish_reason: str | None = None
    flags: tuple[str, ...] = ()
    """What was noticed and a reader of the score should know, one sentence each."""


@dataclass(frozen=True)
class Payload:
    """An engine's reply, read."""

    format: str
    """Which shape it had: "openai-chat", "openai-completions", "openai-responses", "vllm", "sglang" and so on."""
    model: str | None
    distribution: Distribution
    choices: tuple[Choice, ...]
