"""Server-sent events as bytes: where each one ends, and the JSON it carries."""

from __future__ import annotations

import re
from collections.abc import Callable

_LINE_END = rb"(?:\r\n|\n|\r(?!\n))"
_BLANK_LINE = re.compile(_LINE_END + _LINE_END)
_DATA = re.compile(rb"(?:^|[\r\n])data: ?([^\r\n]*)")
_LONGEST_BLANK_LINE = 4


class EventSplitter:
    """Cuts a stream into events; together they are the stream, byte for byte."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that are complete now, their blank lines included."""
        searched = max(0, len(self._pending) - _LONGEST_BLANK_LINE)
        self._pending += piece
        events: list[bytes] = []
        done = 0
        for blank in _BLANK_LINE.finditer(self._pending, searched):
            events.append(self._pending[done : blank.end()])
            done = blank.end()
        self._pending = self._pending[done:]
        return events

    @property
    def pending(self) -> bytes:
        """What belongs to no complete event."""
        return self._pending


def with_data(event: bytes, edit: Callable[[str], str]) -> bytes:
    """The event with its JSON edited; an event without JSON, or with several lines of it, as it is."""
    found = list(_DATA.finditer(event))
    if len(found) != 1 or not found[0].group(1).startswith(b"{"):
        return event
    try:
        data = found[0].group(1).decode()
    except UnicodeDecodeError:
        return event
    start, end = found[0].span(1)
    return event[:start] + edit(data).encode() + event[end:]
