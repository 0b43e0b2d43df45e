"""Requests to the upstream: headers that travel on, timeouts, and what a failure is called."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TypeAlias

import httpx

from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.wire import ApiError

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade"}
)
IDLE_SECONDS = 2.0  # most servers close idle connections after five seconds; a request must not meet one that closes
PROBE_SECONDS = 2.0
ATTEMPTS = 5  # to send a request on connections that were open before


@dataclass(frozen=True)
class Request:
    """A request to the upstream."""

    method: str
    target: bytes
    """Path and query, byte for byte."""
    headers: Headers
    body: bytes


class Upstream:
    """The server behind the proxy."""

    def __init__(self, settings: ProxySettings) -> None:
        self.base = httpx.URL(settings.base)
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(settings.read_timeout, connect=settings.connect_timeout),
            limits=httpx.Limits(
                max_connections=settings.max_connections,
                max_keepalive_connections=settings.max_connections,
                keepalive_expiry=IDLE_SECONDS,
            ),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # cookies are the clients' business
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(self, stack: AsyncExitStack, request: Request) -> httpx.Response:
        """Send a request; returns when the head of the answer is there. The stack closes the answer.

        Raises
        ------
        ApiError
            There is no answer: 502, 503 or 504, with the reason.
        """
        for attempt in range(ATTEMPTS):
            connecting: list[str] = []
            try:
                response = await self._client.send(self._prepared(request, connecting), stream=True)
                break
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
                if connecting or attempt == ATTEMPTS - 1:
                    raise failure(error) from error
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise failure(error) from error
        stack.push_async_callback(response.aclose)
        return response

    def _prepared(self, request: Request, connecting: list[str]) -> httpx.Request:
        """The request for the client; `connecting` gets an entry if it opens a connection of its own.

        On a connection that was open before, no answer at all means that the server had just closed it.
        """

        async def trace(name: str, _: object) -> None:
            if name == "connection.connect_tcp.started":
                connecting.append(name)

        target = self.base.raw_path.rstrip(b"/") + request.target
        return httpx.Request(
            request.method,
            self.base,
            headers=list(request.headers),
            content=request.body,
            extensions={"target": target, "trace": trace},
        )

    async def answers(self) -> int | None:
        """The status with which the upstream answers a request for its models, None if it does not answer."""
        try:
            url = self.base.copy_with(path=f"{self.base.path.rstrip('/')}/v1/models")
            return (await self._client.get(url, timeout=PROBE_SECONDS)).status_code
        except httpx.HTTPError:
            return None


def failure(error: Exception) -> ApiError:
    """What a client is told when no answer came. The message names no address: it may hold keys."""
    if isinstance(error, httpx.PoolTimeout):
        return _failure(503, "overloaded", "The proxy has no connection with the upstream left. Try again later.")
    if isinstance(error, httpx.ConnectTimeout):
        return _failure(504, "upstream_timeout", "The upstream did not take the connection in time.")
    if isinstance(error, httpx.TimeoutException):
        return _failure(504, "upstream_timeout", "The upstream did not answer in time.")
    if isinstance(error, httpx.ConnectError):
        return _failure(502, "upstream_unreachable", "The upstream cannot be reached. Is it running?")
    return _failure(502, "upstream_broken", f"The upstream gave no valid HTTP answer ({type(error).__name__}).")


def _failure(status: int, code: str, message: str) -> ApiError:
    return ApiError(status, message, kind="upstream_error", code=code)


def forwarded(headers: Headers, *without: bytes) -> list[tuple[bytes, bytes]]:
    """The headers that travel on, in order: not those of this connection, and not those named."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    dropped = HOP_BY_HOP | named | set(without)
    return [(name, value) for name, value in headers if name.lower() not in dropped]
