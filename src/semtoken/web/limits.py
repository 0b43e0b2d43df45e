"""How much clients may take: connections and the time of their heads, requests at one time, work off the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from semtoken.support.extras import require
from semtoken.web.wire import ApiError

require("uvicorn", extra="serve")

from h11 import LocalProtocolError  # noqa: E402
from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: E402
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402

HEAD_BYTES = 65_536
"""Most bytes of a request's head; h11 has a shorter limit of its own."""
SPARE_FILES = 64  # file descriptors for everything but clients and their requests


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections and how much time clients may take."""

    connections: int = 4000
    """Most connections at one time. For one more, the one that has been idle for longest is closed; if all of them are
    in the middle of a request, the new one is."""
    per_client: int = 2000
    """How many of them may come from one address."""
    header_timeout: float = 30.0
    """Seconds from the first byte (or from connecting) to the end of a request's head."""
    write_timeout: float = 120.0
    """Seconds in which a client must take some of its answer."""

    def within(self, files: int) -> ConnectionLimits:
        """These limits, lowered where the files that a process may open would not suffice: an exchange takes two."""
        most = max(8, (files - SPARE_FILES) // 2)
        return replace(self, connections=min(self.connections, most), per_client=min(self.per_client, most))


def open_files() -> int:
    """How many files this process may open, after raising the limit as far as the system allows."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class _LimitedConnection(asyncio.Protocol):
    """A connection that counts towards the limits; the rest is that of the protocol of uvicorn behind it."""

    limits: ConnectionLimits
    clients: Counter[str]
    """Open connections of each address."""
    known: dict[_LimitedConnection, None]
    """Open connections, the one that sent something last at the end."""
    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: Any

    _address: str | None = None
    _head: asyncio.TimerHandle | None = None
    _writes: asyncio.TimerHandle | None = None
    _unsent = 0
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if not self._finds_room(address):
            transport.abort()
            return
        self._address = address
        self.clients[address] += 1
        self.known[self] = None
        super().connection_made(transport)
        self._await_head()

    def _finds_room(self, address: str) -> bool:
        """Whether there is room for one more connection, if need be that of an idle one."""
        for full, same in (
            (self.clients[address] >= self.limits.per_client, True),
            (self.clients.total() >= self.limits.connections, False),
        ):
            idle = (one for one in self.known if not one._in_request and (not same or one._address == address))
            if full:
                oldest = next(idle, None)
                if oldest is None:
                    return False
                oldest._leave()
                oldest.transport.abort()
        return True

    def _leave(self) -> None:
        """Count no longer; the second time nothing happens."""
        if self._address is not None and self in self.known:
            del self.known[self]
            self.clients[self._address] -= 1
            if not self.clients[self._address]:
                del self.clients[self._address]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is None:
            return
        self._leave()
        for timer in (self._head, self._writes):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self not in self.known:
            return
        self.known[self] = self.known.pop(self)  # to the end
        super().data_received(data)
        if self._in_request:
            self._head_bytes = 0
            if self._head is not None:
                self._head.cancel()
                self._head = None
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self.transport.abort()
        elif self._head is None:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; if it comes in the body of a request, its application learns that the client left."""
        cycle = self.cycle if self._in_request else None
        with suppress(LocalProtocolError):  # its answer is complete already
            if cycle is None or not cycle.response_started:
                super().send_400_response(msg)  # type: ignore[misc]  # uvicorn's, behind this class
        self.transport.close()
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()

    def eof_received(self) -> Any:
        return None if self._address is None else super().eof_received()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._writes = self.loop.call_later(self.limits.write_timeout, self._check_writes)

    def resume_writing(self) -> None:
        if self._writes is not None:
            self._writes.cancel()
            self._writes = None
        super().resume_writing()

    @property
    def _in_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.limits.header_timeout, self._no_head)

    def _no_head(self) -> None:
        self._head = None
        if not self._in_request and not self.transport.is_closing():
            self.transport.abort()

    def _check_writes(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent >= self._unsent:
            self.transport.abort()
            return
        self._unsent = unsent
        self._writes = self.loop.call_later(self.limits.write_timeout, self._check_writes)


def limited_protocol(limits: ConnectionLimits, *, strict: bool = True) -> type[asyncio.Protocol]:
    """Uvicorn's HTTP protocol with limits.

    Parameters
    ----------
    limits
        The limits on what clients may take.
    strict
        Whether to read requests with h11, which refuses all that is not well formed. False: with httptools, if it is
        installed, at less cost; for servers that pass nothing on.
    """
    protocol: Any = H11Protocol if strict else AutoHTTPProtocol
    shared = {"limits": limits, "clients": Counter[str](), "known": {}}
    return type("LimitedConnection", (_LimitedConnection, protocol), shared)


class Admission:
    """Counts the requests that run: `most` at one time, and `most_per_client` of them from one address."""

    def __init__(self, most: int, most_per_client: int) -> None:
        self._most = most
        self._most_per_client = most_per_client
        self._running: Counter[str] = Counter()

    @contextmanager
    def admitted(self, address: str) -> Iterator[None]:
        """Count a request of this address as running while the block runs.

        Raises
        ------
        ApiError
            There are too many: 503, or 429 where they are those of one client.
        """
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

    def __init__(self, app: Any, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
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


P = ParamSpec("P")
T = TypeVar("T")


class Busy(Exception):
    """The error of work that was refused since the queue is full."""


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

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do some work in a thread.

        Raises
        ------
        Busy
            Too much is waiting.
        """
        if self._taken >= self._most:
            raise Busy
        if self._limiter is None:  # it belongs to the event loop that it is made in
            self._limiter = anyio.CapacityLimiter(self._threads)
        self._taken += 1
        try:
            with self._watched():
                return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs), limiter=self._limiter)
        finally:
            self._taken -= 1
