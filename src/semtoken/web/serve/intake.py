"""Bodies of requests: read within limits, and made ready off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from starlette.requests import Request

from semtoken.web.serve.worker import MOST_TOGETHER
from semtoken.web.wire import ApiError
from semtoken.web.workers import Busy, Workers

T = TypeVar("T")

MEBIBYTE = 2**20
DISCARDED = 8  # a body that is too long is read to its end, up to so many times the limit, so that its sender hears


@dataclass(frozen=True)
class ServeLimits:
    """How much clients may send and ask for at one time.

    What a connection may do is limited by `semtoken.web.connections.ConnectionLimits`.
    """

    request_bytes: int = 2 * MEBIBYTE
    """Longer requests are refused (413)."""
    together: int = MOST_TOGETHER
    """Answers that are written at one time; what comes beyond waits."""
    requests: int = 500
    """Requests at one time; more are refused (503)."""
    body_timeout: float = 120.0
    """Seconds that a client has for the body of a request (408)."""
    prepared_inline_bytes: int = 2048
    """Requests of this length at most are read and tokenised at once, within a millisecond or so."""
    prepared_at_once: int = 2
    """Longer requests that are read and tokenised at one time, in threads of their own."""
    prepared_later: int = 64
    """Requests that may wait for that; more are refused (503)."""


class Intake:
    """Reads the bodies of requests.

    Parameters
    ----------
    limits
        What clients may take.
    """

    def __init__(self, limits: ServeLimits) -> None:
        self.limits = limits
        self._preparing = Workers(limits.prepared_at_once, limits.prepared_later)

    async def body(self, request: Request) -> bytes:
        """The body of a request that is not too long, and comes in time."""
        limit = self.limits.request_bytes
        body, size = bytearray(), 0
        try:
            with anyio.fail_after(self.limits.body_timeout):
                async for piece in request.stream():
                    size += len(piece)
                    if size <= limit:
                        body += piece
                    elif size > DISCARDED * limit:
                        break
        except TimeoutError:
            raise ApiError(408, "The body of the request took too long.", code="body_timeout") from None
        if size > limit:
            raise ApiError(413, f"The request is larger than {limit:,} bytes.", code="request_too_large")
        return bytes(body)

    async def prepared(self, work: Callable[[], T], size: int | None) -> T:
        """What `work` returns: done at once for small requests, else in a thread. `size` is the body's; None: large."""
        if size is not None and size <= self.limits.prepared_inline_bytes:
            return work()
        try:
            return await self._preparing.run(work)
        except Busy:
            message = "Too many requests wait to be read. Try again later."
            raise ApiError(503, message, kind="overloaded_error", code="overloaded", retry_after=1) from None


async def unless_gone(receive: Callable[[], Awaitable[Any]], answer: Coroutine[Any, Any, T]) -> T | None:
    """What a request is answered with; it is given up, and None, when the client leaves."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(receive))
    leaving.add_done_callback(lambda _: answering.cancel())
    try:
        return await answering
    except asyncio.CancelledError:
        if leaving.done():
            return None
        raise
    finally:
        leaving.cancel()


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
