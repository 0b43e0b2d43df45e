"""Real servers on loopback for the tests: an ASGI application, and an upstream that sends any bytes it likes."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from semtoken.web.running import address_of, listen, server_for
from tests.replies import made

MANY = 1024
"""Connections that may wait to be taken, as with engines. With asyncio's hundred, most of some hundreds that a busy
machine takes late are tried again after 1, 3, 7 seconds, which is longer than clients wait for a connection.
"""
_stopping: list[tuple[threading.Thread, socket.socket]] = []
"""Servers that were told to stop and not waited for, the first one first."""


@contextmanager
def running(
    app: Any, grace: float = 1.0, *, wait: bool = True, listener: socket.socket | None = None, **options: Any
) -> Iterator[str]:
    """An ASGI application on a free port, or where somebody listens already; yields its address.

    `options` are those of `server_for`.

    To stop takes uvicorn a sixth of a second, in which it sleeps. Without `wait` that time is spent on the next tests,
    where nothing is asked of the end of a server; `all_stopped` waits for those that are left.
    """
    listener = listener or listen("127.0.0.1", 0)
    server = server_for(app, grace=grace, **options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield address_of(listener).url
    finally:
        server.should_exit = True
        _stopping.append((thread, listener))
        all_stopped(0 if wait else 4)


@contextmanager
def commanded(*words: object) -> Iterator[tuple[str, str]]:
    """`semtoken proxy` or `semtoken serve` with these words, in this process: its address, and what it said.

    Everything is as in a process of its own, but for signals, and that is two seconds of imports.
    """
    from tests.cli.run import invoke

    kept: list[tuple[Any, socket.socket, dict[str, Any]]] = []

    def keep(app: Any, listener: socket.socket, ready: Callable[[Any], None], **options: Any) -> None:
        kept.append((app, listener, options))
        ready(address_of(listener))

    hangup = getattr(signal, "SIGHUP", None)  # which Windows lacks
    handler = None if hangup is None else signal.getsignal(hangup)
    with patch("semtoken.web.running.run", keep):
        done = invoke([*words, "--port", 0])
    assert kept, done.output
    [(app, listener, options)] = kept
    try:
        with running(app, options["grace"], strict=options.get("strict", True), listener=listener) as url:
            yield url, done.output
    finally:
        if hangup is not None:
            signal.signal(hangup, handler)


def all_stopped(but: int = 0) -> None:
    """Wait for the servers that were told to stop, but for the last few."""
    while len(_stopping) > but:
        thread, listener = _stopping.pop(0)
        thread.join(20)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


@dataclass(frozen=True)
class Received:
    """A request as it came in, byte for byte."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n")[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.split(b"\r\n")[1:]
        return [(k.lower(), v.strip()) for k, _, v in (line.partition(b":") for line in lines) if k]

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)

    def json(self) -> Any:
        return json.loads(self.body)


Behavior = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Upstream:
    """The requests that a `raw_upstream` has seen."""

    url: str = ""
    requests: list[Received] = field(default_factory=list)
    open: int = 0
    """Connections that are open now."""
    gone: int = 0
    """Connections that the proxy closed while an answer was being written."""


async def read_request(reader: asyncio.StreamReader) -> Received:
    """The next request of a connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    received = Received(head[:-4], b"")
    length = int(received.header(b"content-length") or 0)
    return Received(received.head, await reader.readexactly(length))


@contextmanager
def raw_upstream(behavior: Behavior | bytes) -> Iterator[Upstream]:
    """A server that reads a request and lets `behavior` write whatever it wants, or answers with the same bytes; one
    request a connection."""
    behave = answering(behavior) if isinstance(behavior, bytes) else behavior
    seen = Upstream()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready = threading.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.open += 1
        try:
            received = await read_request(reader)
            seen.requests.append(received)
            writing = asyncio.ensure_future(behave(received, writer))
            leaving = asyncio.ensure_future(reader.read(1))
            done, _ = await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if writing not in done:
                seen.gone += 1
            for task in (writing, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await task
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            seen.open -= 1
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(converse, "127.0.0.1", 0, backlog=MANY)
        seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await stop.wait()
        server.close()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield seen
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


LAST = b"Connection: close"
"""Says that the server closes the connection, which a proxy on a busy machine may else see too late."""


def response(
    body: bytes, *headers: bytes, status: bytes = b"200 OK", kind: bytes = b"application/json", last: bytes = LAST
) -> bytes:
    """A complete HTTP answer, after which the connection ends."""
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Type: " + kind, length, last, *headers, b"", body])


def said(value: Any, status: bytes = b"200 OK") -> bytes:
    """A complete answer in JSON."""
    return response(json.dumps(value, ensure_ascii=False).encode(), status=status)


def stream_head(*headers: bytes, kind: bytes = b"text/event-stream") -> bytes:
    """The head of an answer in chunks."""
    lines = (b"HTTP/1.1 200 OK", b"Content-Type: " + kind, b"Transfer-Encoding: chunked", LAST, *headers)
    return b"\r\n".join([*lines, b"", b""])


def chunk(data: bytes) -> bytes:
    """A chunk of such an answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def streamed(body: bytes, *headers: bytes, size: int = 5000) -> bytes:
    """A complete answer of events, in chunks of a size."""
    chunks = (chunk(body[at : at + size]) for at in range(0, len(body), size))
    return b"".join([stream_head(*headers), *chunks, LAST_CHUNK])


def answering(data: bytes | Callable[[Received], bytes]) -> Behavior:
    """Write the same bytes to everyone, or those that a request is to get."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(data if isinstance(data, bytes) else data(received))
        await writer.drain()

    return behave


async def silent(_: Received, writer: asyncio.StreamWriter) -> None:
    """Read the request, and write nothing."""
    await asyncio.sleep(300)


async def ticking(_: Received, writer: asyncio.StreamWriter) -> None:
    """Begin a stream of comments, which never ends."""
    writer.write(stream_head())
    while True:
        writer.write(chunk(b": tick\n\n"))
        await writer.drain()
        await asyncio.sleep(0.02)


def holding(release: threading.Event, data: bytes, begun: bytes = b"") -> Behavior:
    """Write the beginning of an answer at once, and the rest when it is released."""

    async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await writer.drain()
        while not release.is_set():
            await asyncio.sleep(0.01)
        writer.write(data)
        await writer.drain()

    return behave


def events(*values: Any, done: bool = True) -> bytes:
    """A stream of server-sent events that hold these values as JSON, and the mark of its end."""
    return made.events(*values, done=done).encode()


def connected(url: str) -> socket.socket:
    """A client's end of a connection."""
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port or 80), timeout=20)


def posted(
    path: str, body: bytes, *lines: str, length: int | None = None, version: str = "1.1", host: str = "localhost"
) -> bytes:
    """The bytes of a POST with further lines in its head, which may promise another length than it has."""
    n = len(body) if length is None else length
    head = [f"POST {path} HTTP/{version}", f"Host: {host}", f"Content-Length: {n}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    """Wait for what is to come true, and fail if it does not."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)
