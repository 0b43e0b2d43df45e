"""Generations in the model's thread, watched step by step: orders go in, tokens and scored ends come out.

Requests are answered together: where the backend can do so they join the batch and leave it one by one, else those that
wait are one batch. Typed questions that wait at one time are read together, between decoding steps. What nobody waits
for is given up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, cast

import numpy as np

from semtoken.methods.observers.method_scores import MethodScores
from semtoken.methods.observers.steps import Completion, Observer, Step
from semtoken.models.answer_text import AnswerText
from semtoken.models.base import Arrival, Decoding, JoiningBackend
from semtoken.scored_model import ScoredModel
from semtoken.web.serve.open_decisions import OpenDecisions
from semtoken.web.serve.orders import (
    AnyOrder,
    DecisionOrder,
    FinishReason,
    GenerationBatch,
    More,
    Order,
    RowEnd,
    RowToken,
)


class Engine:
    """Generates the answers of a server with one model, many at a time."""

    def __init__(self, stc: ScoredModel) -> None:
        self.stc = stc

    def warm_up(self) -> None:
        """Generate a token, so that the first request does not wait for loading and compiling."""
        # The first ordinary token.
        token = int(np.argmin(self.stc.scorer.vocabulary.special))
        self.run([Order(lambda _: None, work=GenerationBatch([[token]], Decoding(max_new_tokens=1)))])

    @cached_property
    def room(self) -> int | None:
        """The number of tokens of prompt and answer that the model can read together; None if it does not say."""
        return self.stc.backend.max_length

    def run(self, orders: Sequence[AnyOrder], more: More = lambda running: ()) -> None:
        """Generate all that is ordered; blocks until every order is done or canceled.

        `more` is called between two steps where answers can join those that are being written. `InvalidLogits` if the
        model gives NaN.
        """
        rows, backend = _Rows(self.stc, orders, more), self.stc.backend
        # `isinstance` would ask for `joins`, too, which looks whether the model is still the same.
        if getattr(backend, "joins", False):
            cast(JoiningBackend, backend).generate_joining(rows.arrivals, [rows])
            return
        rows.decisions.finish()
        if begun := rows.start_new():
            decodings = [replace(arrival.decoding, batch_size=len(begun)) for arrival in begun]
            backend.generate([arrival.prompt_ids for arrival in begun], decodings, [rows])
            rows.ask()


@dataclass(eq=False)
class _Row:
    """One answer of one order."""

    order: Order
    number: int
    text: AnswerText
    methods: MethodScores
    ended_by: int | None = None
    """The token that ended it, if one did."""

    @property
    def prompt(self) -> Sequence[int]:
        """The tokens of the row's prompt."""
        return self.order.work.prompts[self.number]

    @property
    def question(self) -> str | None:
        """The question, if it is known."""
        questions = self.order.work.questions
        return questions[self.number] if questions else None

    @property
    def is_over(self) -> bool:
        """True if nobody waits for more of it; an engine that answers as a whole goes on nevertheless."""
        return self.order.cancelled.is_set() or self.text.stopped

    def counted(self, completion: Completion) -> Completion:
        """The completion with the tokens that count: those of a stop text are no part of the answer, as in replies of
        other servers. A token that ended the answer is.
        """
        if self.ended_by is not None or not self.text.stopped:
            return completion
        return Completion(completion.token_ids[: self.text.n_tokens], truncated=False)

    def arrival(self, answer: int) -> Arrival:
        """The row as it joins the answers that are being written, under that number. Rows of one order draw different
        random numbers, and `_Rows` looks for stop texts itself.
        """
        decoding, seed = self.order.work.decoding, None
        if decoding.seed is not None:
            # The seed in the upper half and the row in the lower one, so that no two rows share their random numbers.
            seed = (decoding.seed % 2**32) * 2**32 + self.number
        decoding = replace(decoding, seed=seed, stop_strings=())
        return Arrival(answer, self.prompt, decoding, is_wanted=lambda: not self.order.cancelled.is_set())


class _Rows(Observer):
    """The answers that are being written: hands every step to those who wait, right after its tokens were chosen, and
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
            stops = (*work.decoding.stop_strings, *["\n"] * work.decoding.stop_at_newline)
            for number in range(len(work.prompts)):
                # Numbers are used again, since tables are kept by them (`AnswerBatch`).
                answer = next(free for free in count() if free not in self._rows)
                methods = MethodScores(work.methods)
                self._rows[answer] = _Row(order, number, AnswerText(self._vocabulary, stops), methods)
                self._new.append(answer)

    def arrivals(self) -> list[Arrival]:
        """The answers that join before the next step; the model is free now."""
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

    def _stop_of(self, row: _Row) -> str | int | None:
        """The stop text or token that ended an answer, as vLLM names it: not the tokenizer's end-of-sequence token."""
        if row.ended_by is None:
            return row.text.stop
        return None if row.ended_by == self._stc.tokenizer.eos_token_id else row.ended_by

    def ask(self) -> None:
        """Report complete answers, and ask the model about them."""
        self.settle()
        waiting, self._to_ask = self._to_ask, []
        for row, ended in waiting:
            ask, order = row.order.work.ask, row.order
            if ask is not None and not order.cancelled.is_set():
                order.emit(replace(ended, probed=ask(self._stc, row.prompt, ended.result)))
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
            if row.is_over:
                ended.add(answer)
                continue
            row.ended_by = token if end else None
            top = tuple((int(i), min(float(v), 0.0)) for i, v in zip(ids[: work.top], values[: work.top], strict=True))
            # The token that ends an answer is not shown, whatever its text.
            gained = row.text.add(token) if not end or self._holds_newline(token, work) else ""
            row.order.emit(RowToken(row.number, token, log_prob, top, gained, running.get(answer)))
            if row.text.stopped:
                ended.add(answer)
        return ended

    def _holds_newline(self, token: int, work: GenerationBatch) -> bool:
        """Return True if a token that ends the answer may have text of the answer before its newline."""
        return work.decoding.stop_at_newline and "\n" in self._vocabulary.texts[token]

    def finish(self, answer: int, completion: Completion) -> None:
        """Remember that a row is complete; all rows that end at one step are scored together."""
        self._complete[answer] = completion

    def settle(self) -> None:
        """Report the rows that are complete."""
        complete, self._complete = self._complete, {}
        rest = {a: self._rows[a].text.finish() for a in complete}
        wanted = {
            a: self._rows[a].counted(completed)
            for a, completed in complete.items()
            if not self._rows[a].order.cancelled.is_set()
        }
        questions = {answer: self._rows[answer].question for answer in wanted}
        prompts = {answer: self._rows[answer].prompt for answer in wanted}
        results = self._stc.results(self._scores, wanted, questions, prompts)
        for (answer, completion), result in zip(wanted.items(), results, strict=True):
            row = self._rows[answer]
            if row.methods.names:
                more = row.methods.scored(answer, result)
                result = more.with_fields(scores={**result.scores, **more.scores})
            reason: FinishReason = "length" if completion.truncated else "stop"
            ended = RowEnd(row.number, rest[answer], reason, self._stop_of(row), result)
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
