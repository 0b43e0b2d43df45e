"""Orders to the model's thread, and the items that it sends of them: plain records between routes and engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from threading import Event
from typing import Any, ClassVar, Literal, TypeAlias

from semtoken.core.results import Running, ScoredAnswer
from semtoken.decisions import DecisionResponse
from semtoken.decisions.deciding import PreparedRequest
from semtoken.errors import SemtokenError
from semtoken.models.base import Decoding
from semtoken.scored_model import ScoredModel

FinishReason = Literal["stop", "length"]
Ask: TypeAlias = Callable[[ScoredModel, Sequence[int], ScoredAnswer], Any]
"""Further questions to the model, which run in its thread: the model, the prompt's tokens, the answer."""


@dataclass(frozen=True)
class GenerationBatch:
    """The prompts and settings of one request: one answer is generated for each row."""

    prompts: Sequence[Sequence[int]]
    decoding: Decoding
    """The settings for each answer. Its stop strings, and the newline that ends an answer, are not shown."""
    log_probs: bool = False
    top: int = 0
    running: bool = True
    methods: tuple[str, ...] = ()
    """Further methods of one pass, besides those of the server, whose scores each answer gets."""
    questions: Sequence[str | None] = ()
    """The question of each prompt: its words are not new in an answer. None where it is not known, or not given."""
    ask: Ask | None = None
    """Asks the model about each finished answer; what it returns comes with the end of the row."""


@dataclass(frozen=True)
class RowToken:
    """One token of one row."""

    row: int
    token: int
    log_prob: float
    """The raw log-probability: at temperature 1, before any processor. NaN if it was not asked for."""
    top: tuple[tuple[int, float], ...]
    """Ids and log-probabilities of the best tokens, best first."""
    text: str
    """The text that the shown answer gained."""
    running: Running | None
    """The score so far, if it was asked for. A token that ends its answer has none: the final score follows."""


@dataclass(frozen=True)
class RowEnd:
    """The end of one row, with its score."""

    row: int
    text: str
    """The text that the shown answer gained at its end."""
    finish_reason: FinishReason
    stop: str | int | None
    """The stop text or the id of the token that ended it; None for the end-of-sequence token and for the limit."""
    result: ScoredAnswer
    probed: Any = None
    """The return value of `GenerationBatch.ask` for it."""


Item: TypeAlias = RowToken | RowEnd | DecisionResponse | SemtokenError | None
"""An item that is sent to the one who waits for an order. The last item is None, or what went wrong."""


@dataclass(eq=False)
class AwaitedOrder:
    """The common part of all orders: how the one who waits for it hears of it."""

    emit: Callable[[Item], None]
    """Called with every step and the end of every row, or with the answers to typed questions, and once with the last
    item.
    """
    cancelled: Event = field(default_factory=Event)
    """Set by whoever no longer wants the answer."""
    is_done: bool = False

    def end(self, error: SemtokenError | None = None) -> None:
        """Tell the one who waits that the order is complete; further calls have no effect."""
        if not self.is_done:
            self.is_done = True
            self.emit(error)


@dataclass(eq=False)
class Order(AwaitedOrder):
    """An order for answers to generate."""

    _: KW_ONLY
    work: GenerationBatch

    def __post_init__(self) -> None:
        self.rows = self._left = len(self.work.prompts)

    def row_done(self) -> None:
        """Count a row as complete; the order is complete with its last row."""
        self._left -= 1
        if not self._left:
            self.end()


@dataclass(eq=False)
class DecisionOrder(AwaitedOrder):
    """Typed questions to answer; nothing is generated for them."""

    _: KW_ONLY
    inquiry: PreparedRequest

    rows: ClassVar[int] = 0


AnyOrder: TypeAlias = Order | DecisionOrder

More: TypeAlias = Callable[[int], Sequence[AnyOrder]]
"""Further orders, given the number of answers that are being written."""
