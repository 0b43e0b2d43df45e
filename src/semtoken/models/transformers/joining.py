"""Answers that are written together and begin and end one by one, as a server needs it.

The prompts that wait are read in one pass and join the batch. What all of them have in common with the prompt that was
read last, such as the system's part of a chat, is not read again.

A long prompt is read in pieces, one before each step, no longer than the answers that are being written can wait
(`Pace`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch

from semtoken.methods.observers.steps import Completion, finish
from semtoken.models.base import Arrival
from semtoken.models.pace import Pace, has_room, is_long
from semtoken.models.transformers.caches import ReadBefore, SharedPrefix, read_prompt, shared_beginning
from semtoken.models.transformers.passes import cache_of
from semtoken.models.transformers.together import LEAST_KNOWN, RowWriter, Together, join_batches
from semtoken.models.transformers.writing import BatchRow


@dataclass(eq=False)
class _WaitingAnswer:
    """An answer whose prompt has not been read to its end."""

    row: BatchRow
    arrival: Arrival
    cache: Any = None
    """Keys and values of the pieces of the prompt that have been read, if any."""
    read: int = 0
    """Tokens of the prompt that are in it."""
    _compared: SharedPrefix | None = None
    _shared: int = 0
    """Tokens that the prompt has in common with that."""

    def unread(self, known: SharedPrefix | None) -> int:
        """The number of tokens of the prompt that the model still has to read, given a beginning that it has read for
        another prompt.
        """
        ids = self.arrival.prompt_ids
        if self.cache is not None or known is None:
            return len(ids) - self.read
        if known is not self._compared:
            self._compared, self._shared = known, len(shared_beginning(([*known.token_ids, 0], ids)))
        return len(ids) - self._shared


class JoiningRows:
    """The answers that are being written together, which others can join at any step; observers receive each step."""

    def __init__(self, writer: RowWriter, read_before: ReadBefore) -> None:
        self._writer = writer
        self._read_before = read_before
        self._running: Together | None = None
        self._waiting: list[_WaitingAnswer] = []
        self._pace = Pace()

    def __bool__(self) -> bool:
        return self._running is not None or bool(self._waiting)

    def forget(self) -> None:
        """Drop what has been read of prompts whose answers have not begun: the model has changed."""
        self._read_before.forget()
        for waiting in self._waiting:
            waiting.cache, waiting.read = None, 0

    @torch.inference_mode()
    def advance(self, newcomers: Sequence[tuple[BatchRow, Arrival]]) -> None:
        """Read as much of the waiting prompts as the pace allows, and add a token to every running answer."""
        self._waiting += [_WaitingAnswer(row, arrival) for row, arrival in newcomers]
        self._drop_unwanted()
        if self._waiting:
            self._begin(0 if self._running is None else len(self._running.rows))
        if self._running is not None:
            started = perf_counter()
            self._running = self._writer.step(self._running)
            self._pace.note_step(perf_counter() - started)

    def _begin(self, running: int) -> None:
        """Read prompts, short ones whole, and choose the first tokens of their answers."""
        unread = [(waiting, waiting.unread(self._read_before.prompt)) for waiting in self._waiting]
        budget = self._pace.budget(len(self._waiting), running)
        short = _whole([(waiting, count) for waiting, count in unread if waiting.cache is None], budget)
        begun = [self._read(short)] if short else []
        long = [waiting for waiting, count in unread if waiting.cache is not None or is_long(count, budget)]
        if long:
            first = max(long, key=lambda waiting: waiting.read)  # a prompt that was begun is read to its end
            started, before = perf_counter(), first.read
            begun += self._read_piece(first, budget)
            self._pace.note_reading(perf_counter() - started, first.read - before, len(self._waiting), running)
        self._waiting = [
            waiting
            for waiting in self._waiting
            if waiting not in short and waiting.read < len(waiting.arrival.prompt_ids)
        ]
        parts = [] if self._running is None else [(self._running, range(running))]
        self._running = join_batches([*parts, *((part, self._writer.choose(part)) for part in begun)])

    def _drop_unwanted(self) -> None:
        """End the answers that nobody waits for any more before their prompts are read."""
        for waiting in [waiting for waiting in self._waiting if not waiting.arrival.is_wanted()]:
            self._waiting.remove(waiting)
            finish(waiting.row.answer, Completion([], truncated=True), self._writer.observers)

    def _read_piece(self, waiting: _WaitingAnswer, most: int) -> list[Together]:
        """Read a piece of a long prompt; after its last piece its answer can begin."""
        ids, known = waiting.arrival.prompt_ids, self._read_before.prompt
        if waiting.cache is None and known is not None and (shared := len(ids) - waiting.unread(known)) >= LEAST_KNOWN:
            waiting.cache, waiting.read = known.cut(shared), shared
        stop = min(waiting.read + most, len(ids))
        output = self._writer.passes.piece(ids, waiting.read, stop, waiting.cache)
        waiting.cache, waiting.read = cache_of(output), stop
        if stop < len(ids):
            return []
        # The next prompt often begins in the same way, such as with the system's part of a chat.
        self._read_before.prompt = read_prompt(waiting.cache, ids, len(ids))
        mask = np.ones((1, stop), dtype=np.int64)
        return [Together([waiting.row], mask, waiting.cache, output.logits[:, -1], self._writer.inside.at())]

    def _read(self, newcomers: Sequence[_WaitingAnswer]) -> Together:
        """Read the prompts of answers that begin in one pass, behind what they have in common with the last one."""
        prompts = [newcomer.arrival.prompt_ids for newcomer in newcomers]
        part = self._writer.read(prompts, [newcomer.row for newcomer in newcomers], self._read_before.prompt)
        self._read_before.prompt = read_prompt(part.cache, prompts[0], part.mask.shape[1])
        return part


def _whole(waiting: Sequence[tuple[_WaitingAnswer, int]], budget: int) -> list[_WaitingAnswer]:
    """The prompts that are read to their end before the next step."""
    answers, total = [], 0
    for answer, count in waiting:
        if has_room(count, total, budget):
            answers.append(answer)
            total += count
    return answers
