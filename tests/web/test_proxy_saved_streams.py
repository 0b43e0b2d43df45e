"""Streams without the lines between events, and with pings, through the proxy: the score is that of the plain one."""

from __future__ import annotations

from typing import Any

import pytest

from semtoken import score_reply
from tests.replies.test_saved_streams import PINGS, chunks, events
from tests.rows import each
from tests.web.asking import CHAT, blocks_in, events_in, post
from tests.web.conftest import Replaying
from tests.web.servers import streamed

PLAIN = events(chunks("Os", "lo"))
UNCERTAINTY = score_reply(PLAIN)[0].sequence_uncertainty


def final_blocks(replaying: Replaying, text: str, size: int) -> tuple[list[dict[str, Any]], str]:
    """The final blocks of a stream that comes in pieces of a size, and all that the client gets."""
    url = replaying(streamed(text.encode(), size=size))
    answer = post(url, json=CHAT | {"stream": True}).text
    return [block for block in blocks_in(events_in(answer)) if block.get("final")], answer


def uncertainties(blocks: list[dict[str, Any]]) -> list[float]:
    """One for each final block of an answer: in the last event, and in that of its last text, too, if the proxy still
    had that."""
    assert 1 <= len(blocks) <= 2
    return [block["sequence_uncertainty"] for block in blocks]


def by_lines(text: str) -> str:
    """As `iter_lines()` gives it, saved line by line without the empty ones."""
    return "\n".join(filter(None, text.splitlines()))


@each(("size", "end"), [(7, ""), (7, "\n"), (10**6, ""), (10**6, "\n")])
def test_streams_without_blank_lines(replaying: Replaying, size: int, end: str) -> None:
    for text in (PLAIN, PLAIN.removesuffix("data: [DONE]\n\n"), PLAIN.replace("data: ", "event: message\ndata: ")):
        blocks, answer = final_blocks(replaying, by_lines(text) + end, size)
        assert uncertainties(blocks) == pytest.approx([UNCERTAINTY] * len(blocks), abs=1e-6)
        assert answer.endswith(by_lines(text)[-14:] + end) or not text.endswith("[DONE]\n\n")


@each("ping", PINGS)
@each("place", [0, 1, 3])
@each("blank", [True, False])
def test_pings_say_nothing_wherever_they_come(replaying: Replaying, ping: str, place: int, blank: bool) -> None:
    parts = PLAIN.split("\n\n")
    text = "\n\n".join([*parts[:place], ping.rstrip("\n"), *parts[place:]])
    blocks, answer = final_blocks(replaying, text if blank else by_lines(text), 50)
    assert uncertainties(blocks) == pytest.approx([UNCERTAINTY] * len(blocks), abs=1e-6)
    assert ping.rstrip("\n") in answer


def test_a_second_stream_under_the_same_id_is_no_more_of_the_first_answer(replaying: Replaying) -> None:
    blocks, answer = final_blocks(replaying, events(chunks("Os", "lo"), chunks("Ber", "gen")), 50)
    assert blocks[0]["sequence_uncertainty"] == pytest.approx(UNCERTAINTY, abs=1e-6)
    assert all("sequence_uncertainty" not in block or block["n_tokens"] == 2 for block in blocks[1:])
    assert "Ber" in answer
