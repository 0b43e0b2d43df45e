"""An upstream on loopback that keeps connections open, and clients that ask together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import aiohttp

from tests.web.servers import Received, read_request

T = TypeVar("T")
Answering = Callable[[Received, asyncio.StreamWriter], Awaitable[bool]]
"""Writes the answer to a request, and says whether the connection goes on."""


@contextmanager
def listening(answer: Answering) -> Iterator[str]:
    """A server in a thread; yields its address."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    address: list[str] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await answer(await read_request(reader), writer):
                await writer.drain()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=2**22)
        address.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        ready.set()
        await asyncio.Event().wait()

    def run() -> None:
        asyncio.set_event_loop(loop)
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)

    serving = loop.create_task(serve())
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(10)


async def asked_together(
    asking: Callable[[aiohttp.ClientSession, int], Awaitable[T]], numbers: Iterable[int], at_once: int, seconds: float
) -> dict[int, T]:
    """The results of requests by their numbers, so many at one time, each with so many seconds."""
    left, found = iter(numbers), {}

    async def client(http: aiohttp.ClientSession) -> None:
        for number in left:
            found[number] = await asking(http, number)

    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(client(http) for _ in range(at_once)))
    return found
