"""Ollama's own routes through the proxy: whole replies, and streams that are lines of JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from semtoken.payloads import score_payload
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from tests.payloads.test_more_shapes import TOP, lines, ollama, token
from tests.web.servers import LAST_CHUNK, Received, Upstream, chunk, raw_upstream, response, running, stream_head

CLOSE = b"Connection: close"
WHOLE = ollama("Oslo", done=True, done_reason="stop", logprobs=[token("Oslo", -0.2, top_logprobs=TOP)])
STREAM = lines(
    ollama("Oslo", logprobs=[token("Oslo", -0.2, top_logprobs=TOP)]), ollama("", done=True, done_reason="stop")
)
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Where?"}]}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        if received.json().get("stream") is False:
            writer.write(response(json.dumps(WHOLE).encode(), CLOSE))
        else:
            head = stream_head().replace(b"text/event-stream", b"application/x-ndjson")
            writer.write(head.replace(b"\r\n\r\n", b"\r\n" + CLOSE + b"\r\n\r\n") + chunk(STREAM.encode()) + LAST_CHUNK)
        await writer.drain()

    with raw_upstream(answer) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_is_scored_and_what_nobody_asked_for_is_gone(upstream: Upstream, stream: bool) -> None:
    body: dict[str, Any] = ASKED if stream else ASKED | {"stream": False}
    with running(proxy_app(ProxySettings(upstream.url, hold=30.0), None, page=False)) as url:
        answer = httpx.post(f"{url}/api/chat", json=body, timeout=30)
    assert upstream.requests[-1].json()["logprobs"] is True
    parts = [json.loads(line) for line in answer.text.splitlines()]
    assert "".join(part["message"]["content"] for part in parts) == "Oslo"
    assert not any(part.get("logprobs") for part in parts)
    [scored] = score_payload(STREAM if stream else WHOLE)
    assert parts[-1]["semtoken"]["uncertainty"] == pytest.approx(scored.uncertainty, abs=1e-6)
