"""Streams without the lines between events, and with pings, through the proxy: the score is that of the plain one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from semtoken import score_reply
from tests.replies.test_saved_streams import PINGS, chunks, events
from tests.web.servers import LAST_CHUNK, Received, Upstream, chunk, stream_head

Start = Callable[..., tuple[str, Upstream]]
PLAIN = events(chunks("Os", "lo"))
UNCERTAINTY = score_reply(PLAIN)[0].sequence_uncertainty


def final_blocks(proxied: Start, text: str, size: int) -> tuple[list[dict[str, Any]], str]:
    """The final blocks of a stream that comes in pieces of a size, and all that the client gets."""

    async def send(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head())
        for at in range(0, len(text), size):
            writer.write(chunk(text[at : at + size].encode()))
            await writer.drain()
        writer.write(LAST_CHUNK)
        await writer.drain()

    url, _ = proxied(send, hold=0.0)
    body = {"model": "m", "messages": [{"role": "user", "content": "Where?"}], "stream": True}
    answer = httpx.post(url + "/v1/chat/completions", json=body, timeout=60).text
    found = [json.loads(line.partition(": ")[2]) for line in answer.splitlines() if line.startswith("data: {")]
    blocks = [choice["semtoken"] for one in found for choice in one.get("choices", ()) if "semtoken" in choice]
    return [block for block in blocks if block.get("final")], answer


def by_lines(text: str) -> str:
    """As `iter_lines()` gives it, saved line by line without the empty ones."""
    return "\n".join(filter(None, text.splitlines()))


@pytest.mark.parametrize("size", [7, 10**6])
@pytest.mark.parametrize("end", ["", "\n"])
def test_streams_without_blank_lines(proxied: Start, size: int, end: str) -> None:
    for text in (PLAIN, PLAIN.removesuffix("data: [DONE]\n\n"), PLAIN.replace("data: ", "event: message\ndata: ")):
        [block], answer = final_blocks(proxied, by_lines(text) + end, size)
        assert block["sequence_uncertainty"] == pytest.approx(UNCERTAINTY, abs=1e-6)
        assert answer.endswith(by_lines(text)[-14:] + end) or not text.endswith("[DONE]\n\n")


@pytest.mark.parametrize("ping", PINGS)
@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("blank", [True, False])
def test_pings_say_nothing_wherever_they_come(proxied: Start, ping: str, place: int, blank: bool) -> None:
    parts = PLAIN.split("\n\n")
    text = "\n\n".join([*parts[:place], ping.rstrip("\n"), *parts[place:]])
    [block], answer = final_blocks(proxied, text if blank else by_lines(text), 50)
    assert block["sequence_uncertainty"] == pytest.approx(UNCERTAINTY, abs=1e-6)
    assert ping.rstrip("\n") in answer


def test_a_second_stream_under_the_same_id_is_no_more_of_the_first_answer(proxied: Start) -> None:
    blocks, answer = final_blocks(proxied, events(chunks("Os", "lo"), chunks("Ber", "gen")), 50)
    assert blocks[0]["sequence_uncertainty"] == pytest.approx(UNCERTAINTY, abs=1e-6)
    assert all("sequence_uncertainty" not in block or block["n_tokens"] == 2 for block in blocks[1:])
    assert "Ber" in answer
