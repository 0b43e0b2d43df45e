"""Answers that are scored while an engine generates them in batches whose make-up changes from step to step."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.backends.vllm.channel import ChannelRecord, load_record, record_path, write_record
from semtoken.core import AnswerBatch, GrowingAnswer, NormalizedRows, Scorer, normalized_rows
from semtoken.core.rows import KeptRows, readable_rows
from semtoken.errors import BackendError, SemtokenError
from semtoken.results import Distribution
from semtoken.support.arrays import FloatArray, as_rows, copy_row, is_tensor

IDLE_SECONDS = 0.05  # a request that was not stepped for so long ...
IDLE_STEPS = 4  # ... and for the time of so many steps is written down: it has ended, or waits
LONGEST_STEP = 0.25  # seconds; longer pauses are waits
PLACEHOLDER = -1  # in a list of output ids: chosen, but not known yet

logger = logging.getLogger("vllm.semtoken")


@dataclass(eq=False)
class WatchedRequest:
    """A request that is being scored inside the engine, with its tokens and its score so far."""

    request_id: str
    distribution: Distribution
    output_ids: list[int] | None
    """The engine's own list of the tokens chosen so far, where it has one."""
    number: int
    """The number of its answer among those that are scored together."""
    length: int = 0
    """How many tokens of the answer have been taken in."""
    held: NormalizedRows | None = None
    """Logits of the batch in which the request was last stepped; the token chosen from them is not known yet."""
    held_row: int = 0
    """The place of the request's row among them."""
    stepped: float = 0.0
    """When the request was last stepped, in seconds of the monotonic clock."""
    pace: float = IDLE_SECONDS
    """Seconds between the last two steps of the request, at most `LONGEST_STEP`."""
    unwritten: bool = False
    """Whether something has changed since its record was written."""
    left: bool = False
    """Whether the request has left the batch."""
    error: str | None = None
    """Why it is no longer scored; None if it is."""


@dataclass(frozen=True)
class WatchedRow:
    """The row of logits that belongs to a request in one step of the engine."""

    row: int
    watched: WatchedRequest
    chosen: int
    """How many tokens of the answer have been chosen so far."""
    last: int
    """Id of the last of them; `PLACEHOLDER` if there is none or it is not known yet."""


class Watch:
    """Scores requests inside the engine, step by step, and writes the record of each.

    Steps come from the engine's thread. A second thread writes the record of every request that has left the batch or
    was not stepped for a moment: nothing else tells an idle engine that an answer is complete. Records go to a folder;
    see `semtoken.backends.vllm.channel`.
    """

    def __init__(self, scorer: Scorer, folder: Path) -> None:
        self.scorer = scorer
        self.folder = folder
        self._watched: dict[str, WatchedRequest] = {}
        self._answers = AnswerBatch(scorer)
        self._numbers = itertools.count()
        self._free: list[int] = []
        """Numbers of answers that are gone."""
        self._kept: KeptRows | None = None
        """Holds the rows of one step, and then those of the next."""
        self._last: NormalizedRows | None = None
        """The rows of the last step, if they lie there."""
        self._lock = threading.Lock()
        self._entered = threading.Event()
        """Set while there are requests: the thread that writes sleeps where there are none."""
        self._writer: threading.Thread | None = None
        self._warm_up()

    def _warm_up(self) -> None:
        """Take in a step of nobody's: to compile or load the code at the first request would make it seem idle."""
        rows, answers = np.zeros((1, self.scorer.vocabulary.size), dtype=np.float32), AnswerBatch(self.scorer)
        answers.add([([0], [0])], self._copied(rows, [0]))

    def enter(self, request_id: str, distribution: Distribution, output_ids: list[int] | None) -> WatchedRequest:
        """Begin or go on to score a request that has entered the engine's batch."""
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_forever, name="semtoken-channel", daemon=True)
                self._writer.start()
            self._entered.set()
            watched = self._watched.get(request_id)
            if watched is None:
                number = self._free.pop() if self._free else next(self._numbers)
                watched = WatchedRequest(request_id, distribution, output_ids, number)
                self._watched[request_id] = watched
            watched.output_ids, watched.distribution, watched.left = output_ids, distribution, False
            return watched

    def leave(self, watched: WatchedRequest) -> None:
        """Note that a request is no longer in the batch, since it has ended or has to wait."""
        with self._lock:
            watched.left = True

    def fail(self, watched: WatchedRequest, reason: str) -> None:
        """Stop scoring a request, and put the reason into its record."""
        if watched.error is None:
            watched.error, watched.held, watched.unwritten = reason, None, True

    def step(self, logits: Any, rows: Sequence[WatchedRow]) -> None:
        """Add the logits [batch, columns] of one step, in which each request has one row."""
        if not rows:
            return
        with self._lock:
            count = Counter(entry.watched.request_id for entry in rows)
            for entry in rows:
                if count[entry.watched.request_id] > 1:
                    self.fail(entry.watched, "two requests had this semtoken_id at the same time")
            single = [entry for entry in rows if count[entry.watched.request_id] == 1]
            self._take_in([(entry.watched, entry.last) for entry in single if self._is_due(entry)])
            held = self._copied(logits, [entry.row for entry in rows])
            for row, entry in enumerate(rows):
                if entry.watched.error is None:
                    _hold(entry.watched, held, row)

    def _copied(self, logits: Any, row_ids: list[int]) -> NormalizedRows:
        """A copy of some rows, as the engine goes on to use its own."""
        rows, size = as_rows(logits), self.scorer.vocabulary.size
        stale = [watched for watched in self._watched.values() if watched.held is not None]
        for watched in stale:  # those that have left, and wait for their record or for their next step
            watched.held, watched.held_row = self._row_of(watched), 0
        readable = readable_rows(rows, size)
        self._last = None
        if readable is None:
            return normalized_rows(rows[row_ids], size)  # indexing with a list copies
        kept, shape = self._kept, (1, len(row_ids), readable.dtype)
        if kept is None or not kept.fits(*shape):
            kept = self._kept = KeptRows(*shape, size, self.scorer.neutral_ids)
        place = kept.read(readable, np.array(row_ids))
        self._last = kept.step(place, len(row_ids))
        return self._last

    def _row_of(self, watched: WatchedRequest) -> NormalizedRows:
        """The row of one request, apart from the others of its batch."""
        assert watched.held is not None
        if len(watched.held.row_ids) == 1 and watched.held is not self._last:
            return watched.held
        row = _own_row(watched.held, watched.held_row, self.scorer.vocabulary.size)
        return normalized_rows(row[None], self.scorer.vocabulary.size)

    def _is_due(self, entry: WatchedRow) -> bool:
        """Whether the held row's token is known now. Other rows that are held belong to no token of the answer."""
        watched = entry.watched
        if entry.chosen == 0:
            self._begin(watched)
        elif watched.held is None and watched.error is None and entry.chosen != watched.length:
            self._resume(watched)
        new = entry.chosen - watched.length
        if new == 1 and watched.held is not None and entry.last != PLACEHOLDER:
            return True
        if new:
            self.fail(watched, f"the engine is at token {entry.chosen}, the last one seen was {watched.length}")
        return False  # a piece of the prompt, or a token that the engine threw away

    def _begin(self, watched: WatchedRequest) -> None:
        """Start the answer; what an earlier request with this id has left goes."""
        if watched.held is None or watched.length:
            record_path(self.folder, watched.request_id).unlink(missing_ok=True)
            del self._answers[watched.number]
            watched.length, watched.held, watched.error = 0, None, None

    def _resume(self, watched: WatchedRequest) -> None:
        """Take up an answer that was written down when its request left the batch."""
        try:
            record = load_record(self.folder, watched.request_id)
            if record is None:
                raise BackendError("its first steps were not seen")
            answer = GrowingAnswer.from_state_dict(self.scorer, record.answer)
            self._answers[watched.number], watched.length = answer, len(answer.ids)
            if record.held is not None:
                watched.held, watched.held_row = normalized_rows(record.held[None], self.scorer.vocabulary.size), 0
        except SemtokenError as error:
            self.fail(watched, f"it came back into the batch, but {error}")

    def _take_in(self, due: list[tuple[WatchedRequest, int]]) -> None:
        """Reduce held rows, now that the token of each is known: those of one batch together."""
        batches: dict[int, list[tuple[WatchedRequest, int]]] = {}
        for watched, token in due:
            if token < self.scorer.vocabulary.size:
                batches.setdefault(id(watched.held), []).append((watched, token))
            else:
                self.fail(watched, f"token {token} is not in the vocabulary")
        for together in batches.values():
            held = together[0][0].held
            assert held is not None
            self._reduce(held, together)

    def _reduce(self, rows: NormalizedRows, due: list[tuple[WatchedRequest, int]]) -> None:
        for watched, _ in due:
            if not np.isfinite(rows.log_normalizers[watched.held_row]):
                self.fail(watched, f"the logits of its step {watched.length} hold NaN, +inf or no finite value")
        sound = [(watched, token) for watched, token in due if watched.error is None]
        places = np.array([watched.held_row for watched, _ in sound], dtype=np.int64)
        step = [watched.number for watched, _ in sound], [token for _, token in sound]
        self._answers.add([step], rows.of(places))
        for watched, _ in sound:
            watched.held = None
            watched.length += 1

    def _write_forever(self) -> None:
        while True:
            self._entered.wait()
            time.sleep(IDLE_SECONDS / 2)
            for watched in self._waiting():
                try:
                    self._write(watched)
                except Exception:  # the thread must live on: the next record may fit where this one did not
                    logger.exception("semtoken could not write into its channel %s", self.folder)

    def _waiting(self) -> list[WatchedRequest]:
        """Requests that have left or were not stepped for a moment, and were not written since."""
        with self._lock:
            for name, watched in list(self._watched.items()):
                if watched.left and not watched.unwritten:
                    del self._watched[name], self._answers[watched.number]
                    self._free.append(watched.number)
            if not self._watched:
                self._entered.clear()
            now = time.monotonic()
            return [w for w in self._watched.values() if w.unwritten and (w.left or w.error or _is_idle(w, now))]

    def _write(self, watched: WatchedRequest) -> None:
        with self._lock:
            watched.unwritten = False
            if watched.output_ids and self._knows_more(watched):
                self._take_in([(watched, watched.output_ids[-1])])
            record = self._record(watched)
        write_record(self.folder, record)
        with self._lock:
            if not watched.unwritten:
                watched.held = None  # if the request comes back, its record has the row

    def _knows_more(self, watched: WatchedRequest) -> bool:
        """Whether the engine's list holds the token of the held row by now."""
        ids = watched.output_ids or []
        return watched.held is not None and len(ids) == watched.length + 1 and ids[-1] != PLACEHOLDER

    def _record(self, watched: WatchedRequest) -> ChannelRecord:
        return ChannelRecord(
            request_id=watched.request_id,
            signature=self.scorer.identity,
            rules=self.scorer.rules,
            distribution=watched.distribution,
            answer=self._answers[watched.number].state_dict(),
            held=None
            if watched.held is None
            else _own_row(watched.held, watched.held_row, self.scorer.vocabulary.size),
            error=watched.error,
        )


def _hold(watched: WatchedRequest, rows: NormalizedRows, row: int) -> None:
    now = time.monotonic()
    if watched.length:
        watched.pace = min(now - watched.stepped, LONGEST_STEP)
    watched.held, watched.held_row, watched.stepped, watched.unwritten = rows, row, now, True


def _is_idle(watched: WatchedRequest, now: float) -> bool:
    return now - watched.stepped > max(IDLE_SECONDS, IDLE_STEPS * watched.pace)


def _own_row(rows: NormalizedRows, place: int, size: int) -> FloatArray:
    if is_tensor(rows.logits) and rows.logits.device.type != "cpu":
        import torch

        torch.accelerator.synchronize()  # the engine's thread may use another stream than this one
    return copy_row(rows.logits, int(rows.row_ids[place]), size)
