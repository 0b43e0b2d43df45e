"""Work that takes long, off the event loop: a few threads, and a queue that has an end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")


class Busy(Exception):
    """The queue is full: the work was not taken."""


class Workers:
    """Threads for work that would keep the event loop from everyone else.

    Parameters
    ----------
    threads
        How many pieces of work run at one time.
    waiting
        How many more may wait.
    watched
        Makes a context that a piece of work is in while it waits or runs, for figures.
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
        """Do some work in a thread.

        Raises
        ------
        Busy
            Too much is waiting.
        """
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
