"""Answers that are scored while vLLM generates them, in batches whose make-up changes from step to step.

A row of logits is copied when it is computed, and reduced once its token is known: that is at the next step of the
request, or when its answer is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semtoken.core import GrowingAnswer, Scorer
from semtoken.core.results import Distribution, ScoredAnswer
from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.support.arrays import FloatArray, as_rows, copy_row

PLACEHOLDER = -1
"""A token in a list of output ids that was chosen and is not known yet."""


@dataclass(eq=False)
class WatchedRequest:
    """A request that is being scored inside the engine."""

    name: str
    answer: GrowingAnswer
    distribution: Distribution
    output_ids: list[int] | None
    """The engine's own list of the tokens chosen so far, where it has one."""
    held: FloatArray | None = None
    """The last logits [V] of the request; the token chosen from them is not known yet."""
    error: str | None = None
    """Why it is no longer scored; None if it is."""


@dataclass(frozen=True)
class WatchedRow:
    """The row of logits that belongs to a request in one step of the engine."""

    row: int
    watched: WatchedRequest
    chosen: int
    """The number of tokens of the answer that have been chosen so far."""
    last: int
    """Id of the last of them; `PLACEHOLDER` if there is none or it is not known yet."""


class WatchedRequests:
    """The requests of one engine that are scored, by the ids that were sent with them."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._watched: dict[str, WatchedRequest] = {}

    def enter(self, name: str, distribution: Distribution, output_ids: list[int] | None) -> WatchedRequest:
        """Begin to score a request that enters the batch, or go on with one that had to wait."""
        watched = self._watched.get(name)
        if watched is None:
            watched = WatchedRequest(name, GrowingAnswer(self.scorer), distribution, output_ids)
            self._watched[name] = watched
        watched.distribution, watched.output_ids = distribution, output_ids
        return watched

    def step(self, logits: Any, rows: Sequence[WatchedRow]) -> None:
        """Add the logits [batch, columns] of one step, in which each request has one row."""
        all_rows, count = as_rows(logits), Counter(entry.watched.name for entry in rows)
        for entry in rows:
            watched = entry.watched
            if count[watched.name] > 1:
                watched.error = "two requests had this semtoken_id at the same time"
            if watched.error is not None:
                continue
            if entry.chosen == 0 and watched.answer.ids:  # an earlier answer of this name that nobody took
                watched.answer, watched.held = GrowingAnswer(self.scorer), None
            try:
                self._take_in(entry)
            except SemtokenError as error:
                # Kept for `take`, which raises it: raised here, it would end the step of all requests in the engine.
                watched.error = str(error)
            else:
                # A copy, since the engine may write the next step into the same memory.
                watched.held = copy_row(all_rows, entry.row, self.scorer.vocabulary.size)

    def _take_in(self, entry: WatchedRow) -> None:
        """Reduce the row that is held, now that its token is known. Other held rows belong to no token of the answer:
        they are of a piece of the prompt, or of a token that the engine threw away.
        """
        watched = entry.watched
        new = entry.chosen - len(watched.answer.ids)
        if new == 1 and watched.held is not None and entry.last != PLACEHOLDER:
            self._add(watched, entry.last)
        elif new:
            seen = len(watched.answer.ids)
            raise BackendError(f"the engine is at token {entry.chosen}, the last one seen was {seen}")

    def _add(self, watched: WatchedRequest, token: int) -> None:
        self.scorer.vocabulary.check_ids([token], len(watched.answer.ids))
        assert watched.held is not None
        watched.answer.add_row(watched.held[None], 0, token)
        watched.held = None

    def take(self, name: str, token_ids: Sequence[int], question: str | None = None) -> ScoredAnswer:
        """The score of a complete answer, whose ids are those that the engine returned; it is then forgotten.

        `question` is what was asked: its words are not new in the answer. Without it the explanation says so.
        `InvalidInputError` if no request had this id, `BackendError` if it could not be scored or had other tokens.
        """
        watched, ids = self._watched.pop(name, None), [int(token) for token in token_ids]
        if watched is None:
            raise InvalidInputError(
                f"No request had the semtoken_id {name!r:.120}, or its score was taken. The engine must run in this "
                "process: VLLM_ENABLE_V1_MULTIPROCESSING=0, and one worker."
            )
        if watched.error is not None:
            raise BackendError(f"Request {name!r} was not scored: {watched.error}.")
        answer = watched.answer
        # The engine makes no step behind the last token, so its row is still held.
        if len(answer.ids) == len(ids) - 1 and watched.held is not None and answer.ids == ids[:-1]:
            self._add(watched, ids[-1])
        if answer.ids != ids:
            raise BackendError(
                f"Request {name!r}: the engine recorded {len(answer.ids)} tokens and not the {len(ids)} given. Was the "
                "id used for two requests?"
            )
        return answer.finish(watched.distribution).with_fields(question=question)
