"""The client of the proxy: its request, read within limits, and the answer written to it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from semtoken.decisions.wire.shapes import question_shape_at
from semtoken.replies.formats import shape_at
from semtoken.web.incoming import read_body, until_gone
from semtoken.web.proxy.upstream import Headers
from semtoken.web.wire import ApiError, failure_of

PIECE = 2**16
"""Most bytes that a client is sent at one time."""


class Client:
    """One request of a client, as ASGI gives it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        """True if the answer is complete."""

    @property
    def target(self) -> bytes:
        """Path and query as the client spelled them."""
        path: bytes = self.scope.get("raw_path") or self.scope["path"].encode()
        query: bytes = self.scope.get("query_string", b"")
        return path + (b"?" + query if query else b"")

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, None if it is not there."""
        return next((value for key, value in self.headers if key == name), None)

    async def body(self, limit: int, seconds: float) -> bytes:
        """The whole body; `ApiError` if it is longer than `limit` bytes (413) or takes too long (408), `ClientGone` if
        the client left.
        """
        declared = self.header(b"content-length")
        # Refused before a byte of it is read.
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        return await read_body(self._receive, limit, seconds, refusal=_too_large)

    def until_gone(self) -> AbstractContextManager[None]:
        """Cancel what is in the block once the client closes the connection: `ClientGone`, unless it was answered."""
        return until_gone(self._receive, lambda: self.ended)

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


def _too_large(limit: int) -> ApiError:
    message = f"The request is larger than the {limit:,} bytes that this proxy takes."
    return ApiError(413, message, code="request_too_large")
