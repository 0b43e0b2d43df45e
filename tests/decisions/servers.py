"""Servers on loopback that answer typed questions as a test wants it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.web.servers import running


@contextmanager
def answering(answer: Callable[[Request], Awaitable[Response]], path: str = "/{path:path}") -> Iterator[str]:
    """A server that answers what is posted to a path, or to any; yields its address."""
    with running(Starlette(routes=[Route(path, answer, methods=["POST"])]), wait=False, strict=False) as url:
        yield url
