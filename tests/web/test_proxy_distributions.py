"""A proxy in front of vLLM finds out whether its log-probabilities follow the temperature, and says so."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from semtoken import TokenClusters
from semtoken.replies.formats.openai_choices import OpenAIChat
from semtoken.web.proxy.asking import read_request
from semtoken.web.proxy.distributions import LearnedDistributions
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.upstream import Request, Upstream
from tests.rows import each
from tests.web.asking import CHAT, block_of, post
from tests.web.conftest import proxy_of
from tests.web.servers import running
from tests.web.sick_server import Faults, sick_app

Started = Callable[..., tuple[str, str]]
ASKED = CHAT | {"max_tokens": 8}
NEW_NAMES = CHAT | {"max_completion_tokens": 8}
"""A request in the words of reasoning models."""


@pytest.fixture
def started(almanac: Any, almanac_clusters: TokenClusters) -> Iterator[Callable[..., tuple[str, str]]]:
    """Starts a server with some faults, and a proxy in front of it: the addresses of both."""
    with ExitStack() as stack:

        def start(settings: Mapping[str, Any] = MappingProxyType({}), **faults: Any) -> tuple[str, str]:
            server = stack.enter_context(running(sick_app(almanac, Faults(**faults)), wait=False))
            return stack.enter_context(proxy_of(server, almanac_clusters, **settings)), server

        yield start


def distribution(url: str, **changes: Any) -> str:
    """The distribution behind its numbers as the block of an answer names it."""
    return str(block_of(post(url, json=ASKED | {"temperature": 0.5} | changes))["distribution"])


def questions_of_its_own(server: str) -> list[Any]:
    return [asked for asked in httpx.get(f"{server}/asked").json() if asked["messages"] != CHAT["messages"]]


@pytest.mark.parametrize("scaled", [True, False])
def test_it_asks_once_and_names_the_distribution_rightly(
    started: Started, scaled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    expected = "processed" if scaled else "raw"
    caplog.set_level(logging.INFO, "semtoken.proxy")
    url, server = started(vllm=True, scaled=scaled)
    assert [distribution(url) for _ in range(3)] == [expected] * 3
    assert distribution(url, stream=True) == expected
    assert httpx.get(f"{url}/health").json()["distributions"] == {"almanac": expected}
    assert len(httpx.get(f"{server}/asked").json()) == 6  # four of the client, two of the proxy
    assert sorted(body["temperature"] for body in questions_of_its_own(server)) == [0.5, 1.0]
    assert ("--logprobs-mode raw_logprobs" in caplog.text) == scaled


def test_a_stream_alone_makes_it_ask(started: Started) -> None:
    url, _ = started(vllm=True, scaled=True)
    assert distribution(url, stream=True) == "processed"


@each(("vllm", "settings"), [(False, {}), (True, {"distribution": "raw"})])
def test_it_asks_nothing_where_the_reply_or_the_user_says_it(started: Started, vllm: bool, settings: Any) -> None:
    url, server = started(settings, vllm=vllm)
    assert distribution(url) == (settings.get("distribution") or "unknown")
    time.sleep(0.3)
    assert len(httpx.get(f"{server}/asked").json()) == 1


def test_it_asks_for_as_many_numbers_as_the_server_gives(started: Started) -> None:
    url, _ = started(vllm=True, most=5)
    assert distribution(url) == "raw"
    assert httpx.get(f"{url}/health").json()["distributions"] == {"almanac": "raw"}


def test_questions_that_are_refused_are_not_asked_with_each_answer(started: Started) -> None:
    url, server = started(vllm=True, new_names=True)
    for _ in range(4):
        assert block_of(post(url, json=NEW_NAMES))["distribution"] == "raw"  # as vLLM is by default
    assert len(questions_of_its_own(server)) == 1


@each("refused", [True, False])
def test_what_failed_is_asked_again_after_a_while_and_what_is_known_never(
    started: Started, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semtoken.web.proxy.distributions.PAUSE", 0.1)
    url, server = started(vllm=True, new_names=refused)
    for _ in range(2):
        post(url, json=NEW_NAMES)
        time.sleep(0.2)
    assert len(questions_of_its_own(server)) == 2  # one that fails, again; or two that are answered, once


def test_a_model_whose_distribution_was_found_counts_once(almanac: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semtoken.web.proxy.distributions.MOST_MODELS", 2)
    request = Request("POST", b"/v1/chat/completions", [(b"content-type", b"application/json")], b"")
    asked = read_request(OpenAIChat, json.dumps(ASKED).encode())
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
