"""No chunk of a stream can be cut off, doubled or mixed in so that another number comes without a word."""

from __future__ import annotations

import json
from typing import Any

import pytest

import semtoken as st
from semtoken.errors import SemtokenError
from semtoken.support.sse import EventReader
from tests.replies.recorded import STREAMED, clusters, recording
from tests.rows import each

NEAR = 1e-9


def events_of(name: str) -> list[bytes]:
    reader = EventReader()
    stream = recording(name).stream
    assert stream is not None
    return [event.raw for event in (*reader.feed(stream), *reader.finish())]


def outcome(events: list[bytes]) -> tuple[list[float], set[str]] | None:
    """The numbers and the flags; None where there are no numbers."""
    try:
        found = st.score_reply(b"".join(events), clusters())
    except SemtokenError:
        return None
    return [one.log_confidence for one in found], {flag.message for one in found for flag in one.flags}


def check_honest(events: list[bytes], whole: tuple[list[float], set[str]], shown: Any) -> None:
    found = outcome(events)
    if found is not None and found[0] != pytest.approx(whole[0], abs=NEAR):
        assert found[1] - whole[1], (shown, found, whole)


def broken(events: list[bytes], foreign: list[bytes]) -> list[tuple[str, list[bytes]]]:
    several = [(f"cut at {i}", events[:i]) for i in range(1, len(events))]
    several += [(f"doubled {i}", [*events[: i + 1], *events[i:]]) for i in range(len(events))]
    several += [(f"moved {i}", [*events[:i], *events[i + 1 :], events[i]]) for i in range(len(events))]
    for i in range(1, len(events)):
        several += [(f"foreign {j} at {i}", [*events[:i], one, *events[i:]]) for j, one in enumerate(foreign[:6])]
    return several


def other_reply(name: str) -> list[bytes]:
    """The same stream as that of another reply, by its id."""
    found = []
    for raw in events_of(name):
        text = raw.decode()
        for old in {json.loads(line[6:]).get("id") for line in text.splitlines() if line.startswith("data: {")}:
            text = text.replace(json.dumps(old), '"another"') if isinstance(old, str) else text
        found.append(text.encode())
    return found


@each("name", STREAMED)
def test_a_broken_stream_gives_no_other_number_silently(name: str) -> None:
    events = events_of(name)
    whole = outcome(events)
    if whole is None:
        return
    for shown, one in broken(events, other_reply(name)):
        check_honest(one, whole, shown)
