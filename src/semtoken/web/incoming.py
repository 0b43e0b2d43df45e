"""Requests as they come in: a body within limits of size and time, and clients who leave before they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
from starlette.types import Receive

from semtoken.web.wire import ApiError


class ClientGone(ApiError):
    """The error that the client has closed the connection, so that nobody sees the answer that is made of it."""

    def __init__(self) -> None:
        super().__init__(499, "The client left.")


def too_large(limit: int) -> ApiError:
    """The error for a request with a body of more than `limit` bytes."""
    return ApiError(413, f"The request is larger than {limit:,} bytes.", code="request_too_large")


async def read_body(
    receive: Receive,
    limit: int,
    seconds: float,
    *,
    refusal: Callable[[int], ApiError] = too_large,
    discarded: int = 0,
) -> bytes:
    """The whole body of a request; `ApiError` if it has more than `limit` bytes (413, or what `refusal` makes of the
    limit) or takes longer than `seconds` (408), `ClientGone` if it does not arrive.

    A body that is too large is read on to so many `discarded` bytes, so that its sender hears why it is refused.
    """
    body, size, more = bytearray(), 0, True
    try:
        with anyio.fail_after(seconds):
            while more and size <= max(limit, discarded):
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece = message.get("body", b"")
                size += len(piece)
                if size <= limit:
                    body += piece
                more = message.get("more_body", False)
    except TimeoutError:
        raise ApiError(408, "The body of the request took too long.", code="body_timeout") from None
    if size > limit:
        raise refusal(limit)
    return bytes(body)


@contextmanager
def until_gone(receive: Receive, is_answered: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Cancel what is in the block once the client closes the connection, after its body was read.

    Then it raises `ClientGone`, unless the answer was complete.
    """
    with anyio.CancelScope() as scope:

        def leave(_: object) -> None:
            if not is_answered():
                scope.cancel()

        watch = asyncio.ensure_future(_wait_until_gone(receive))
        watch.add_done_callback(leave)
        try:
            yield
        finally:
            watch.remove_done_callback(leave)
            watch.cancel()
    if scope.cancel_called:
        raise ClientGone


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
