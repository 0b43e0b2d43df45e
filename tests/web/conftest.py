from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from semtoken import TokenClusters
from semtoken.support.almanac import PROMPT, almanac_clusters_path
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.web.servers import Behaviour, Received, Upstream, all_stopped, answering, raw_upstream, running

Replaying = Callable[[bytes], str]


@pytest.fixture(scope="session", autouse=True)
def _stopped() -> Iterator[None]:
    """No server is left running that was not waited for."""
    yield
    all_stopped()


@pytest.fixture(scope="session")
def almanac_clusters() -> TokenClusters:
    return TokenClusters.from_pretrained(almanac_clusters_path())


@pytest.fixture
def proxied(almanac_clusters: TokenClusters) -> Iterator[Callable[..., tuple[str, Upstream]]]:
    """Starts an upstream that behaves in some way, and a proxy in front of it: the proxy's address, what was seen."""
    with ExitStack() as stack:

        def start(behaviour: Behaviour, **settings: Any) -> tuple[str, Upstream]:
            upstream = stack.enter_context(raw_upstream(behaviour))
            app = proxy_app(ProxySettings(upstream.url, **settings), almanac_clusters)
            return stack.enter_context(running(app, wait=False)), upstream

        yield start


@contextmanager
def in_front(
    answer: Behaviour | bytes, clusters: TokenClusters | None = None, **settings: Any
) -> Iterator[tuple[str, Upstream]]:
    """A proxy without a page before an upstream that behaves in some way, or answers so: its address, what was seen."""
    behaviour = answering(answer) if isinstance(answer, bytes) else answer
    with raw_upstream(behaviour) as upstream, proxy_of(upstream.url, clusters, page=False, **settings) as url:
        yield url, upstream


@contextmanager
def proxy_of(url: str, clusters: TokenClusters | None, *, page: bool = True, **settings: Any) -> Iterator[str]:
    """A proxy in front of a server that runs; yields its address."""
    with running(proxy_app(ProxySettings(url, **settings), clusters, page=page), wait=False) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def served(almanac: Any) -> Iterator[str]:
    """`semtoken serve` in this process; its address."""
    app = serve_app(Engine(almanac), Offer("almanac", PROMPT, stop_at_newline=True, max_logprobs=50))
    with running(app, strict=False) as url:
        yield url


@pytest.fixture(scope="module")
def replaying(almanac_clusters: TokenClusters) -> Iterator[Replaying]:
    """Sets the bytes that an upstream answers from then on; the address of a proxy in front of it."""
    sent: list[bytes] = []

    async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
        # It answers one request a connection: a proxy that does not know may send the next one there.
        writer.write(sent[-1].replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        await writer.drain()

    with raw_upstream(behave) as upstream, proxy_of(upstream.url, almanac_clusters) as url:

        def replay(answer: bytes) -> str:
            sent.append(answer)
            return url

        yield replay
