"""Replies of engines and APIs, read into one shape: JSON, client objects, streams.

formats/       one class for each shape, and the registry that finds the shape of a reply
reading.py     the content that a shape finds in a reply, or chunk by chunk, added up for each choice
segments.py    `Reply` and its parts; the steps of a choice -> reasoning, answer, tool calls
echo.py        the beginning of the answer in a reply that repeats its prompt
score.py       a reply -> `Reply`, or its answers with their uncertainty; stream.py: a reply chunk by chunk

Enter by `score_reply`, `read_reply` or `ReplyStream`.
"""

from __future__ import annotations

from semtoken.choices import SegmentKind
from semtoken.replies.formats.registry import known_formats
from semtoken.replies.score import read_reply, score_reply
from semtoken.replies.segments import Reply, ReplyChoice, ReplyEvent, Segment
from semtoken.replies.stream import ReplyStream

__all__ = [
    "Reply",
    "ReplyChoice",
    "ReplyEvent",
    "ReplyStream",
    "Segment",
    "SegmentKind",
    "known_formats",
    "read_reply",
    "score_reply",
]
