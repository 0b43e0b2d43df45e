"""Typed questions in the model's thread: those that wait at one time are read together, between decoding steps."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from semtoken.backends.base import Backend
from semtoken.decisions import InquiryAnswers
from semtoken.decisions.deciding import answer_prepared
from semtoken.errors import SemtokenError
from semtoken.web.serve.orders import DecisionOrder


@dataclass(frozen=True, eq=False)
class _ReadTogether:
    """Orders that are read together."""

    orders: Sequence[DecisionOrder]
    steps: Generator[None, None, list[InquiryAnswers]]

    def advance(self) -> bool:
        """Read some prompts more; returns whether this was all."""
        if all(order.cancelled.is_set() for order in self.orders):
            self.steps.close()
            self._end()
            return True
        try:
            next(self.steps)
        except StopIteration as end:
            for order, answers in zip(self.orders, end.value, strict=True):
                order.emit(answers)
            self._end()
            return True
        except SemtokenError as error:
            self._end(error)
            return True
        return False

    def _end(self, error: SemtokenError | None = None) -> None:
        for order in self.orders:
            order.end(error)


class OpenDecisions:
    """The typed questions that are being read.

    Parameters
    ----------
    backend
        The model.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._open: list[_ReadTogether] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._open)

    def take(self, orders: Sequence[DecisionOrder]) -> None:
        """Begin to read some, together; those that nobody waits for any more are not read."""
        for order in orders:
            if order.cancelled.is_set():
                order.end()
        wanted = [order for order in orders if not order.is_done]
        if wanted:
            steps = answer_prepared(self._backend, [order.inquiry for order in wanted])
            self._open.append(_ReadTogether(wanted, steps))

    def advance(self) -> None:
        """Read some prompts of each more, so that a long one holds up nobody."""
        self._open = [reading for reading in self._open if not reading.advance()]

    def finish(self) -> None:
        """Read all of them to their end."""
        while self._open:
            self.advance()
