"""The model's thread: one generation after the other, watched from the event loop, stopped when nobody waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from semtoken.errors import BackendError, SemtokenError
from semtoken.web.serve.engine import Ended, Engine, Step, Work
from semtoken.web.wire import ApiError

logger = logging.getLogger("semtoken.serve")

MOST_WAITING = 1000


class Worker:
    """Hands work to an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semtoken-model")
        self._waiting = 0

    def close(self) -> None:
        """Finish the running generation and take no more."""
        self._thread.shutdown(cancel_futures=True)

    async def steps(self, work: Work) -> AsyncGenerator[Step | Ended, None]:
        """What the engine emits, as it comes. Closing the iterator stops the generation.

        Raises
        ------
        ApiError
            Too many requests wait (503).
        SemtokenError
            The generation failed.
        """
        if self._waiting >= MOST_WAITING:
            raise ApiError(503, "Too many requests wait for the model. Try again later.", kind="overloaded_error")
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Step | Ended | None] = asyncio.Queue()
        cancelled = Event()

        def put(item: Step | Ended | None) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, item)

        def generate() -> None:
            try:
                self.engine.run(work, put, cancelled)
            except SemtokenError:
                raise
            except Exception as error:  # out of memory, or whatever else torch raises
                logger.exception("A generation failed")
                raise BackendError(f"The generation failed ({type(error).__name__}); see the server's log.") from error
            finally:
                put(None)

        self._waiting += 1
        running = loop.run_in_executor(self._thread, generate)
        try:
            while (item := await queue.get()) is not None:
                yield item
            await running
        finally:
            cancelled.set()
            self._waiting -= 1
