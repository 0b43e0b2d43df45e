"""What protects a server: how much clients may take of it, and who may call it.

Clients may take so many connections, so long for their heads, so many requests at one time, so much work off the event
loop. Callers are known by the names that the server answers to, the pages that may use it, and its token. A page of
another site can make a browser send requests to a server on its own machine, under the server's name or, by a name of
its own that points there, under that. Such requests carry a foreign `Origin` or `Host`.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeAlias, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from semtoken.errors import SemtokenError
from semtoken.support.extras import require
from semtoken.support.files.safe_files import parse_json
from semtoken.web.wire import ApiError

require("uvicorn", extra="serve")

from h11 import LocalProtocolError  # noqa: E402
from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: E402
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402

HEAD_BYTES = 65_536
"""Most bytes of a request's head; h11 has a shorter limit of its own."""
STILL_THERE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""An interim response, which every client of HTTP/1.1 skips, sent to one that has closed its sending half before the
answer begins: the system of one that has left altogether refuses it, and the next write fails."""
LOOK_FIRST, LOOK_AGAIN = 0.5, 10.0
"""Seconds from the first of these to the second, and between later ones."""
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
        # One file for the client, and one for the upstream.
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
    _half_closed: asyncio.TimerHandle | None = None
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
            idle = (
                connection
                for connection in self.known
                if not connection._in_request and (not same or connection._address == address)
            )
            if full:
                # `known` is in the order of the last bytes, so that the first idle one has been silent for longest.
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
        for timer in (self._head, self._writes, self._half_closed):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # It was closed to make room, and what still arrives is of no use.
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

    def eof_received(self) -> bool:
        """Whether the connection stays open: until its answer is complete, if the client has sent a whole request."""
        if self._address is None or not self._in_request or self.cycle.more_body:
            return False
        self._look_for_client(LOOK_FIRST)
        return True

    def _look_for_client(self, again: float) -> None:
        if self.transport.is_closing():
            return
        if self._in_request and not self.cycle.response_started and self.cycle.scope["http_version"] != "1.0":
            self.transport.write(STILL_THERE)
        self._half_closed = self.loop.call_later(again, self._look_for_client, LOOK_AGAIN)

    def on_response_complete(self) -> None:
        super().on_response_complete()  # type: ignore[misc]  # uvicorn's, behind this class
        if self._half_closed is not None and not self._in_request:
            self.transport.close()  # nothing more can come

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
    """Uvicorn's HTTP protocol with limits on what clients may take.

    `strict`: h11 reads requests, which refuses all that is not well formed, else httptools, at less cost, where it is
    installed; for servers that pass nothing on.
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
        """Do some work in a thread; `Busy` if too much is waiting."""
        # Refused at once rather than queued without end: whoever waits too long has left by then.
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


Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Any]

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
ANY = "*"


class HostGuard:
    """An ASGI application in front of another one, which sees only requests under allowed names, and from pages of
    these hosts or of allowed origins; "*" allows all.
    """

    def __init__(self, app: App, hosts: Sequence[str], origins: Sequence[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] == "http" and (refused := self._refusal(scope)) is not None:
            await refused.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Message) -> ApiError | None:
        hosts, origins = (
            [value.decode("latin-1") for key, value in scope["headers"] if key == name] for name in (b"host", b"origin")
        )
        foreign = [host for host in hosts if host and host_name(host) not in self._hosts]
        if ANY not in self._hosts and foreign:
            return ApiError(403, f"This server does not answer to the name {foreign[0][:100]!r}.", code="foreign_host")
        if not all(self._may_call(origin.lower(), hosts[0] if hosts else "") for origin in origins):
            return ApiError(403, "This server takes no requests from pages of other sites.", code="foreign_origin")
        return None

    def _may_call(self, origin: str, host: str) -> bool:
        if ANY in self._origins or origin in self._origins:
            return True
        scheme, _, address = origin.partition("://")
        name = host_name(address)
        return bool(scheme and name) and (name in self._hosts or name == host_name(host))


def host_name(host: str) -> str:
    """The name in a `Host` header without the port; "" for a missing or malformed header."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and parts.username is None and (parts.port or 0) >= 0  # asking checks the port
        return (parts.hostname or "").lower() if whole else ""
    except ValueError:
        return ""


def hosts_for(bound_to: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """The names that a server answers to: this machine's own and the allowed ones. If none is allowed, and other
    machines can reach the server, it answers to any ("*").
    """
    if allowed:
        return (*LOOPBACK_HOSTS, *allowed)
    return LOOPBACK_HOSTS if bound_to in LOOPBACK_HOSTS or bound_to.startswith("127.") else (ANY,)


HOW = "Set SEMTOKEN_TOKEN where the server starts, and send it as `Authorization: Bearer TOKEN`."


@dataclass(frozen=True)
class Gate:
    """The rule that says which requests a server answers, by their token and origin."""

    token: str | None = field(default=None, repr=False)
    """The token that requests must carry. None: requests pass only from this machine, and only if `loopback_only`."""
    loopback_only: bool = False
    """Whether the server answers to names of this machine only, so that no other one can reach it."""

    def check(self, scope: Mapping[str, Any], *, writes: bool = False, needs_token: bool = False) -> None:
        """Raise `ApiError` (401 or 403, with what to do) for a request that the rule refuses, by its ASGI scope.

        One that `writes` a browser may send for this server's own page only. `needs_token`: being on this machine is
        not enough.
        """
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        has_token = self._has_token(headers.get("authorization", ""))
        if not has_token and (self.token is not None or needs_token):
            raise ApiError(401, f"This needs the server's token. {HOW}", code="token_needed")
        client = scope.get("client")
        here = self.loopback_only and client is not None and client[0] in LOOPBACK_HOSTS
        if not has_token and not here:
            raise ApiError(403, f"Other machines may see the journal only with a token. {HOW}", code="token_needed")
        if writes:
            _check_origin(headers, has_token=has_token)

    def _has_token(self, authorization: str) -> bool:
        kind, _, given = authorization.partition(" ")
        if self.token is None or kind.lower() != "bearer":
            return False
        # In constant time: how long a comparison takes must not tell how much of a token is right.
        return hmac.compare_digest(given.strip().encode(), self.token.encode())


def _check_origin(headers: Mapping[str, str], *, has_token: bool) -> None:
    """Refuse what a browser sends for a page that is not this server's own."""
    origin, host = headers.get("origin"), headers.get("host", "")
    # Browsers set this field themselves, and no page can change it.
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ApiError(403, "Only this server's own page may write.", code="foreign_origin")
    if origin is None and has_token:
        return  # a program, no browser
    if not host or origin not in (f"http://{host}", f"https://{host}"):
        raise ApiError(403, "Only this server's own page may write; programs need the token.", code="foreign_origin")


LONGEST_BODY = 2**14
SECONDS_FOR_BODY = 30.0
NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


async def answer_guarded(
    request: Request, gate: Gate, work: Callable[[dict[str, Any]], dict[str, Any]], *, needs_token: bool = False
) -> Response:
    """Answer a request in a thread if the gate lets it pass, else with an error.

    `work` takes the JSON object of a POST request and makes that of the reply; its `SemtokenError` has status 400.
    """
    writes = request.method == "POST"
    try:
        gate.check(request.scope, writes=writes, needs_token=needs_token)
        body = await _body(request) if writes else {}
        return JSONResponse(await anyio.to_thread.run_sync(work, body), headers=NO_STORE)
    except ApiError as error:
        return error.response()
    except SemtokenError as error:
        return ApiError(400, str(error)).response()


async def _body(request: Request) -> dict[str, Any]:
    if "application/json" not in request.headers.get("content-type", ""):
        raise ApiError(415, "Send JSON (Content-Type: application/json).")
    raw = b""
    try:
        with anyio.fail_after(SECONDS_FOR_BODY):
            async for piece in request.stream():
                raw += piece
                if len(raw) > LONGEST_BODY:
                    raise ApiError(413, f"The request is larger than {LONGEST_BODY:,} bytes.")
        body = parse_json(raw)
    except TimeoutError as error:
        raise ApiError(408, "The body of the request took too long.", code="body_timeout") from error
    except ClientDisconnect as error:
        raise ApiError(499, "The client left.") from error
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "The body of the request is not JSON.") from error
    if not isinstance(body, dict):
        raise ApiError(400, "The body of the request must be a JSON object.")
    return body
