"""No chunk of a stream can be cut off, doubled or mixed in so that another number comes without a word."""

from __future__ import annotations

import json
from typing import Any

import pytest

import semtoken as st
from semtoken.errors import SemtokenError
from tests.replies.recorded import STREAMED, clusters, recording

NEAR = 1e-9


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


def broken(events: list[bytes], foreign: list[bytes], places: list[int]) -> list[tuple[str, list[bytes]]]:
    several = [(f"cut at {i}", events[:i]) for i in places if i]
    several += [(f"doubled {i}", [*events[: i + 1], *events[i:]]) for i in places]
    several += [(f"moved {i}", [*events[:i], *events[i + 1 :], events[i]]) for i in places]
    for i in places:
        several += [(f"foreign {j} at {i}", [*events[:i], one, *events[i:]]) for j, one in enumerate(foreign[:6]) if i]
    return several


def other_reply(name: str) -> list[bytes]:
    """The same stream as that of another reply, by its id."""
    found = []
    for raw in recording(name).events:
        text = raw.decode()
        for old in {json.loads(line[6:]).get("id") for line in text.splitlines() if line.startswith("data: {")}:
            text = text.replace(json.dumps(old), '"another"') if isinstance(old, str) else text
        found.append(text.encode())
    return found


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_broken_stream_gives_no_other_number_silently(step: int) -> None:
    """At every place of every stream, or at every seventeenth place, which moves on from one stream to the next."""
    for number, name in enumerate(STREAMED):
        events = recording(name).events
        if (whole := outcome(events)) is not None:
            places = list(range(number % step, len(events), step))
            for shown, one in broken(events, other_reply(name)[:: min(step, 3)], places):
                check_honest(one, whole, (name, shown))
