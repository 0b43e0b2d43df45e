"""Requests to `semtoken serve` and to proxies before it, with all that they answered, and what figures a proxy has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from semtoken import ScoredModel, TokenClusters
from semtoken.guarantees.journal.watch import GuaranteeReport
from semtoken.version import __version__
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.serve.service import Offer
from tests.decisions.models import tiny
from tests.web.asking import events_in, near, post
from tests.web.conftest import proxy_of, serving

EXCHANGES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("exchanges.json").read_text("utf-8"))
CHANGING = ("id", "created", "upstream")


def exchanged(url: str, path: str, body: Any) -> Any:
    """Status and reply, or the events of a stream, without what differs each time."""
    reply = httpx.get(url + path, timeout=60) if body is None else post(url, path, json=body)
    text = reply.text.replace(__version__, "VERSION")
    streamed = reply.headers["content-type"].startswith("text/event-stream")
    values = events_in(text) if streamed else [json.loads(text)]
    return [reply.status_code, *({n: v for n, v in one.items() if n not in CHANGING} for one in values)]


@pytest.fixture(scope="module")
def servers(served: str, almanac_clusters: TokenClusters) -> Iterator[dict[str, str]]:
    """The addresses of two servers, of a proxy before each, and of one that asks typed questions as texts."""
    with ExitStack() as stack:
        deciding = stack.enter_context(serving(ScoredModel(tiny()), Offer("tiny", max_logprobs=400)))
        proxies = {
            "proxy": (served, "auto", 20),
            "passed on": (deciding, "pass", 20),
            "as texts": (deciding, "chat", 400),
        }
        yield {"serve": served, "decide": deciding} | {
            name: stack.enter_context(proxy_of(url, almanac_clusters, decisions=how, top_logprobs=top))
            for name, (url, how, top) in proxies.items()
        }


def test_requests_are_answered_as_they_were(servers: dict[str, str]) -> None:
    """If a change is meant, what this test prints goes into exchanges.json."""
    for exchange in EXCHANGES:
        asked = {name: exchange[name] for name in ("path", "body")}
        found = asked | {name: exchanged(url, *asked.values()) for name, url in servers.items() if name in exchange}
        assert found == near(exchange), json.dumps(found, ensure_ascii=False)


def test_figures_have_the_names_and_steps_that_dashboards_ask_for() -> None:
    """If a change is meant, what this test prints goes into figures.txt."""
    metrics = ProxyMetrics()
    metrics.journal.count("written", 3, 500)
    metrics.journal.show(GuaranteeReport("kept", "", alpha=0.2, n=30, wrong=2, low=0.05, high=0.1))
    for width in (0.0005, 0.015, 0.25):
        metrics.widths.observe(width)
        metrics.added_seconds.observe(width)
    found = [line for line in metrics.text().decode().splitlines() if "_created" not in line]
    print(*found, sep="\n")
    assert found == Path(__file__).with_name("figures.txt").read_text("utf-8").splitlines()
