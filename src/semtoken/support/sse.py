"""Server-sent events, or lines of JSON: bytes, cut anywhere -> events with their own bytes; strict, in linear time.

The one reader of event streams, for replies and for the proxy. It takes what the standard allows: a byte-order mark,
lines that end in LF, CR or CRLF, comments, data over several lines; and streams that lack the blank lines between
events, as people save what a client's `iter_lines()` gives. What it does not understand is an error: a line that is
skipped might have been a token.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from semtoken.errors import InvalidInputError

LONGEST_EVENT = 64 * 2**20  # bytes; one step of a whole vocabulary takes some 16 million
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
USUAL = b"data: "
LONGEST_USUAL = 2**16  # bytes that are searched for the end of a line, so that streams without line feeds cost no more
PINGS = ("ping", "heartbeat", "keep-alive", "keepalive")
"""Kinds and types of events that only keep a connection open."""
_PING = re.compile(rb'data: ?\{\s*"type":\s*"(?:ping|heartbeat|keep-?alive)"[^{}]*\}')
LONGEST_PING = 256
DONE = b"[DONE]"
FIELDS = (b"data", b"event", b"id", b"retry")
_LINE_END = re.compile(rb"[\r\n]")
SHOWN = 40  # bytes of a line in a message


def is_whole(line: bytes | bytearray) -> bool:
    """Whether a line of data is all of it: an object from brace to brace, or the word that ends a stream."""
    return (line[:1] == b"{" and line.rstrip()[-1:] == b"}") or line.strip() == DONE


class _Line(NamedTuple):
    """A data line: where it begins, where its value begins and ends, and where the next line begins."""

    begin: int
    start: int
    end: int
    next: int


class Event(NamedTuple):
    """One server-sent event with its bytes; the bytes of all events of a stream make up the stream."""

    raw: bytes
    """All its bytes: comments before it and the blank line after it included."""
    lines: tuple[_Line, ...] = ()
    """The lines of its data, by their places in `raw`."""
    kind: str = "message"
    """The name in the field `event`; "message" where the event has none."""
    fault: str | None = None
    """Why the event cannot be understood; None if it can."""

    @property
    def is_ping(self) -> bool:
        """Whether the event says nothing and only keeps the connection open, by its kind or by the type in its data."""
        return self.kind in PINGS or (len(self.raw) < LONGEST_PING and _PING.search(self.raw) is not None)

    @property
    def is_whole(self) -> bool:
        """Whether it is understood, and its data is one line that needs no other."""
        return (
            self.fault is None and len(self.lines) == 1 and is_whole(self.raw[self.lines[0].start : self.lines[0].end])
        )

    @property
    def data(self) -> str | None:
        """The data of the event, None if it has none; `InvalidInputError` if the event is not understood."""
        if self.fault is not None:
            raise InvalidInputError(self.fault)
        if not self.lines:
            return None
        try:
            return b"\n".join(self.raw[line.start : line.end] for line in self.lines).decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"An event of the stream is not UTF-8: {error.reason}.") from error

    def with_data(self, data: str) -> bytes:
        """The bytes of the event with other JSON as its data, on one line; all other bytes stay."""
        first, *others = self.lines
        # A line end in JSON is a blank between tokens, and in an event it would begin another line.
        encoded = data.replace("\n", " ").encode()
        parts = [self.raw[: first.start], encoded]
        done = first.end
        for line in others:
            parts.append(self.raw[done : line.begin])
            done = line.next
        return b"".join([*parts, self.raw[done:]])


class EventReader:
    """Splits a stream of bytes or text into server-sent events of at most `longest` bytes, as it arrives."""

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self._longest = longest
        self._pending = bytearray()
        self._begin = 0
        """Where the line being read begins."""
        self._searched = 0
        """No line ends before."""
        self._lines: list[_Line] = []
        self._kind = "message"
        self._fault: str | None = None
        self._at_start = True
        self._is_json = False
        """The stream is lines of JSON, as Ollama's."""
        self._after_return = False
        """The last byte was a carriage return: a line feed belongs to it."""

    @property
    def pending(self) -> bytes:
        """The bytes at the end that do not yet form a complete event."""
        return bytes(self._pending)

    @property
    def size(self) -> int:
        """The number of bytes in `pending`."""
        return len(self._pending)

    def feed(self, part: bytes | str) -> list[Event]:
        """Add a part of the stream; returns the events that it completes. `InvalidInputError` if one exceeds
        `longest`.
        """
        self._pending += part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        if self._at_start and not self._past_byte_order_mark():
            return []
        if self._is_json:
            return self._lines_of_json()
        events: list[Event] = []
        done = 0
        while True:
            usual = self._usual_event(done)
            if usual is not None:
                events.append(usual)
                done += len(usual.raw)
                self._begin = self._searched = done
                continue
            if self._after_return and self._begin < len(self._pending):
                self._after_return = False
                if self._pending[self._begin] == 0x0A:
                    self._begin += 1
                    self._searched = max(self._searched, self._begin)
            line_end = _LINE_END.search(self._pending, self._searched)
            if line_end is None:
                break
            end = line_end.start()
            following = end + 1
            if self._pending[end] == 0x0D:
                if following < len(self._pending):
                    following += self._pending[following] == 0x0A
                elif end > self._begin:
                    break  # it may be half of a line end; a blank line would not have to wait
                else:
                    self._after_return = True
            if end > self._begin:
                if self._begins_another(done):
                    events.append(self._event(done, self._begin))
                    done = self._begin
                self._take_line(end, following, done)
            else:
                events.append(self._event(done, following))
                done = following
            self._begin = self._searched = following
        self._searched = len(self._pending) if line_end is None else line_end.start()
        if done:
            del self._pending[:done]
            self._begin -= done
            self._searched -= done
        # Or a server that never ends an event would fill the memory.
        if len(self._pending) > self._longest:
            raise InvalidInputError(
                f"The stream holds an event of more than {self._longest // 2**20} million characters."
            )
        return events

    def _usual_event(self, begin: int) -> Event | None:
        """The event that begins there, if it is there in full and has one line of data and nothing else, as most."""
        if self._begin != begin or self._lines or self._after_return or not self._pending.startswith(USUAL, begin):
            return None
        end = self._pending.find(b"\n", max(self._searched, begin), begin + LONGEST_USUAL)
        if end < 0 or not self._pending.startswith(b"\n", end + 1) or self._pending.find(b"\r", begin, end) >= 0:
            return None
        if self._kind != "message" or self._fault is not None:
            return None
        size = end - begin
        return Event(bytes(self._pending[begin : end + 2]), (_Line(0, len(USUAL), size, size + 1),))

    def finish(self) -> list[Event]:
        """End the stream; returns the last event if no blank line followed it."""
        if self._at_start or not self._pending:
            return []
        if self._is_json:
            self._pending += b"\n"
            return self._lines_of_json()
        end = len(self._pending) - self._pending.endswith(b"\r")
        events, done = [], 0
        if end > self._begin:
            if self._begins_another(done):
                events.append(self._event(done, self._begin))
                done = self._begin
            self._take_line(end, len(self._pending), done)
        if self._lines or self._fault:
            events.append(self._event(done, len(self._pending)))
        self._pending.clear()
        self._begin = self._searched = 0
        return events

    def _lines_of_json(self) -> list[Event]:
        """The complete lines that are pending; blank ones belong to the line behind them."""
        end = self._pending.rfind(b"\n") + 1
        lines, self._pending = bytes(self._pending[:end]).splitlines(keepends=True), self._pending[end:]
        if len(self._pending) > self._longest:
            raise InvalidInputError(
                f"The stream holds a line of more than {self._longest // 2**20} million characters."
            )
        return [Event(line, (_Line(0, 0, len(line.rstrip()), len(line)),)) for line in lines]

    def _past_byte_order_mark(self) -> bool:
        if len(self._pending) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(self._pending):
            return False
        self._at_start = False
        self._is_json = self._pending.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")
        if self._pending.startswith(BYTE_ORDER_MARK):
            self._begin = self._searched = len(BYTE_ORDER_MARK)
        return True

    def _begins_another(self, begin: int) -> bool:
        """Whether the next line begins another event than the one that begins at `begin`, although there is no blank
        line between: the latter has one line of data, which needs no other.
        """
        if len(self._lines) != 1 or not self._pending.startswith((b"data", b"event"), self._begin):
            return False
        return is_whole(self._pending[begin + self._lines[0].start : begin + self._lines[0].end])

    def _take_line(self, end: int, following: int, done: int) -> None:
        """Take in the line that ends at `end`, of an event that begins at `done`."""
        begin = self._begin
        colon = self._pending.find(b":", begin, end)
        name = bytes(self._pending[begin : end if colon < 0 else colon])
        if not name:
            return  # a comment
        start = end if colon < 0 else colon + 1
        start += start < end and self._pending[start] == 0x20
        if name == b"data":
            self._lines.append(_Line(begin - done, start - done, end - done, following - done))
        elif name == b"event":
            self._kind = bytes(self._pending[start:end]).decode("utf-8", "replace")
        elif name not in FIELDS and self._fault is None:
            shown = bytes(self._pending[begin : min(end, begin + SHOWN)]).decode("utf-8", "replace")
            self._fault = f"The stream holds a line that is no field of an event: {shown!r}."

    def _event(self, begin: int, end: int) -> Event:
        event = Event(bytes(self._pending[begin:end]), tuple(self._lines), self._kind, self._fault)
        self._lines, self._kind, self._fault = [], "message", None
        return event
