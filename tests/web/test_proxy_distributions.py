"""A proxy in front of vLLM finds out whether its log-probabilities follow the temperature, and says so."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from semtoken import TokenClusters
from semtoken.replies.formats.openai_choices import OpenAIChat
from semtoken.web.proxy.asking import read_request
from semtoken.web.proxy.distributions import LearnedDistributions
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.upstream import Request, Upstream
from tests.web.conftest import proxy_of
from tests.web.servers import running
from tests.web.sick_server import Faults, sick_app

CHAT = {"model": "almanac", "messages": [{"role": "user", "content": "What is the capital of Peru?"}], "max_tokens": 8}


@contextmanager
def in_front(almanac: Any, clusters: TokenClusters, faults: Faults, **settings: Any) -> Iterator[tuple[str, str]]:
    """The addresses of a proxy and of the server behind it."""
    with running(sick_app(almanac, faults), wait=False) as server, proxy_of(server, clusters, **settings) as url:
        yield url, server


def distribution(url: str, **changes: Any) -> str:
    """The distribution behind its numbers as the block of an answer names it."""
    answer = httpx.post(f"{url}/v1/chat/completions", json=CHAT | {"temperature": 0.5} | changes, timeout=60)
    if "stream" not in changes:
        return answer.json()["choices"][0]["semtoken"]["distribution"]
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    blocks = [choice["semtoken"] for event in events for choice in event["choices"] if "semtoken" in choice]
    return blocks[-1]["distribution"]


@pytest.mark.parametrize("scaled", [True, False])
def test_it_asks_once_and_names_the_distribution_rightly(
    almanac: Any, almanac_clusters: TokenClusters, scaled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    expected = "processed" if scaled else "raw"
    with (
        caplog.at_level(logging.INFO, "semtoken.proxy"),
        in_front(almanac, almanac_clusters, Faults(vllm=True, scaled=scaled)) as (url, server),
    ):
        assert [distribution(url) for _ in range(3)] == [expected] * 3
        assert distribution(url, stream=True) == expected
        assert httpx.get(f"{url}/health").json()["distributions"] == {"almanac": expected}
        asked = httpx.get(f"{server}/asked").json()
    assert len(asked) == 6  # four of the client, two of the proxy
    assert sorted(body["temperature"] for body in asked if body["messages"] != CHAT["messages"]) == [0.5, 1.0]
    assert ("--logprobs-mode raw_logprobs" in caplog.text) == scaled


def test_a_stream_alone_makes_it_ask(almanac: Any, almanac_clusters: TokenClusters) -> None:
    with in_front(almanac, almanac_clusters, Faults(vllm=True, scaled=True)) as (url, _):
        assert distribution(url, stream=True) == "processed"


@pytest.mark.parametrize(("faults", "settings"), [(Faults(), {}), (Faults(vllm=True), {"distribution": "raw"})])
def test_it_asks_nothing_where_the_reply_or_the_user_tells(
    almanac: Any, almanac_clusters: TokenClusters, faults: Faults, settings: Any
) -> None:
    with in_front(almanac, almanac_clusters, faults, **settings) as (url, server):
        assert distribution(url) == (settings.get("distribution") or "unknown")
        time.sleep(0.3)
        assert len(httpx.get(f"{server}/asked").json()) == 1


def test_it_asks_for_as_many_numbers_as_the_server_gives(almanac: Any, almanac_clusters: TokenClusters) -> None:
    with in_front(almanac, almanac_clusters, Faults(vllm=True, most=5)) as (url, _):
        assert distribution(url) == "raw"
        assert httpx.get(f"{url}/health").json()["distributions"] == {"almanac": "raw"}


def test_questions_that_are_refused_are_not_asked_with_each_answer(
    almanac: Any, almanac_clusters: TokenClusters
) -> None:
    body = {"model": "almanac", "messages": CHAT["messages"], "max_completion_tokens": 8}
    with in_front(almanac, almanac_clusters, Faults(vllm=True, new_names=True)) as (url, server):
        for _ in range(4):
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
            assert answer["choices"][0]["semtoken"]["distribution"] == "raw"  # as vLLM is by default
        own = [asked for asked in httpx.get(f"{server}/asked").json() if asked["messages"] != CHAT["messages"]]
    assert len(own) == 1


@pytest.mark.parametrize("refused", [True, False])
def test_what_failed_is_asked_again_after_a_while_and_what_is_known_never(
    almanac: Any, almanac_clusters: TokenClusters, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semtoken.web.proxy.distributions.PAUSE", 0.1)
    body = {"model": "almanac", "messages": CHAT["messages"], "max_completion_tokens": 8}
    with in_front(almanac, almanac_clusters, Faults(vllm=True, new_names=refused)) as (url, server):
        for _ in range(2):
            httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
            time.sleep(0.2)
        own = [asked for asked in httpx.get(f"{server}/asked").json() if asked["messages"] != CHAT["messages"]]
    assert len(own) == 2  # one that fails, again; or two that are answered, once


def test_a_model_whose_distribution_was_found_counts_once(almanac: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semtoken.web.proxy.distributions.MOST_MODELS", 2)
    request = Request("POST", b"/v1/chat/completions", [(b"content-type", b"application/json")], b"")
    asked = read_request(OpenAIChat, json.dumps(CHAT).encode())
    assert asked is not None

    async def found(server: str) -> list[str]:
        upstream = Upstream(ProxySettings(server))
        learned = LearnedDistributions(upstream, None)
        for model in "abc":
            await learned.settle(model, "vllm-chat", request, asked, 5)
        await learned.aclose()
        await upstream.aclose()
        return list(learned.known)

    with running(sick_app(almanac, Faults(vllm=True)), wait=False) as server:
        assert asyncio.run(found(server)) == ["a", "b"]
