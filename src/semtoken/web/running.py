"""Running an ASGI application with uvicorn: a socket of our own, a message once it is ready, an end in good order."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.support.extras import require

require("uvicorn", extra="serve")


import uvicorn  # noqa: E402
from uvicorn.supervisors.multiprocess import Multiprocess, Process  # noqa: E402

from semtoken.web.connections import ConnectionLimits, limited_protocol, open_files  # noqa: E402

BACKLOG = 128  # asyncio accepts so many at once; where no file is left it reports each of them
KEEP_ALIVE_SECONDS = 60  # clients drop idle connections after five seconds or so; they must not meet one that closes
SECONDS_TO_START = 120
SECONDS_BETWEEN_LOOKS = 0.5
"""Seconds between two looks whether a server that starts its processes has been sent a signal to stop."""
FRESH_OBJECTS = 50_000  # between two collections of garbage: a token has a hundred, and none is in a cycle
SECONDS_TO_STOP = 5
"""Seconds that a process has to stop, beyond the time that its running answers get."""
OF_WORKERS = "semtoken-figures-"
SHARED_FIGURES = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of Prometheus' client with the folder in which the processes of a server keep figures."""
BROKEN_OFF = "ASGI callable returned without completing response."


@dataclass(frozen=True)
class Address:
    """The address at which a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address for a browser or client."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free. `InvalidInputError` if there is none at this address."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        # Closed again if the address cannot be taken.
        with contextlib.ExitStack() as undo:
            undo.callback(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            undo.pop_all()
    except OSError as error:
        raise InvalidInputError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}. Choose another with --host and --port."
        ) from error
    return listener


def address_of(listener: socket.socket) -> Address:
    """The address at which a socket listens."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def server_for(
    app: Any,
    *,
    grace: float,
    limits: ConnectionLimits | None = None,
    strict: bool = True,
    ready: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """A server that adds no headers of its own and writes no log of requests, whose addresses may hold keys.

    Running answers have `grace` seconds to end after the signal to stop. `ready` is called once requests are taken. For
    `strict` see `limited_protocol`.
    """
    return _AnnouncingServer(_Config(lambda: app, limits or ConnectionLimits(), grace, strict=strict), ready)


class _Config(uvicorn.Config):
    """The settings of one server; the application is made in the process that serves it."""

    def __init__(
        self, make: Callable[[], Any], limits: ConnectionLimits, grace: float, workers: int = 1, *, strict: bool = True
    ) -> None:
        super().__init__(
            "semtoken",
            workers=workers,
            backlog=BACKLOG,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(grace)),
        )
        self._make = make
        self._limits = limits
        self._strict = strict

    def load(self) -> None:
        """Make the application, and what serves it."""
        if self.workers > 1:
            threading.Thread(target=_end_with_parent, args=(self.timeout_graceful_shutdown,), daemon=True).start()
        without_storms()
        logging.getLogger("uvicorn.error").addFilter(_is_no_broken_off_answer)
        self.app = self._make()
        self.http = limited_protocol(self._limits.within(open_files()), strict=self._strict)
        super().load()


def _end_with_parent(grace: float) -> None:
    """Wait in one of several processes for the end of the one that started it, and end then, after the grace."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()  # by a pipe that the system closes, however the parent ends
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + SECONDS_TO_STOP)
    os._exit(1)


def _is_no_broken_off_answer(record: logging.LogRecord) -> bool:
    """Answers are broken off on purpose where the upstream breaks off; the proxy counts and logs them itself."""
    return record.getMessage() != BROKEN_OFF


def run(
    app: Any,
    listener: socket.socket,
    ready: Callable[[Address], None],
    *,
    grace: float,
    limits: ConnectionLimits | None = None,
    strict: bool = True,
) -> None:
    """Serve until SIGINT or SIGTERM comes; `ready` is called once requests are taken. For the rest see `server_for`."""
    announce = partial(ready, address_of(listener))
    server = server_for(app, grace=grace, limits=limits, strict=strict, ready=announce)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again once it is done; that is no failure
        signal.signal(number, lambda *_: None)
    with listener:
        server.run(sockets=[listener])


def run_workers(
    make: Callable[[], Any],
    workers: int,
    listener: socket.socket,
    ready: Callable[[Address], None],
    *,
    grace: float,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve from several processes until SIGINT or SIGTERM comes, as `run`; one that dies is replaced.

    `make` makes the application, once in each process: a function of a module, or a `functools.partial` of one. The
    limits are those of each process.
    """
    with listener, tempfile.TemporaryDirectory(prefix=OF_WORKERS) as figures:
        os.environ[SHARED_FIGURES] = figures
        _Workers(_Config(make, limits or ConnectionLimits(), grace, workers), [listener], ready).run()


def on_hangup(action: Callable[[], None]) -> None:
    """Call a function on SIGHUP, in a thread of its own: what it loads must not keep requests waiting."""
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=action, daemon=True).start())


def is_one_of_several() -> bool:
    """Return True if this is one of several processes that share the work of a server."""
    shared = Path(os.environ.get(SHARED_FIGURES, "")).name.startswith(OF_WORKERS)  # a program may have its own
    return multiprocessing.parent_process() is not None and shared


def shared_folder(name: str) -> Path | None:
    """A folder that the processes of one server share as long as it runs; None for one that runs alone."""
    return Path(os.environ[SHARED_FIGURES]) / name if is_one_of_several() else None


def tell_the_others() -> None:
    """Make the other processes of a server load their calibrators again; this one does so once more."""
    if is_one_of_several() and hasattr(signal, "SIGHUP"):
        os.kill(os.getppid(), signal.SIGHUP)


class _AnnouncingServer(uvicorn.Server):
    """Uvicorn's server, which calls `ready` once it takes requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take requests, unless the application fails to start."""
        await super().startup(sockets)
        if self.started:
            self._ready()


class _Workers(Multiprocess):
    """Uvicorn's processes, with a message once they take requests."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], ready: Callable[[Address], None]) -> None:
        super().__init__(config, sockets)
        self._ready = ready

    def init_processes(self) -> None:
        """Start the processes, and call `ready` when all of them answer, unless a signal to stop comes before."""
        super().init_processes()
        if all(map(self._comes_to_serve, self.processes)):
            self._ready(address_of(self.sockets[0]))

    def _comes_to_serve(self, process: Process) -> bool:
        """Wait for a process; False if it ends or takes too long, or if a signal to stop has come."""
        deadline = time.monotonic() + SECONDS_TO_START
        # The signal stays in the queue: uvicorn takes it from there, and ends the processes.
        while time.monotonic() < deadline and not {signal.SIGINT, signal.SIGTERM} & set(self.signal_queue):
            if process.wait_until_ready(SECONDS_BETWEEN_LOOKS):
                return True
            if process.exitcode is not None:
                return False
        return False

    def handle_hup(self) -> None:
        """Pass SIGHUP on: each process loads its calibrator again, and keeps the old one if it must."""
        for process in self.processes:
            if process.pid is not None:
                os.kill(process.pid, signal.SIGHUP)


PERIOD = 60.0
PER_PERIOD = 5
MOST_MESSAGES = 1000


class FewOfAKind(logging.Filter):
    """A log filter that passes the first few messages of a kind in each minute, and reports how many it left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True to write a message to the log, given how many like it have been written."""
        now = self._clock()
        key = (record.name, str(record.msg)[:100])
        since, count = self._seen.get(key, (now, 0))
        if now - since >= PERIOD:
            if count > PER_PERIOD:
                record.msg = f"{record.msg} ({count - PER_PERIOD} more of these were left out)"
            since, count = now, 0
        if len(self._seen) >= MOST_MESSAGES and key not in self._seen:
            self._seen.clear()
        self._seen[key] = (since, count + 1)
        return count < PER_PERIOD


def without_storms() -> None:
    """Keep the loggers of servers from writing the same message over and over."""
    for name in ("asyncio", "uvicorn.error", "semtoken.proxy"):
        logger = logging.getLogger(name)
        if not any(isinstance(known, FewOfAKind) for known in logger.filters):
            logger.addFilter(FewOfAKind())
