"""Limits on the load that clients may put on a server: requests at one time, and work off the event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from semtoken.web.wire import ApiError


class Admission:
    """Counts the requests that run: `most` at one time, and `most_per_client` of them from one address."""

    def __init__(self, most: int, most_per_client: int) -> None:
        self._most = most
        self._most_per_client = most_per_client
        self._running: Counter[str] = Counter()

    @contextmanager
    def admitted(self, address: str) -> Iterator[None]:
        """Count a request of this address as running while the block runs; `ApiError` (503, 429) for one too many."""
        if self._running.total() >= self._most:
            raise ApiError(
                503,
                "Too many requests run at this time. Try again later.",
                kind="overloaded_error",
                code="overloaded",
                retry_after=1,
            )
        if self._running[address] >= self._most_per_client:
            raise ApiError(429, "Too many requests of yours run.", code="too_many_requests", retry_after=1)
        self._running[address] += 1
        try:
            yield
        finally:
            self._running[address] -= 1
            if not self._running[address]:
                del self._running[address]


class AdmissionLimit:
    """An ASGI application that passes on only as many POST requests at a time as are admitted."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 503 or 429."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        try:
            with self._admission.admitted(str(client[0]) if client else ""):
                await self._app(scope, receive, send)
        except ApiError as error:
            await error.response()(scope, receive, send)


T = TypeVar("T")


class Busy(Exception):
    """The error of work that was rejected since the queue is full."""


class Workers:
    """Threads for work that would block the event loop: some run, some more may wait.

    `watched` makes a context that each piece of work is in while it waits and runs, so that it can be counted.
    """

    def __init__(
        self, threads: int, waiting: int, watched: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._watched = watched
        self._threads = threads
        self._most = threads + waiting
        self._taken = 0
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work in a thread; `Busy` if too much is waiting."""
        # Refused at once rather than queued without end: whoever waits too long has left by then.
        if self._taken >= self._most:
            raise Busy
        if self._limiter is None:  # it belongs to the event loop that it is made in
            self._limiter = anyio.CapacityLimiter(self._threads)
        self._taken += 1
        try:
            with self._watched():
                return await anyio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self._taken -= 1
