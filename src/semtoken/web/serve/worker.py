"""The thread in which the model works, and the queues between it and the event loop of the server."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from semtoken.decisions import DecisionResponse
from semtoken.decisions.deciding import PreparedRequest
from semtoken.errors import BackendError, SemtokenError
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.orders import AnyOrder, DecisionOrder, GenerationBatch, Item, Order, RowEnd, RowToken

logger = logging.getLogger("semtoken.serve")

MOST_TOGETHER = 64
"""Most answers that are written at one time."""


class Worker:
    """Hands work to an engine in a thread of its own. An order of more than `most_together` answers goes alone."""

    def __init__(self, engine: Engine, most_together: int = MOST_TOGETHER) -> None:
        self.engine = engine
        self._most_together = most_together
        self._orders: SimpleQueue[AnyOrder | None] = SimpleQueue()
        self._held: AnyOrder | None = None
        """An order that has to wait until others are complete."""
        self._taken: list[AnyOrder] = []
        """Orders that the engine has, and has not ended."""
        self._closed = False
        self._ended = False
        """True once the thread takes no further order."""
        self._post: _Post | None = None
        self._thread = Thread(target=self._work, name="semtoken-model", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the orders that are running, and accept no more."""
        self._orders.put(None)
        self._thread.join()

    def _work(self) -> None:
        self._answer_orders()
        # In this order: an order that comes from now on is ended by whoever gave it.
        self._ended = True
        self._end_waiting()

    def _end_waiting(self) -> None:
        """End the orders that came after the thread was to close: nobody answers them."""
        with suppress(Empty):
            while True:
                if (order := self._orders.get_nowait()) is not None:
                    order.end(BackendError("The model takes no more requests: it was closed."))

    def _answer_orders(self) -> None:
        while not self._closed:
            self._held = self._held or self._orders.get()
            if self._held is None:
                return
            error: SemtokenError
            try:
                self.engine.run(self._waiting(0), self._waiting)
                continue
            except SemtokenError as failed:
                error = failed
            except Exception as failed:  # out of memory, or whatever else torch raises
                logger.exception("A generation failed")
                error = BackendError(f"The generation failed ({type(failed).__name__}); see the server's log.")
            # Nobody is left waiting for a generation that has failed.
            for order in self._taken:
                order.end(error)

    def _waiting(self, running: int) -> list[AnyOrder]:
        """The orders that wait, as many as fit beside the answers that are being written."""
        self._taken = [order for order in self._taken if not order.is_done]
        waiting: list[AnyOrder] = []
        try:
            while not self._closed:
                order = self._held or self._orders.get_nowait()
                self._held = None
                if order is None:
                    self._closed = True
                    break
                rows = order.rows
                # An order that is larger than the limit goes alone, or it would wait for ever.
                if running and running + rows > self._most_together:
                    self._held = order
                    break
                running += rows
                waiting.append(order)
        except Empty:
            pass
        self._taken += waiting
        return waiting

    def steps(self, work: GenerationBatch) -> AsyncGenerator[list[RowToken | RowEnd], None]:
        """The tokens and ends that the engine produces, in batches as they come.

        Closing the iterator cancels the order. `SemtokenError` if the generation failed, `BackendError` after `close`.
        """
        return self._items(partial(Order, work=work))

    async def answers(self, inquiry: PreparedRequest) -> DecisionResponse:
        """Wait for the answers to typed questions. Cancelling the wait gives them up.

        `SemtokenError` if the model cannot read the questions, `BackendError` after `close`.
        """
        async with aclosing(self._items(partial(DecisionOrder, inquiry=inquiry))) as items:
            answers: DecisionResponse = (await anext(items))[0]
        return answers

    async def _items(self, ordering: Callable[[Callable[[Item], None]], AnyOrder]) -> AsyncGenerator[list[Any], None]:
        """The items that are emitted of an order, in batches as they come. `SemtokenError` if the order failed."""
        queue: asyncio.Queue[Item] = asyncio.Queue()
        post = self._post_to(asyncio.get_running_loop())
        order = ordering(lambda item: post.send(queue, item))
        self._orders.put(order)
        if self._ended:
            self._end_waiting()
        try:
            while True:
                batch: list[Item] = []
                item = await queue.get()
                while isinstance(item, RowToken | RowEnd | DecisionResponse):
                    batch.append(item)
                    # All that is there goes out in one piece, since each piece is a write to the client's connection.
                    if queue.empty():
                        break
                    item = queue.get_nowait()
                if batch:
                    yield batch
                if item is None:
                    return
                if isinstance(item, SemtokenError):
                    raise item
        finally:
            order.cancelled.set()

    def _post_to(self, loop: asyncio.AbstractEventLoop) -> _Post:
        if self._post is None or self._post.loop is not loop:
            self._post = _Post(loop)
        return self._post


class _Post:
    """Carries items from the model's thread into queues of an event loop, which is woken once for many of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._items: deque[tuple[asyncio.Queue[Item], Item]] = deque()
        self._woken = False

    def send(self, queue: asyncio.Queue[Item], item: Item) -> None:
        """Put an item into a queue, from any thread."""
        self._items.append((queue, item))
        if not self._woken and not self.loop.is_closed():
            self._woken = True
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False  # what is sent from here on may wake the loop once too often, and is never forgotten
        while self._items:
            queue, item = self._items.popleft()
            queue.put_nowait(item)
