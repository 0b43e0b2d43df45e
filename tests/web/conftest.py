from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from semtoken import ScoredModel, TokenClusters
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.support.almanac import PROMPT
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.connections import ConnectionLimits
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.web.servers import Behavior, Upstream, all_stopped, answering, raw_upstream, running

Replaying = Callable[[bytes], str]
Start = Callable[..., tuple[str, Upstream]]
"""The fixture `proxied`."""
ALMANAC = Offer("almanac", PROMPT, stop_at_newline=True)
TINY = Offer("tiny", "{question}")


@pytest.fixture(scope="session", autouse=True)
def _stopped() -> Iterator[None]:
    """No server is left running that was not waited for."""
    yield
    all_stopped()


@pytest.fixture
def proxied(almanac_clusters: TokenClusters) -> Iterator[Callable[..., tuple[str, Upstream]]]:
    """Starts an upstream that behaves in some way, and a proxy in front of it: the proxy's address, what was seen."""
    with ExitStack() as stack:

        def start(behavior: Behavior | bytes, **settings: Any) -> tuple[str, Upstream]:
            upstream = stack.enter_context(raw_upstream(behavior))
            return stack.enter_context(proxy_of(upstream.url, almanac_clusters, **settings)), upstream

        yield start


@contextmanager
def in_front(
    behavior: Behavior | bytes, clusters: TokenClusters | None = None, **settings: Any
) -> Iterator[tuple[str, Upstream]]:
    """A proxy without a page before an upstream that behaves in some way, or answers so: its address, what was seen."""
    with raw_upstream(behavior) as upstream, proxy_of(upstream.url, clusters, page=False, **settings) as url:
        yield url, upstream


@contextmanager
def proxy_of(
    url: str,
    clusters: TokenClusters | None,
    *,
    page: bool = True,
    calibrator: CalibratorInUse | CalibratorSlot[CalibratorInUse] | None = None,
    limits: ConnectionLimits | None = None,
    **settings: Any,
) -> Iterator[str]:
    """A proxy in front of a server that runs; yields its address."""
    app = proxy_app(ProxySettings(url, **settings), clusters, page=page, calibrator=calibrator)
    with running(app, wait=False, limits=limits) as proxy:
        yield proxy


@contextmanager
def serving(
    engine: Engine | ScoredModel, offer: Offer = TINY, *, strict: bool = False, **options: Any
) -> Iterator[str]:
    """`semtoken serve` with a model in this process; yields its address."""
    app = serve_app(engine if isinstance(engine, Engine) else Engine(engine), offer, **options)
    with running(app, strict=strict) as url:
        yield url


@pytest.fixture(scope="session")
def served(almanac: Any) -> Iterator[str]:
    """`semtoken serve` in this process; its address."""
    with serving(almanac, replace(ALMANAC, max_logprobs=50)) as url:
        yield url


@pytest.fixture(scope="module")
def replaying(almanac_clusters: TokenClusters) -> Iterator[Replaying]:
    """Sets the bytes that an upstream answers from then on; the address of a proxy in front of it."""
    sent: list[bytes] = []
    with raw_upstream(answering(lambda _: sent[-1])) as upstream, proxy_of(upstream.url, almanac_clusters) as url:

        def replay(answer: bytes) -> str:
            sent.append(answer)
            return url

        yield replay
