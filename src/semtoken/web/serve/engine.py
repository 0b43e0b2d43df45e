"""Generations and typed questions in the model's thread, watched step by step: what it is asked, and what it tells.

Requests are answered together: where the backend can do so they join the batch and leave it one by one, else those that
wait are one batch. Typed questions that wait at one time are read together, between decoding steps. What nobody waits
for is given up.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from inspect import GEN_CREATED, getgeneratorstate
from itertools import count
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import perf_counter
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from semtoken.core.results import Running, ScoredAnswer
from semtoken.decisions import DecisionResponse
from semtoken.decisions.deciding import PreparedRequest, answer_prepared
from semtoken.errors import BackendError, SemtokenError
from semtoken.methods.observers.method_scores import MethodScores
from semtoken.methods.observers.steps import Completion, Observer, Step
from semtoken.models.base import Arrival, Backend, Decoding, JoiningBackend
from semtoken.models.prompt_ids import FEWEST, AnswerText, Pace
from semtoken.scored_model import ScoredModel

FinishReason = Literal["stop", "length"]
Ask: TypeAlias = Callable[[ScoredModel, Sequence[int], ScoredAnswer], Any]
"""Further questions to the model, which run in its thread: the model, the prompt's tokens, the answer."""


@dataclass(frozen=True)
class GenerationBatch:
    """The prompts and settings of one request: one answer is generated for each row."""

    prompts: Sequence[Sequence[int]]
    max_tokens: int
    sampling: Decoding = field(default_factory=Decoding)
    """How tokens are chosen: temperature, `top_p`, `top_k` and `min_p`."""
    seed: int | None = None
    stops: tuple[str, ...] = ()
    """Texts that end an answer; they are not shown."""
    stop_at_newline: bool = False
    """Whether an answer ends at its first newline, which is not shown."""
    log_probs: bool = False
    top: int = 0
    running: bool = True
    methods: tuple[str, ...] = ()
    """Further methods of one pass, besides those of the server, whose scores each answer gets."""
    questions: Sequence[str | None] = ()
    """What was asked, of each prompt: its words are not new in an answer. None where it is not known, or not given."""
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
    result: ScoredAnswer
    told: Any = None
    """What `GenerationBatch.ask` returned for it."""


@dataclass(eq=False)
class AwaitedOrder:
    """The common part of all orders: how the one who waits for it learns that it is done."""

    done: Callable[[SemtokenError | None], None]
    """Called once, with None when all is complete, or with what went wrong."""
    cancelled: Event = field(default_factory=Event)
    """Set by whoever no longer wants the answer."""
    is_done: bool = False

    def end(self, error: SemtokenError | None = None) -> None:
        """Tell the one who waits that the order is complete; further calls have no effect."""
        if not self.is_done:
            self.is_done = True
            self.done(error)


@dataclass(eq=False)
class Order(AwaitedOrder):
    """An order for answers to generate."""

    _: KW_ONLY
    work: GenerationBatch
    emit: Callable[[RowToken | RowEnd], None]
    """Called with every step, and with the end of every row."""

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
    emit: Callable[[DecisionResponse], None]

    rows: ClassVar[int] = 0


AnyOrder: TypeAlias = Order | DecisionOrder

More: TypeAlias = Callable[[int], Sequence[AnyOrder]]
"""Further orders, given the number of answers that are being written."""


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
        """Whether any questions are being read."""
        return bool(self._open)

    def take(self, orders: Sequence[DecisionOrder]) -> None:
        """Begin to read some inquiries together; those that were cancelled are skipped."""
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


class Engine:
    """Generates the answers of a server with one model, many at a time."""

    def __init__(self, stc: ScoredModel) -> None:
        self.stc = stc

    def warm_up(self) -> None:
        """Generate a token, so that the first request does not wait for loading and compiling."""
        # The first ordinary token.
        token = int(np.argmin(self.stc.scorer.vocabulary.special))
        self.run([Order(lambda _: None, work=GenerationBatch([[token]], max_tokens=1), emit=lambda _: None)])

    @cached_property
    def room(self) -> int | None:
        """How many tokens of prompt and answer the model can read together; None if it does not say."""
        return self.stc.backend.max_length

    def run(self, orders: Sequence[AnyOrder], more: More = lambda running: ()) -> None:
        """Generate all that is ordered; blocks until every order is done or cancelled.

        `more` is called between two steps where answers can join those that are being written. `InvalidLogits` if the
        model gives NaN.
        """
        rows, backend = _Rows(self.stc, orders, more), self.stc.backend
        if isinstance(backend, JoiningBackend) and backend.joins:
            backend.generate_joining(rows.arrivals, [rows])
            return
        rows.decisions.finish()
        if begun := rows.start_new():
            decodings = [replace(arrival.decoding, batch_size=len(begun)) for arrival in begun]
            backend.generate([arrival.prompt_ids for arrival in begun], decodings, [rows])
            rows.ask()


@dataclass(frozen=True, eq=False)
class _Row:
    """One answer of one order."""

    order: Order
    number: int
    text: AnswerText
    methods: MethodScores

    @property
    def prompt(self) -> Sequence[int]:
        """The tokens of the row's prompt."""
        return self.order.work.prompts[self.number]

    @property
    def question(self) -> str | None:
        """What was asked, if it is known."""
        questions = self.order.work.questions
        return questions[self.number] if questions else None

    def arrival(self, answer: int) -> Arrival:
        """What joins the answers that are being written, under that number."""
        return Arrival(answer, self.prompt, self.decoding(), is_wanted=lambda: not self.order.cancelled.is_set())

    def decoding(self) -> Decoding:
        """How it is generated. Rows of one order draw different random numbers."""
        work = self.order.work
        # The seed in the upper half and the row in the lower one, so that no two rows share their random numbers.
        seed = None if work.seed is None else (work.seed % 2**32) * 2**32 + self.number
        return replace(
            work.sampling, max_new_tokens=work.max_tokens, seed=seed, stop_at_newline=work.stop_at_newline, n=1
        )


class _Rows(Observer):
    """The answers that are being written: tells those who wait of every step, right after its tokens were chosen, and
    ends answers at their stop texts.
    """

    def __init__(self, stc: ScoredModel, orders: Sequence[AnyOrder], more: More) -> None:
        self._stc = stc
        self.decisions = OpenDecisions(stc.backend)
        self._more = more
        self._scores = stc.observer()
        self.reads = self._scores.reads
        self._vocabulary = stc.scorer.vocabulary
        self._rows: dict[int, _Row] = {}
        """Rows that are not complete, by the numbers of their answers."""
        self._new: list[int] = []
        """The answers that have not begun."""
        self._to_ask: list[tuple[_Row, RowEnd]] = []
        """Complete answers that the model is to be asked about, once it is free."""
        self._complete: dict[int, Completion] = {}
        """Answers that are complete, and that nobody knows of yet."""
        self._take(orders)

    def _take(self, orders: Sequence[AnyOrder]) -> None:
        self.decisions.take([order for order in orders if isinstance(order, DecisionOrder)])
        for order in orders:
            if isinstance(order, DecisionOrder):
                continue
            if order.cancelled.is_set():
                order.end()
                continue
            work = order.work
            for number in range(len(work.prompts)):
                stops = (*work.stops, "\n") if work.stop_at_newline else work.stops
                # Numbers are used again, since tables are kept by them (`AnswerBatch`).
                answer = next(free for free in count() if free not in self._rows)
                methods = MethodScores(work.methods)
                self._rows[answer] = _Row(order, number, AnswerText(self._vocabulary, stops), methods)
                self._new.append(answer)

    def arrivals(self) -> list[Arrival]:
        """What joins before the next step; the model is free now."""
        self.ask()
        self._take(self._more(len(self._rows)))
        self.decisions.advance(len(self._rows) - len(self._new))
        while self.decisions and not self._rows:
            self._take(self._more(0))
            self.decisions.advance()
        return self.start_new()

    def start_new(self) -> list[Arrival]:
        """The answers that have not begun; they do now."""
        new, self._new = self._new, []
        return [self._rows[answer].arrival(answer) for answer in new]

    def ask(self) -> None:
        """Tell of complete answers, and ask the model about them."""
        self.settle()
        waiting, self._to_ask = self._to_ask, []
        for row, ended in waiting:
            ask, order = row.order.work.ask, row.order
            if ask is not None and not order.cancelled.is_set():
                order.emit(replace(ended, told=ask(self._stc, row.prompt, ended.result)))
            row.order.row_done()

    def observe(self, step: Step) -> Collection[int]:
        """Take in one step; returns the rows that are complete, or that nobody waits for."""
        self.settle()
        self._scores.observe(step)
        rows = [self._rows[answer] for answer in step.answers]
        for place, row in enumerate(rows):
            if row.methods.names:
                row.methods.observe(step.of(place))
        works = [row.order.work for row in rows]
        log_probs = [math.nan] * len(rows)
        if any(work.log_probs for work in works):
            log_probs = step.log_probabilities().tolist()
        best: Sequence[Any] = [((), ())] * len(rows)
        if most := max(work.top for work in works):
            best = step.best_of(most)
        ended = set()
        ends = step.ends or [False] * len(rows)
        each = zip(step.answers, works, ends, strict=True)
        # A score so far that the final one follows at once is not worth computing.
        shown = [answer for answer, work, end in each if work.running and not end]
        running = dict(zip(shown, self._scores.running_together(shown), strict=True))
        for answer, token, end, log_prob, (ids, values) in zip(
            step.answers, step.tokens, ends, log_probs, best, strict=True
        ):
            row = self._rows[answer]
            work = row.order.work
            if row.order.cancelled.is_set():
                ended.add(answer)
                continue
            top = tuple((int(i), min(float(v), 0.0)) for i, v in zip(ids[: work.top], values[: work.top], strict=True))
            # The token that ends an answer is not shown, whatever its text.
            gained = row.text.add(token) if not end or self._holds_newline(token, work) else ""
            row.order.emit(RowToken(row.number, token, log_prob, top, gained, running.get(answer)))
            if row.text.stopped:
                ended.add(answer)
        return ended

    def _holds_newline(self, token: int, work: GenerationBatch) -> bool:
        """Whether a token that ends the answer may have text of the answer before its newline."""
        return work.stop_at_newline and "\n" in self._vocabulary.texts[token]

    def finish(self, answer: int, completion: Completion) -> None:
        """Remember that a row is complete; all rows that end at one step are scored together."""
        self._complete[answer] = completion

    def settle(self) -> None:
        """Tell of the rows that are complete."""
        complete, self._complete = self._complete, {}
        wanted = {a: completed for a, completed in complete.items() if not self._rows[a].order.cancelled.is_set()}
        questions = {answer: self._rows[answer].question for answer in wanted}
        prompts = {answer: self._rows[answer].prompt for answer in wanted}
        results = self._stc.results(self._scores, wanted, questions, prompts)
        for (answer, completion), result in zip(wanted.items(), results, strict=True):
            row = self._rows[answer]
            if row.methods.names:
                more = row.methods.scored(answer, result)
                result = more.with_fields(scores={**result.scores, **more.scores})
            reason: FinishReason = "length" if completion.truncated else "stop"
            ended = RowEnd(row.number, row.text.finish(), reason, result)
            if row.order.work.ask is None:
                row.order.emit(ended)
                row.order.row_done()
            else:
                self._to_ask.append((row, ended))
        for answer in complete:
            row = self._rows.pop(answer)
            self._scores.forget(answer)
            if answer not in wanted:
                row.order.row_done()


logger = logging.getLogger("semtoken.serve")

MOST_TOGETHER = 64
"""Most answers that are written at one time."""

Item: TypeAlias = RowToken | RowEnd | DecisionResponse | SemtokenError | None


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
        self._post: _Post | None = None
        self._thread = Thread(target=self._work, name="semtoken-model", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the orders that are running, and accept no more."""
        self._orders.put(None)
        self._thread.join()

    def _work(self) -> None:
        while not self._closed:
            if self._held is None:
                self._held = self._orders.get()
                self._closed = self._held is None
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

    async def steps(self, work: GenerationBatch) -> AsyncGenerator[list[RowToken | RowEnd], None]:
        """The tokens and ends that the engine produces, in batches as they come.

        Closing the iterator cancels the order. `SemtokenError` if the generation failed.
        """
        queue: asyncio.Queue[Item] = asyncio.Queue()
        post = self._post_to(asyncio.get_running_loop())
        order = Order(lambda error: post.send(queue, error), work=work, emit=lambda item: post.send(queue, item))
        self._orders.put(order)
        try:
            while True:
                batch: list[RowToken | RowEnd] = []
                item = await queue.get()
                while isinstance(item, RowToken | RowEnd):
                    batch.append(item)
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

    async def answers(self, inquiry: PreparedRequest) -> DecisionResponse:
        """Wait for the answers to typed questions. Cancelling the wait gives them up.

        `SemtokenError` if the model cannot read the questions.
        """
        queue: asyncio.Queue[Item] = asyncio.Queue()
        post = self._post_to(asyncio.get_running_loop())
        order = DecisionOrder(
            lambda error: post.send(queue, error), inquiry=inquiry, emit=lambda item: post.send(queue, item)
        )
        self._orders.put(order)
        try:
            item = await queue.get()
            if isinstance(item, SemtokenError):
                raise item
            assert isinstance(item, DecisionResponse), "an order ends with its answers, or with an error"
            return item
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
