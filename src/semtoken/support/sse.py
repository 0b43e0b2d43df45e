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
LINE_FEED, CARRIAGE_RETURN = b"\n\r"
SHOWN = 40  # bytes of a line in a message


def is_whole(line: bytes | bytearray) -> bool:
    """Return True if a line of data is all of it: an object from brace to brace, or the word that ends a stream."""
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
    """The reason why the event cannot be understood; None if it can."""

    @property
    def is_ping(self) -> bool:
        """True if the event says nothing and only keeps the connection open, by its kind or by the type in its data."""
        return self.kind in PINGS or (len(self.raw) < LONGEST_PING and _PING.search(self.raw) is not None)

    @property
    def is_whole(self) -> bool:
        """True if it is understood, and its data is one line that needs no other."""
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
        self._raw = bytearray()
        """The lines of the event that is being read."""
        self._rest = bytearray()
        """The bytes behind them: the beginning of a line."""
        self._searched = 0
        """No line ends before this place in `_rest`."""
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
        return bytes(self._raw + self._rest)

    @property
    def size(self) -> int:
        """The number of bytes in `pending`."""
        return len(self._raw) + len(self._rest)

    def feed(self, part: bytes | str) -> list[Event]:
        """Add a part of the stream; returns the events that it completes. `InvalidInputError` if one exceeds
        `longest`.
        """
        self._rest += part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        if self._at_start and not self._past_byte_order_mark():
            return []
        events = self._lines_of_json() if self._is_json else self._completed()
        # Or a server that never ends an event would fill the memory.
        if self.size > self._longest:
            what = "a line" if self._is_json else "an event"
            raise InvalidInputError(
                f"The stream holds {what} of more than {self._longest // 2**20} million characters."
            )
        return events

    def finish(self) -> list[Event]:
        """End the stream; returns the last event if no blank line followed it."""
        if self._at_start or not self.size:
            return []
        if self._is_json:
            self._rest += b"\n"
            return self._lines_of_json()
        raw = bytes(self._rest)
        self._rest.clear()
        self._searched = 0
        events = [*self._taken(raw.removesuffix(b"\r"), raw), self._event()]
        return [event for event in events if event.lines or event.fault]

    def _completed(self) -> list[Event]:
        """The events that are complete now."""
        events: list[Event] = []
        at = 0
        while at < len(self._rest):
            usual = self._usual_event(at)
            if usual is not None:
                events.append(usual)
                at = self._searched = at + len(usual.raw)
                continue
            if self._after_return:
                self._after_return = False
                if self._rest[at] == LINE_FEED:
                    self._raw += b"\n"
                    at += 1
                    self._searched = max(self._searched, at)
            ends = self._next_line(at)
            if ends is None:
                break
            end, following = ends
            events += self._taken(bytes(self._rest[at:end]), bytes(self._rest[at:following]))
            at = following
        del self._rest[:at]
        self._searched -= at
        return events

    def _usual_event(self, at: int) -> Event | None:
        """The event that begins there, if it is there in full and has one line of data and nothing else, as most."""
        if self._raw or self._after_return or not self._rest.startswith(USUAL, at):
            return None
        end = self._rest.find(b"\n", max(self._searched, at), at + LONGEST_USUAL)
        if end < 0 or not self._rest.startswith(b"\n", end + 1) or self._rest.find(b"\r", at, end) >= 0:
            return None
        size = end - at
        return Event(bytes(self._rest[at : end + 2]), (_Line(0, len(USUAL), size, size + 1),))

    def _next_line(self, at: int) -> tuple[int, int] | None:
        """The places where the line that begins there ends, and where the next one begins; None if it may go on."""
        line_end = _LINE_END.search(self._rest, self._searched)
        if line_end is None:
            self._searched = len(self._rest)
            return None
        end = line_end.start()
        following = end + 1
        if self._rest[end] == CARRIAGE_RETURN:
            if following < len(self._rest):
                following += self._rest[following] == LINE_FEED
            elif end > at:
                self._searched = end
                return None  # it may be half of a line end; a blank line would not have to wait
            else:
                self._after_return = True
        self._searched = following
        return end, following

    def _taken(self, line: bytes, raw: bytes) -> list[Event]:
        """Take in a line, without its end and with it; returns the event that it completes."""
        if not line:
            self._raw += raw
            return [self._event()]
        # There is no blank line before it, but the event so far has one line of data, which needs no other.
        begins_another = (
            len(self._lines) == 1
            and line.startswith((b"data", b"event"))
            and is_whole(self._raw[self._lines[0].start : self._lines[0].end])
        )
        events = [self._event()] if begins_another else []
        begin = len(self._raw)
        self._raw += raw
        name, _, value = line.partition(b":")
        if not name:
            return events  # a comment
        value = value.removeprefix(b" ")
        if name == b"data":
            end = begin + len(line)
            self._lines.append(_Line(begin, end - len(value), end, len(self._raw)))
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name not in FIELDS and self._fault is None:
            shown = line[:SHOWN].decode("utf-8", "replace")
            self._fault = f"The stream holds a line that is no field of an event: {shown!r}."
        return events

    def _event(self) -> Event:
        event = Event(bytes(self._raw), tuple(self._lines), self._kind, self._fault)
        self._raw.clear()
        self._lines, self._kind, self._fault = [], "message", None
        return event

    def _lines_of_json(self) -> list[Event]:
        """The complete lines that are pending; blank ones belong to the line behind them."""
        end = self._rest.rfind(b"\n") + 1
        lines, self._rest = bytes(self._rest[:end]).splitlines(keepends=True), self._rest[end:]
        return [Event(line, (_Line(0, 0, len(line.rstrip()), len(line)),)) for line in lines]

    def _past_byte_order_mark(self) -> bool:
        if len(self._rest) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(self._rest):
            return False
        self._at_start = False
        behind = self._rest.removeprefix(BYTE_ORDER_MARK)
        self._is_json = behind.lstrip().startswith(b"{")
        if not self._is_json and len(behind) < len(self._rest):
            self._raw += BYTE_ORDER_MARK
            self._rest = behind
        return True
