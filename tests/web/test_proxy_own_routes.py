"""Ollama's and TGI's own routes through the proxy, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from semtoken.replies import score_reply
from tests.replies.made import entry, lines
from tests.replies.test_more_shapes import TOP, ollama, tgi
from tests.web.asking import events_in, post
from tests.web.conftest import proxy_of
from tests.web.servers import Received, Upstream, answering, raw_upstream, said, streamed

WHOLE = ollama("Oslo", done=True, done_reason="stop", logprobs=[entry("Oslo", -0.2, top_logprobs=TOP)])
STREAM = lines(
    ollama("Oslo", logprobs=[entry("Oslo", -0.2, top_logprobs=TOP)]), ollama("", done=True, done_reason="stop")
)
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Where?"}]}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    def answer(received: Received) -> bytes:
        if received.json().get("stream") is False:
            return said(WHOLE)
        return streamed(STREAM.encode()).replace(b"text/event-stream", b"application/x-ndjson")

    with raw_upstream(answering(answer)) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_is_scored_and_what_nobody_asked_for_is_gone(upstream: Upstream, stream: bool) -> None:
    body: dict[str, Any] = ASKED if stream else ASKED | {"stream": False}
    with proxy_of(upstream.url, None, page=False, hold=30.0) as url:
        answer = post(url, "/api/chat", json=body)
    assert upstream.requests[-1].json()["logprobs"] is True
    parts = [json.loads(line) for line in answer.text.splitlines()]
    assert "".join(part["message"]["content"] for part in parts) == "Oslo"
    assert not any(part.get("logprobs") for part in parts)
    [scored] = score_reply(STREAM if stream else WHOLE)
    assert parts[-1]["semtoken"]["sequence_uncertainty"] == pytest.approx(scored.sequence_uncertainty, abs=1e-6)


TOKENS = [tgi(5, "Os", -0.25), tgi(6, "lo", -0.5), tgi(2, "</s>", -0.05)]
OTHER = {"id": 7, "text": "lum", "logprob": -3.5, "special": False}
LISTED = [[one["token"], OTHER] for one in TOKENS]
DETAILS = {"finish_reason": "eos_token", "generated_tokens": 3, "seed": None, "prefill": []}


def tgi_answer(asked: dict[str, Any]) -> Any:
    """TGI as it documents `/generate`: details and best tokens only where they are asked for."""
    wanted = asked.get("parameters", {})
    details = DETAILS | {"tokens": [one["token"] for one in TOKENS]}
    if wanted.get("top_n_tokens"):
        details |= {"top_tokens": LISTED}
    return {"generated_text": "Oslo"} | ({"details": details} if wanted.get("details") else {})


def tgi_stream(asked: dict[str, Any]) -> bytes:
    """The same for `/generate_stream`: the last event has the whole text."""
    top = bool(asked.get("parameters", {}).get("top_n_tokens"))
    parts = [
        one | {"index": number} | ({"top_tokens": LISTED[number - 1]} if top else {})
        for number, one in enumerate(TOKENS, start=1)
    ]
    parts[-1] |= {"generated_text": "Oslo", "details": {k: DETAILS[k] for k in ("finish_reason", "generated_tokens")}}
    return b"".join(b"data:" + json.dumps(part).encode() + b"\n\n" for part in parts)


@pytest.fixture(scope="module")
def tgi_server() -> Iterator[Upstream]:
    def answer(received: Received) -> bytes:
        if b"/generate_stream " in received.line:
            return streamed(tgi_stream(received.json()))
        return said(tgi_answer(received.json()))

    with raw_upstream(answering(answer)) as server:
        yield server


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
@pytest.mark.parametrize("asks", [True, False])
def test_an_answer_of_tgi_is_scored_and_shown_as_it_was_asked_for(
    tgi_server: Upstream, path: str, *, asks: bool
) -> None:
    own = {"details": True, "top_n_tokens": 1} if asks else {"max_new_tokens": 5}
    body = {"inputs": "The capital of Norway is", "parameters": own}
    with proxy_of(tgi_server.url, None, page=False, hold=30.0) as url:
        answer = post(url, path, json=body)
    sent = tgi_server.requests[-1].json()
    assert sent["parameters"].items() >= {**own, "details": True}.items() - {("top_n_tokens", 1)}
    assert sent["parameters"]["top_n_tokens"] > 1
    as_events = path.endswith("stream")
    parts = events_in(answer.text) if as_events else [answer.json()]
    assert parts[-1]["generated_text"] == "Oslo"
    [scored] = score_reply(tgi_stream(sent) if as_events else tgi_answer(sent))
    assert scored.log_confidence == pytest.approx(-0.8, abs=1e-6)  # the sum of the three tokens
    block = parts[-1]["semtoken"]
    assert block["sequence_uncertainty"] == pytest.approx(scored.sequence_uncertainty, abs=1e-6)
    if as_events:
        assert [len(part.get("top_tokens") or []) for part in parts] == [int(asks)] * 3
    elif asks:
        assert [len(step) for step in parts[0]["details"]["top_tokens"]] == [1, 1, 1]
    else:
        assert not parts[0].get("details")
