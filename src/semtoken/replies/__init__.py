"""Replies of engines and APIs, read into one shape: JSON, client objects, streams.

formats/       one class for each shape, and the registry that knows which one a reply has
score.py       a reply -> `Payload`, or its answers with their uncertainty; stream.py: a reply chunk by chunk
segments.py    `Payload` and its parts; the steps of a choice -> reasoning, answer, tool calls

Enter by `score_payload`, `read_payload` or `PayloadStream`.
"""

from __future__ import annotations

from semtoken.choices import SegmentKind
from semtoken.replies.formats.registry import known_formats
from semtoken.replies.score import read_payload, score_payload
from semtoken.replies.segments import Payload, PayloadChoice, Segment, StreamEvent
from semtoken.replies.stream import PayloadStream

__all__ = [
    "Payload",
    "PayloadChoice",
    "PayloadStream",
    "Segment",
    "SegmentKind",
    "StreamEvent",
    "known_formats",
    "read_payload",
    "score_payload",
]
