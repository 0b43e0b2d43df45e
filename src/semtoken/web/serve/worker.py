"""The model's thread: all requests that wait are answered in one batch, and given up when nobody waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread

from semtoken.errors import BackendError, SemtokenError
from semtoken.web.serve.engine import Ended, Engine, GenerationBatch, Order, RowToken

logger = logging.getLogger("semtoken.serve")

MOST_TOGETHER = 64
"""Answers in one batch."""


@dataclass(frozen=True)
class _Waiting:
    """An order with what is to be called when it is done or has failed."""

    order: Order
    done: Callable[[SemtokenError | None], None]


class Worker:
    """Hands work to an engine, which runs in a thread of its own.

    Parameters
    ----------
    engine
        The model.
    most_together
        Answers that are generated together at most.
    """

    def __init__(self, engine: Engine, most_together: int = MOST_TOGETHER) -> None:
        self.engine = engine
        self._most_together = most_together
        self._orders: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._held: _Waiting | None = None
        self._thread = Thread(target=self._work, name="semtoken-model", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the running generation and take no more."""
        self._orders.put(None)
        self._thread.join()

    def _work(self) -> None:
        while together := self._next():
            error: SemtokenError | None = None
            try:
                self.engine.run([waiting.order for waiting in together])
            except SemtokenError as failed:
                error = failed
            except Exception as failed:  # out of memory, or whatever else torch raises
                logger.exception("A generation failed")
                error = BackendError(f"The generation failed ({type(failed).__name__}); see the server's log.")
            for waiting in together:
                waiting.done(error)

    def _next(self) -> list[_Waiting]:
        """The orders to run together: those that wait, as many as fit; none once the worker is closed."""
        found: list[_Waiting] = []
        rows = 0
        try:
            while True:
                waiting = self._held or (self._orders.get_nowait() if found else self._orders.get())
                self._held = None
                if waiting is None:
                    if found:
                        self._orders.put(None)  # for the next round
                    return found
                if waiting.order.cancelled.is_set():
                    waiting.done(None)
                    continue
                rows += len(waiting.order.work.prompts)
                if found and rows > self._most_together:
                    self._held = waiting
                    return found
                found.append(waiting)
        except Empty:
            return found

    async def steps(self, work: GenerationBatch) -> AsyncGenerator[RowToken | Ended, None]:
        """What the engine emits, as it comes. Closing the iterator gives the answer up.

        Raises
        ------
        SemtokenError
            The generation failed.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[RowToken | Ended | SemtokenError | None] = asyncio.Queue()
        cancelled = Event()

        def put(item: RowToken | Ended | SemtokenError | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, item)

        self._orders.put(_Waiting(Order(work, put, cancelled), put))
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, SemtokenError):
                    raise item
                yield item
        finally:
            cancelled.set()
