"""Generations for the server, watched step by step: tokens, raw log-probabilities, text and uncertainty as they come.

The requests that wait are answered together, in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, Literal, TypeAlias

import numpy as np

from semtoken.backends import base
from semtoken.backends.base import Completion, Decoding, Observer
from semtoken.backends.detokenize import AnswerText
from semtoken.results import Running, ScoredResponse
from semtoken.statistics.decoding import best_tokens
from semtoken.stc import STC

FinishReason = Literal["stop", "length"]
Ask: TypeAlias = Callable[[STC, Sequence[int], ScoredResponse], Any]
"""Further questions to the model, which run in its thread: the model, the prompt's tokens, the answer."""


@dataclass(frozen=True)
class GenerationBatch:
    """What to generate: one answer for each row."""

    prompts: Sequence[Sequence[int]]
    """Token ids of each row's prompt."""
    max_tokens: int
    sampling: Decoding = field(default_factory=Decoding)
    """Temperature and the like."""
    seed: int | None = None
    stops: tuple[str, ...] = ()
    """Texts that end an answer; they are not shown."""
    stop_at_newline: bool = False
    """End an answer at its first newline, which is not shown."""
    top: int = 0
    """Best tokens to report at each step."""
    ask: Ask | None = None
    """Asks the model about each finished answer; what it returns comes with the end of the row."""


@dataclass(frozen=True)
class RowToken:
    """One token of one row."""

    row: int
    token: int
    log_prob: float
    """Raw: temperature 1, before any processor."""
    top: tuple[tuple[int, float], ...]
    """Ids and log-probabilities of the best tokens, best first."""
    text: str
    """What the shown text gained."""
    running: Running
    """The score so far."""


@dataclass(frozen=True)
class Ended:
    """A row is complete."""

    row: int
    text: str
    """What the shown text gained at last."""
    finish_reason: FinishReason
    result: ScoredResponse
    told: Any = None
    """What `GenerationBatch.ask` returned."""


@dataclass(frozen=True)
class Order:
    """Work that somebody waits for."""

    work: GenerationBatch
    emit: Callable[[RowToken | Ended], None]
    """Called with every step, and with the end of every row."""
    cancelled: Event
    """Set by whoever no longer wants the answer."""


class Engine:
    """Generates with a model.

    Parameters
    ----------
    stc
        The model with its clusters.
    """

    def __init__(self, stc: STC) -> None:
        self.stc = stc

    def warm_up(self) -> None:
        """Generate a token, so that the first request finds everything ready."""
        token = int(np.argmin(self.stc.clusters.vocabulary.special))
        self.run([Order(GenerationBatch([[token]], max_tokens=1), lambda _: None, Event())])

    @property
    def room(self) -> int | None:
        """Tokens of prompt and answer together that the model can read, if it says."""
        return self.stc.backend.max_length

    def run(self, orders: Sequence[Order]) -> None:
        """Generate all that is ordered in one batch; blocks until every row is complete or cancelled.

        Raises
        ------
        InvalidLogits
            The model gives NaN.
        """
        rows = [_Row(order, row) for order in orders if not order.cancelled.is_set() for row in _rows(order.work)]
        if not rows:
            return
        decodings = [replace(row.decoding(), batch_size=len(rows)) for row in rows]
        prompts = [row.order.work.prompts[row.number] for row in rows]
        emitter = _Emitter(self.stc, rows)
        self.stc.backend.generate(prompts, decodings, [emitter])
        for row, ended in emitter.to_ask:
            if row.order.work.ask is not None and not row.order.cancelled.is_set():
                prompt = row.order.work.prompts[row.number]
                row.order.emit(replace(ended, told=row.order.work.ask(self.stc, prompt, ended.result)))


def _rows(work: GenerationBatch) -> range:
    return range(len(work.prompts))


@dataclass(frozen=True)
class _Row:
    """One answer of one order."""

    order: Order
    number: int

    def decoding(self) -> Decoding:
        """How it is generated. Rows of one order draw different random numbers."""
        work = self.order.work
        seed = None if work.seed is None else (work.seed % 2**32) * 2**32 + self.number
        return replace(
            work.sampling, max_new_tokens=work.max_tokens, seed=seed, stop_at_newline=work.stop_at_newline, n=1
        )


class _Emitter(Observer):
    """Tells those who wait of every step, right after its tokens were chosen, and ends rows at their stop texts."""

    def __init__(self, stc: STC, rows: Sequence[_Row]) -> None:
        self._stc = stc
        self._rows = rows
        self._scores = stc.observer()
        self._vocabulary = stc.clusters.vocabulary
        self._texts = []
        for row in rows:
            work = row.order.work
            self._texts.append(
                AnswerText(self._vocabulary, (*work.stops, "\n") if work.stop_at_newline else work.stops)
            )
        self._top = max(row.order.work.top for row in rows)
        self.to_ask: list[tuple[_Row, Ended]] = []
        """Finished rows that the model is to be asked about, once it is free."""

    def observe(self, step: base.Step) -> Collection[int]:
        """Take in one step; returns the rows that are complete, or that nobody waits for."""
        self._scores.observe(step)
        log_probs = step.log_probabilities().tolist()
        best: Sequence[Any] = [((), ())] * len(step.answers)
        if self._top:
            best = step.best or best_tokens(step, self._top)
        ended = set()
        ends = step.ends or [False] * len(step.answers)
        for answer, token, end, log_prob, (ids, values) in zip(
            step.answers, step.tokens, ends, log_probs, best, strict=True
        ):
            row, text = self._rows[answer], self._texts[answer]
            work = row.order.work
            if row.order.cancelled.is_set():
                ended.add(answer)
                continue
            top = tuple((int(i), min(float(v), 0.0)) for i, v in zip(ids[: work.top], values[: work.top], strict=True))
            gained = text.add(token) if not end or self._holds_newline(token, work) else ""
            row.order.emit(RowToken(row.number, token, log_prob, top, gained, self._scores.running(answer)))
            if text.stopped:
                ended.add(answer)
        return ended

    def _holds_newline(self, token: int, work: GenerationBatch) -> bool:
        """Whether a token that ends the answer may have text of the answer before its newline."""
        return work.stop_at_newline and "\n" in self._vocabulary.texts[token]

    def finish(self, answer: int, completion: Completion) -> None:
        """Tell of the end of a row."""
        row = self._rows[answer]
        if row.order.cancelled.is_set():
            return
        rest = self._texts[answer].finish()
        reason: FinishReason = "length" if completion.truncated else "stop"
        result = self._stc.result(self._scores, answer, completion)
        ended = Ended(row.number, rest, reason, result)
        if row.order.work.ask is None:
            row.order.emit(ended)
        else:
            self.to_ask.append((row, ended))
