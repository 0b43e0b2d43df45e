"""One number for a tool call: how sure the model was of its name and its argument values, and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from semtoken.parts.part import Part


@dataclass(frozen=True)
class CallConfidence:
    """The confidence of one tool call, from the parts of its answer."""

    call: int
    """Which call of the answer it is, from 0."""
    name: str
    """The tool's name."""
    confidence: float | None
    """The product of the confidences of the name and all argument values, in [0, 1]. The tokens of braces, quotes and
    keys do not count. None where a part has no confidence."""
    weakest: Part
    """The part of the least confidence; one without any comes first."""


def call_confidences(parts: Iterable[Part]) -> list[CallConfidence]:
    """The confidence of each tool call, from `answer.parts(by="tool_call")`.

    It is no chance of being right: `semtoken calibrate` makes one of it, as of any number.
    """
    calls: dict[int, list[Part]] = {}
    for part in parts:
        if part.call is not None and part.path is not None:
            calls.setdefault(part.call, []).append(part)
    return [_confidence(call, own) for call, own in sorted(calls.items())]


def _confidence(call: int, parts: list[Part]) -> CallConfidence:
    known = [part.confidence for part in parts if part.confidence is not None]
    name = next((str(part.value) for part in parts if part.kind == "tool_name"), "")
    weakest = min(parts, key=lambda part: -1.0 if part.confidence is None else part.confidence)
    return CallConfidence(call, name, math.prod(known) if len(known) == len(parts) else None, weakest)
