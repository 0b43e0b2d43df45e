"""The server behind the proxy: requests to it, and its answers as they come.

A request is sent once, with timeouts; a failure has a name. aiohttp's client carries the requests. httpx's pool looks
through all connections and waiting requests at every request: with 150 clients it passed 170 requests a second on with
a 99th percentile of 6 s where aiohttp passed 1,840 with 0.2 s.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from semtoken.web.proxy.keys import KeyFilter, keys_of
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.wire import EVENT_STREAM, JSON_LINES, ApiError

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

IDLE_SECONDS = 2.0  # most servers close idle connections after five seconds; a request must not meet one that closes
PROBE_SECONDS = 2.0
STATUSES = range(200, 600)  # of an answer, as HTTP has them
LONGEST_HEADER = 2**16
LONGEST_MESSAGE = 2**16
HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade"}
)
"""The headers that belong to one connection only."""
AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # that aiohttp would add


def forwarded_headers(headers: Headers, *without: bytes) -> list[tuple[bytes, bytes]]:
    """The headers that are passed on, in order, without those of the connection and those named here."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    dropped = HOP_BY_HOP | named | set(without)
    return [(name, value) for name, value in headers if name.lower() not in dropped]


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
        self._filter: KeyFilter | None = None

    def hide(self, keys: Sequence[bytes]) -> None:
        """Make the keys of the request unreadable in the message of an error, unless it comes compressed."""
        if keys and self.encoding == "identity":
            self._filter = KeyFilter(keys)

    def header(self, name: str) -> str:
        """The value of a header in lower case, "" if it is not there."""
        return str(self._response.headers.get(name, "")).strip().lower()

    @property
    def kind(self) -> str:
        """The media type of the reply."""
        return self.header("content-type").partition(";")[0].strip()

    @property
    def is_stream(self) -> bool:
        """True if the answer comes in events."""
        return self.kind in (EVENT_STREAM, JSON_LINES)

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

    async def said(self) -> str:
        """The beginning of the body as text, enough for the message of an error; `piece` returns it again."""
        return (await self.beginning(LONGEST_MESSAGE)).decode("utf-8", "replace")

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
        """The next piece, without keys; of an answer that breaks off, what may have begun a key is not shown."""
        if self._filter is None:
            return await self._received()
        while piece := await self._received():
            if shown := self._filter.hidden(piece):
                return shown
        return self._filter.hidden(b"", last=True)

    async def _received(self) -> bytes:
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
            headers = [(name, value) for name, value in headers if name.lower() != "accept-encoding"]
            headers += [("Authorization", self._key.decode()), ("Accept-Encoding", "identity")]  # so `hide` can read it
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
        answer = UpstreamAnswer(response)
        if answer.status >= 400:
            answer.hide(keys_of(headers, url.raw_query_string))
        return answer

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
