"""Server-sent events: a stream of bytes, cut anywhere -> the data of its events."""

from __future__ import annotations

import codecs
import re

from semtoken.errors import InvalidInput

LONGEST_EVENT = 64 * 2**20  # characters; one step of a whole vocabulary takes some 16 million
_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")  # a carriage return at the end may be half of the first


class EventReader:
    """Takes a stream in as it arrives."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest: list[str] = []
        self._size = 0
        self._data: list[str] = []

    def feed(self, part: bytes | str) -> list[str]:
        """The data of the events that are complete now.

        Raises
        ------
        InvalidInput
            An event is longer than any engine's.
        """
        text = part if isinstance(part, str) else self._decoder.decode(part)
        after_return = bool(self._rest) and self._rest[-1].endswith("\r")
        self._rest.append(text)
        self._size += len(text)
        if self._size > LONGEST_EVENT:
            raise InvalidInput(f"The stream holds an event of more than {LONGEST_EVENT // 2**20} million characters.")
        if not (after_return or "\n" in text or "\r" in text):
            return []
        *lines, rest = _LINE_END.split("".join(self._rest))
        self._rest = [rest]
        events = [event for line in lines if (event := self._line(line)) is not None]
        self._size = len(rest) + sum(map(len, self._data))
        return events

    def finish(self) -> list[str]:
        """The data of an event that no blank line ended."""
        events = self.feed("\n\n")
        self._rest, self._data = [], []
        return events

    def _line(self, line: str) -> str | None:
        """Take in a line; the data of the event that it ends."""
        line = line.lstrip("\ufeff")
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
            return None
        if line or not self._data:
            return None
        event = "\n".join(self._data)
        self._data.clear()
        return event
