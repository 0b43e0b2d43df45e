"""Limits on connections: how many of them clients may have, and how long they may take for a request and an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from semtoken.support.extras import require

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
    """The number of connections and the time that clients may take."""

    connections: int = 4000
    """Most connections at one time. For one more, the one that has been idle for longest is closed; if all of them are
    in the middle of a request, the new one is."""
    per_client: int = 2000
    """The most connections that may come from one address."""
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
    """The number of files that this process may open, after the limit is raised as far as the system allows."""
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
        """Return True if there is room for one more connection, if need be that of an idle one."""
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
        """True if the connection stays open: until its answer is complete, if the client has sent a whole request."""
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
