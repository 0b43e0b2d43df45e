"""Both ends of an exchange: the client's request and the answer written to it, and requests to the upstream.

A request is read within limits, and sent to the upstream once, with timeouts; a failure has a name. What the upstream
answers is unpacked. aiohttp's client carries the requests. httpx's pool looks through all connections and waiting
requests at every request: with 150 clients it passed 170 requests a second on with a 99th percentile of 6 s where
aiohttp passed 1,840 with 0.2 s.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import aiohttp
import anyio
from starlette.responses import Response
from yarl import URL

from semtoken.decisions.wire.shapes import question_shape_at
from semtoken.replies.formats import shape_at
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.wire import ApiError, failure_of

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade"}
)
IDLE_SECONDS = 2.0  # most servers close idle connections after five seconds; a request must not meet one that closes
PROBE_SECONDS = 2.0
STATUSES = range(200, 600)  # of an answer, as HTTP has them
LONGEST_HEADER = 2**16
AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # that aiohttp would add


class BrokenOff(Exception):
    """The error that the upstream broke off its answer, or was silent for too long (`stalled`)."""

    def __init__(self, *, stalled: bool) -> None:
        super().__init__("stalled" if stalled else "broken off")
        self.stalled = stalled
        self.came = b""
        """The bytes that had come before, where the whole body was waited for."""


@dataclass(frozen=True)
class Request:
    """A request to the upstream."""

    method: str
    target: bytes
    """Path and query, byte for byte."""
    headers: Headers
    body: bytes


class UpstreamAnswer:
    """An answer of the upstream of which status and headers have arrived; the rest may be `BrokenOff`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Headers = response.raw_headers
        self._response = response
        self._begun: list[bytes] = []

    def header(self, name: str) -> str:
        """The value of a header in lower case, "" if it is not there."""
        return str(self._response.headers.get(name, "")).strip().lower()

    @property
    def kind(self) -> str:
        """The media type of the reply."""
        return self.header("content-type").partition(";")[0].strip()

    @property
    def encoding(self) -> str:
        """The compression of the body; "identity" for none."""
        return self.header("content-encoding") or "identity"

    async def beginning(self, limit: int) -> bytes:
        """The first bytes of the body, `limit` and at most a piece more; `piece` returns them again."""
        size = sum(map(len, self._begun))
        while size <= limit and (piece := await self._read()):
            self._begun.append(piece)
            size += len(piece)
        return b"".join(self._begun)

    async def piece(self) -> bytes:
        """The next piece of the body as it was sent; b"" at the end. It can be canceled without loss."""
        return self._begun.pop(0) if self._begun else await self._read()

    async def whole(self, limit: int) -> bytes:
        """The whole body, or the first bytes if it is longer than `limit`; `piece` then returns the rest."""
        raw = bytearray()
        try:
            while len(raw) <= limit and (piece := await self.piece()):
                raw += piece
        except BrokenOff as error:
            error.came = bytes(raw)
            raise
        return bytes(raw)

    async def _read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except TimeoutError as error:
            raise BrokenOff(stalled=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenOff(stalled=False) from error


class Upstream:
    """The server behind the proxy. A request is sent only once: a failed one may have been processed."""

    def __init__(self, settings: ProxySettings) -> None:
        parts = urlsplit(settings.base)
        user, _, host = parts.netloc.rpartition("@")
        self._base = f"{parts.scheme}://{host}"
        self._prefix = parts.path.encode("ascii", "strict") if parts.path.isascii() else parts.path.encode()
        self._key = b"Basic " + base64.b64encode(unquote(user).encode()) if user else None
        self._settings = settings
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    def _session(self, *, fresh: bool) -> aiohttp.ClientSession:
        """The client, and one whose connections carry one request each."""
        if fresh not in self._sessions:  # they belong to the event loop that they are made in
            settings = self._settings
            idle = {"force_close": True} if fresh else {"keepalive_timeout": IDLE_SECONDS}
            self._sessions[fresh] = aiohttp.ClientSession(
                # How many requests run is limited where they come in (`Admission`); a second limit here would make them
                # wait unseen.
                connector=aiohttp.TCPConnector(limit=0, **idle),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=settings.connect_timeout, sock_read=settings.read_timeout
                ),
                cookie_jar=aiohttp.DummyCookieJar(),  # cookies are the clients' business
                skip_auto_headers=AUTO_HEADERS,
                # A body is passed on as it came, byte for byte.
                auto_decompress=False,
                # Nothing but the settings says where requests go, not even HTTP_PROXY.
                trust_env=False,
                max_line_size=LONGEST_HEADER,
                max_field_size=LONGEST_HEADER,
            )
        return self._sessions[fresh]

    async def aclose(self) -> None:
        """Close all connections to the upstream."""
        for session in self._sessions.values():
            await session.close()

    async def send(self, stack: AsyncExitStack, request: Request, *, fresh: bool = False) -> UpstreamAnswer:
        """Send a request; returns when the head of the answer is there. The stack closes the answer.

        `fresh`: over a connection of its own, which the upstream cannot be just closing. `ApiError` (502, 504) if no
        answer comes.
        """
        headers = [(_text(name), _text(value)) for name, value in request.headers]
        # A client's own key goes first: the one in the address is for clients that have none.
        if self._key is not None and not any(name.lower() == "authorization" for name, _ in headers):
            headers.append(("Authorization", self._key.decode()))
        try:
            # Already encoded by the client: encoding it again would change what the upstream reads.
            url = URL(self._base + _text(self._prefix + request.target), encoded=True)
            response = await self._session(fresh=fresh).request(
                request.method, url, headers=headers, data=request.body or None, allow_redirects=False
            )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise failure(error) from error
        # Closed, so that the upstream stops writing an answer that its client no longer waits for.
        stack.callback(response.close)
        if response.status not in STATUSES:
            raise _failure(502, "upstream_broken", f"The upstream answered with the status {response.status}.")
        return UpstreamAnswer(response)

    async def answers(self) -> int | None:
        """The status with which the upstream answers a request for its models, None if it does not answer."""
        try:
            url = URL(self._base + _text(self._prefix) + "/v1/models", encoded=True)
            timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
            async with self._session(fresh=True).get(url, timeout=timeout, allow_redirects=False) as response:
                return response.status
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
            return None


def _text(value: bytes) -> str:
    """A header or target as aiohttp takes it: it encodes with UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def failure(error: BaseException) -> ApiError:
    """The error for a client if no answer came. The message names no address, which may hold keys."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return _failure(504, "upstream_timeout", "The upstream did not take the connection in time.")
    if isinstance(error, asyncio.TimeoutError) or (isinstance(error, BrokenOff) and error.stalled):
        return _failure(504, "upstream_timeout", "The upstream did not answer in time.")
    if isinstance(error, aiohttp.ClientConnectorError):
        return _failure(502, "upstream_unreachable", "The upstream cannot be reached. Is it running?")
    return _failure(502, "upstream_broken", f"The upstream gave no valid HTTP answer ({type(error).__name__}).")


def _failure(status: int, code: str, message: str) -> ApiError:
    return ApiError(status, message, kind="upstream_error", code=code)


def forwarded_headers(headers: Headers, *without: bytes) -> list[tuple[bytes, bytes]]:
    """The headers that are passed on, in order, without those of the connection and those named here."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    dropped = HOP_BY_HOP | named | set(without)
    return [(name, value) for name, value in headers if name.lower() not in dropped]


UNPACKED = 2**12
"""Most bytes of a piece of an unpacked stream: they may be hundreds of events, and others wait while they are read."""


def unpacked(raw: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body, which came compressed although that was not asked for.

    `ValueError` or `zlib.error` if it is compressed in another way, damaged, or larger than `limit` bytes.
    """
    if encoding == "identity":
        return raw
    unpacking = _unpacking(encoding)
    unpacked: bytes = unpacking.decompress(raw, limit)
    if not unpacking.eof:
        raise ValueError("too long, or cut off")
    return unpacked


def _unpacking(encoding: str) -> Any:
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"unknown encoding {encoding}")
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip and zlib, whichever it is


class UnpackedBody:
    """The body of an answer without its compression, piece by piece, `limit` bytes at most if it came compressed."""

    def __init__(self, answer: UpstreamAnswer, limit: int) -> None:
        self.too_large = False
        self._answer = answer
        self._left = limit
        self._unpacking = None if answer.encoding == "identity" else _unpacking(answer.encoding)
        self._rest = b""

    async def piece(self) -> bytes:
        """The next piece; b"" at the end. `BrokenOff` also if it cannot be unpacked, or is `too_large`."""
        if self._unpacking is None:
            return await self._answer.piece()
        while True:
            if self._rest:
                await asyncio.sleep(0)  # a few bytes may unpack to many pieces: others have their turn between them
            else:
                self._rest = await self._answer.piece()
            if not self._rest:
                if not self._unpacking.eof:
                    raise BrokenOff(stalled=False)
                return b""
            try:
                chunk: bytes = self._unpacking.decompress(self._rest, UNPACKED)
            except zlib.error as error:
                raise BrokenOff(stalled=False) from error
            self._rest = self._unpacking.unconsumed_tail
            self._left -= len(chunk)
            self.too_large = self._left < 0
            if self.too_large:
                raise BrokenOff(stalled=False)
            if chunk:
                return chunk


async def can_be_unpacked(answer: UpstreamAnswer) -> bool:
    """Whether a compressed stream, which was not asked for, can be decompressed."""
    if answer.encoding == "identity":
        return True
    try:
        _unpacking(answer.encoding).decompress(await answer.beginning(0), 1)
    except (ValueError, zlib.error):
        return False
    return True


Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
PIECE = 2**16
"""Most bytes that a client is sent at one time."""


class ClientGone(Exception):
    """The error that the client has closed the connection before its request was complete."""


class Client:
    """One request of a client, as ASGI gives it."""

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method, self.path = str(scope["method"]), str(scope["path"])
        """The HTTP method, and the path decoded."""
        self.headers: Headers = scope["headers"]
        """The headers of the request, in order."""
        peer = scope.get("client")
        self.address = str(peer[0]) if peer else ""
        """The client's address; empty where it is not known."""
        posted = self.method == "POST"
        self.shape = shape_at(self.path) if posted else None
        """The API that the client asks for an answer that can be scored; None for any other request."""
        self.asked_in = question_shape_at(self.path) if posted and self.shape is None else None
        """The shape in which the client asks typed questions; None for any other request."""
        self._receive = receive
        self._send = send
        self.status: int | None = None
        """The status of the answer, once it has begun."""
        self.ended = False
        """Whether the answer is complete."""

    @property
    def target(self) -> bytes:
        """Path and query as the client spelled them."""
        path: bytes = self.scope.get("raw_path") or self.scope["path"].encode()
        query: bytes = self.scope.get("query_string", b"")
        return path + (b"?" + query if query else b"")

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, None if it is not there."""
        return next((value for key, value in self.headers if key == name), None)

    async def body(self, limit: int) -> bytes:
        """The whole body; `ApiError` (413) if it is longer than `limit` bytes, `ClientGone` if the client left."""
        declared = self.header(b"content-length")
        # Refused before a byte of it is read.
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise too_large(limit)
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message.get("body", b"")
            if len(body) > limit:
                raise too_large(limit)
            if not message.get("more_body", False):
                return bytes(body)

    @contextmanager
    def until_gone(self) -> Iterator[None]:
        """Cancel what is in the block once the client closes the connection, after its body was read.

        Then it raises `ClientGone`, unless the answer was complete.
        """
        with anyio.CancelScope() as scope:

            def leave(_: object) -> None:
                if not self.ended:
                    scope.cancel()

            watch = asyncio.ensure_future(self._wait_until_gone())
            watch.add_done_callback(leave)
            try:
                yield
            finally:
                watch.remove_done_callback(leave)
                watch.cancel()
        if scope.cancel_called:
            raise ClientGone

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the head of the answer."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, piece: bytes) -> None:
        """Send more of the body, at most `PIECE` bytes at a time, waiting for a slow client."""
        for at in range(0, len(piece), PIECE):
            await self._send({"type": "http.response.body", "body": piece[at : at + PIECE], "more_body": True})

    async def end(self) -> None:
        """Complete the body. Without this the connection breaks off, which shows the client that something failed."""
        self.ended = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def respond(self, response: Response) -> None:
        """Give an answer of the proxy's own."""
        self.status, self.ended = response.status_code, True
        await response(self.scope, self._receive, self._send)

    async def fail(self, error: ApiError) -> None:
        """Answer with an error of the proxy's own, in the shape of what was asked for, unless an answer has begun."""
        if self.status is not None:
            return
        shape = question_shape_at(self.path)  # whatever the method
        await self.respond(error.response() if shape is None else failure_of(shape, error))


def too_large(limit: int) -> ApiError:
    """The answer to a request of too many bytes."""
    return ApiError(
        413, f"The request is larger than the {limit:,} bytes that this proxy takes.", code="request_too_large"
    )
