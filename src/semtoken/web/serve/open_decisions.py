"""Typed questions that are read between the steps of answers, a piece at a time, so that neither holds up the other."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from inspect import GEN_CREATED, getgeneratorstate
from time import perf_counter

from semtoken.decisions import DecisionResponse
from semtoken.decisions.deciding import answer_prepared
from semtoken.errors import SemtokenError
from semtoken.models.base import Backend
from semtoken.models.pace import FEWEST, Pace
from semtoken.web.serve.orders import DecisionOrder


@dataclass(frozen=True, eq=False)
class _ReadTogether:
    """Orders that are read together."""

    orders: Sequence[DecisionOrder]
    steps: Generator[int, int | None, list[DecisionResponse]]

    def advance(self, most: int) -> int | None:
        """Read some prompts more, or so many tokens of a long one; how many tokens it was, None if that was all."""
        if all(order.cancelled.is_set() for order in self.orders):
            self.steps.close()
            self._end()
            return None
        try:
            return self.steps.send(None if getgeneratorstate(self.steps) == GEN_CREATED else most)
        except StopIteration as end:
            for order, answers in zip(self.orders, end.value, strict=True):
                order.emit(answers)
            self._end()
        except SemtokenError as error:
            self._end(error)
        return None

    def _end(self, error: SemtokenError | None = None) -> None:
        for order in self.orders:
            order.end(error)


class OpenDecisions:
    """Typed questions that the model is reading, step by step, beside the answers that it writes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._open: list[_ReadTogether] = []
        self._pace = Pace()
        self._left = perf_counter()
        """When the model was last left to the answers that are being written."""

    def __bool__(self) -> bool:
        """Return True if any questions are being read."""
        return bool(self._open)

    def take(self, orders: Sequence[DecisionOrder]) -> None:
        """Begin to read some inquiries together; those that were canceled are skipped."""
        for order in orders:
            if order.cancelled.is_set():
                order.end()
        wanted = [order for order in orders if not order.is_done]
        if wanted:
            steps = answer_prepared(self._backend, [order.inquiry for order in wanted])
            self._open.append(_ReadTogether(wanted, steps))

    def advance(self, running: int = 0) -> None:
        """Read a few prompts of each inquiry, so that a long one does not hold up the others.

        The `running` answers that are being written take a step between two calls, and wait meanwhile.
        """
        begun = perf_counter()
        if running:
            self._pace.note_step(begun - self._left)
        waiting = len(self._open)
        if waiting:
            most = max(FEWEST, self._pace.budget(waiting, running) // waiting)
            read = [(reading, reading.advance(most)) for reading in self._open]
            self._open = [reading for reading, tokens in read if tokens is not None]
            tokens = sum(tokens or 0 for _, tokens in read)
            self._pace.note_reading(perf_counter() - begun, tokens, waiting, running)
        self._left = perf_counter()

    def finish(self) -> None:
        """Read all questions to the end."""
        while self._open:
            self.advance()
