"""The contract of streams: every event is understood, or there is no number.

The reader is compared with a line-by-line reading of the standard, whole streams with a damaged copy of themselves.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.errors import SemtokenError
from semtoken.replies import ReplyStream, read_reply, score_reply
from semtoken.support.sse import EventReader
from tests.examples import examples
from tests.replies.recorded import STREAMED, clusters, recording

LINES = st.sampled_from(
    [
        b"data: {",
        b"data:1",
        b"data",
        b"data:  x",
        b": ping",
        b"id: 7",
        b"event: error",
        b"retry: 3",
        b"",
        b"",
        b"data: }",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


def by_the_standard(stream: bytes) -> list[str]:
    """Data of the events of a whole stream, line by line as the HTML standard has it."""
    text = stream.decode().removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events: list[str] = []
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                events.append("\n".join(data))
            data = []
            continue
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
    return events


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    return [stream[a:b] for a, b in pairwise([0, *sorted(min(c, len(stream)) for c in cuts), len(stream)])]


@given(
    lines=st.lists(st.tuples(LINES, ENDS), max_size=12),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    cuts=st.lists(st.integers(0, 120), max_size=8),
)
def test_events_are_those_of_the_standard(lines: list[tuple[bytes, bytes]], mark: bytes, cuts: list[int]) -> None:
    stream = mark + b"".join(line + end for line, end in lines)
    reader = EventReader()
    events = [event for part in cut(stream, cuts) for event in reader.feed(part)]
    rest = reader.pending
    if stream.endswith((b"\n\n", b"\r\r", b"\n\r\n")):  # else the last line end may be half of one
        assert [event.data for event in events if event.lines] == by_the_standard(stream)
    assert b"".join(event.raw for event in events) + rest == stream


@given(
    parts=st.lists(st.sampled_from(['{"a":', "1,", '"b": [2]', "}"]), min_size=4, max_size=4),
    end=ENDS,
    cuts=st.lists(st.integers(0, 80), max_size=6),
)
def test_data_over_several_lines_is_edited_in_place(parts: list[str], end: bytes, cuts: list[int]) -> None:
    lines = [b"event: x", *(b"data: " + part.encode() for part in parts[:2]), b"id: 7", b"data:" + parts[2].encode()]
    stream = b"".join(line + end for line in (*lines, b""))
    reader = EventReader()
    [event] = [event for part in cut(stream, cuts) for event in reader.feed(part)]
    edited = event.with_data('{"new":\n1}')
    [again] = EventReader().feed(edited)
    assert json.loads(again.data or "") == {"new": 1}
    assert len(again.lines) == 1
    rest = edited + reader.pending  # the line feed of the last line end may have come after the event
    assert rest.replace(b'data: {"new": 1}' + end, b"") == b"".join(x + end for x in (b"event: x", b"id: 7", b""))


def test_without_blank_lines_an_event_ends_where_the_next_one_begins() -> None:
    """Fields and comments around whole data belong to its event; data that is not whole goes on."""
    stream = 'event: a\ndata: {"n": 1}\nid: 7\n: note\nevent: b\ndata: {"n":\n: }\ndata: 2}\n'
    reader = EventReader()
    events = [*reader.feed(stream), *reader.finish()]
    assert [(event.kind, event.data) for event in events] == [("a", '{"n": 1}'), ("b", '{"n":\n2}')]


def test_the_reader_is_linear() -> None:
    """Ten times the bytes take about ten times as long, in one piece and in many: quadratic would be a hundred."""

    def seconds(size: int, piece: int) -> float:
        stream = b"data: " + b"x" * size + b"\n\n" + b"data: 1\n\n" * (size // 9)
        reader = EventReader()
        start = time.process_time()
        for at in range(0, len(stream), piece):
            reader.feed(stream[at : at + piece])
        return time.process_time() - start

    for piece in (10**3, 10**8):  # the least of several: other work on the machine only ever adds
        small, large = (min(seconds(size, piece) for _ in range(2)) for size in (15_000, 150_000))
        assert large < 40 * max(small, 0.01)


# --- damaged streams -------------------------------------------------------------------------------------------------


Outcome = tuple[list[tuple[float, float]], set[str]]


def outcome(reply: Any) -> Outcome | None:
    """The intervals of a reply and its flags; None where there are no numbers."""
    try:
        found = score_reply(reply, clusters())
    except SemtokenError:
        return None
    return [one.sequence_uncertainty_interval for one in found], {flag.message for one in found for flag in one.flags}


def numbers(reply: Any) -> list[tuple[float, float]] | None:
    """The intervals alone."""
    found = outcome(reply)
    return found and found[0]


@cache
def scored() -> list[str]:
    """The recorded streams that have numbers."""
    return [name for name in STREAMED if numbers(recording(name).stream) is not None]


DAMAGE = {
    "invalid JSON": b"data: {\n\n",
    "a long integer": b'data: {"choices": [], "created": ' + b"9" * 4301 + b"}\n\n",
    "deep JSON": b"data: " + b"[" * 100_000 + b"\n\n",
    "no object": b"data: 17\n\n",
    "a line that is no field": b'dta: {"choices": []}\n\n',
    "no UTF-8": b'data: {"choices": [], "id": "\xff"}\n\n',
    "an error": b'data: {"error": {"message": "out of memory"}}\n\n',
    "an error event": b'event: error\ndata: {"message": "out of memory"}\n\n',
}
HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "a byte-order mark": lambda stream: b"\xef\xbb\xbf" + stream,
    "carriage returns": lambda stream: stream.replace(b"\n", b"\r"),
    "both": lambda stream: stream.replace(b"\n", b"\r\n"),
    "comments": lambda stream: stream.replace(b"data: {", b": ping\n\n: pong\ndata: {"),
    "data over two lines": lambda stream: stream.replace(b"data: {", b"data: {\ndata: "),
    "no last blank line": lambda stream: stream.rstrip(b"\n"),
}


def test_most_recorded_streams_are_scored() -> None:
    assert len(scored()) >= 8


def test_what_the_standard_allows_changes_nothing() -> None:
    for name in scored():
        stream = recording(name).stream
        expected = numbers(stream)
        for how, change in HARMLESS.items():
            assert numbers(change(stream.encode())) == expected, (name, how)


@examples(6)  # shared by all streams
@given(data=st.data())
def test_a_damaged_stream_has_no_number(data: st.DataObject) -> None:
    """An event that is not understood, anywhere before the end: no number. One that is cut off: none either."""
    events = recording(data.draw(st.sampled_from(scored()), "name")).events
    at = data.draw(st.integers(0, len(events) - 1), "event")
    how = data.draw(st.sampled_from([*DAMAGE, "cut inside", "byte"]), "damage")
    if how in DAMAGE:
        damaged = [*events[:at], DAMAGE[how], *events[at:]]
    else:
        raw = events[at]
        begin = raw.find(b"{")
        if begin < 0:
            return
        place = data.draw(st.integers(begin, len(raw) - 4), "place")
        # a control character is allowed nowhere in JSON, so that no digit or letter is changed unseen
        damaged = [
            *events[:at],
            raw[:place] + (b"\n\n" if how == "cut inside" else b"\x01") + raw[place + 1 :],
            *events[at + 1 :],
        ]
    assert numbers(b"".join(damaged)) is None


def test_a_stream_that_ends_early_has_no_number() -> None:
    """The rest of the answer is not known, so no interval could hold its uncertainty."""
    for events in (recording(name).events for name in scored()):
        whole = len(read_reply(b"".join(events)).choices)
        for kept in range(1, len(events)):
            found = numbers(b"".join(events[:kept]))
            if found is not None:  # what is missing is the usage, or "[DONE]"
                assert found == numbers(b"".join(events)) and len(found) == whole


def test_an_error_is_not_forgotten() -> None:
    events = recording("vllm-chat").events
    stream = ReplyStream()
    stream.feed(events[0])
    with pytest.raises(SemtokenError):
        stream.feed(b"data: {\n\n")
    for event in events[1:]:
        with pytest.raises(SemtokenError, match="not JSON"):
            stream.feed(event)
    with pytest.raises(SemtokenError, match="not JSON"):
        stream.finish()


@pytest.mark.parametrize("rest", [b'data: {"error": {"message": "no room"}}', b"data: {", b"event: error\ndata: {}"])
def test_an_error_at_the_end_is_not_forgotten_either(rest: bytes) -> None:
    """Without a blank line behind it, it is read by `finish`, which raised it once and then gave a reply."""
    stream = ReplyStream()
    for event in recording("vllm-chat").events:
        stream.feed(event)
    stream.feed(rest)
    for again in (stream.finish, stream.finish, lambda: stream.feed(b""), lambda: stream.choice(0)):
        with pytest.raises(SemtokenError, match=r"error|not JSON"):
            again()


@pytest.mark.parametrize("temperature", ["1", True, -0.5, float("nan")])
def test_a_stream_checks_its_temperature_as_a_whole_reply_does(temperature: Any) -> None:
    for read in (ReplyStream, lambda **asked: read_reply(recording("vllm-chat").stream, **asked)):
        with pytest.raises(SemtokenError, match="'temperature' must be"):
            read(temperature=temperature)


def broken(events: list[bytes], foreign: list[bytes], place: int) -> dict[str, list[bytes]]:
    """A stream that was cut off, doubled or moved at a place, or mixed with another one there."""
    before, behind = events[:place], events[place:]
    ways = {"doubled": [*before, *behind[:1], *behind], "moved": [*before, *behind[1:], *behind[:1]]}
    if place:
        ways["cut"] = before
        ways |= {f"foreign {number}": [*before, one, *behind] for number, one in enumerate(foreign[:6])}
    return ways


def other_reply(name: str) -> list[bytes]:
    """The same stream as that of another reply, by its id."""
    return [re.sub(rb'"id": ?"[^"]*"', b'"id": "another"', event) for event in recording(name).events]


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_broken_stream_gives_no_other_number_silently(step: int) -> None:
    """At every place of every stream, or at every seventeenth place, which moves on from one stream to the next."""
    for number, name in enumerate(STREAMED):
        events, foreign = recording(name).events, other_reply(name)[:: min(step, 3)]
        if (whole := outcome(b"".join(events))) is None:
            continue
        for place in range(number % step, len(events), step):
            for how, sent in broken(events, foreign, place).items():
                found = outcome(b"".join(sent))
                if found is not None and np.array(found[0]) != pytest.approx(np.array(whole[0]), abs=1e-9):
                    assert found[1] - whole[1], (name, how, place)
