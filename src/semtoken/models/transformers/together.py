"""Answers that are written without transformers' `generate`, together and a token each at a time: their prompts are
read in one pass, and rows of complete answers leave the batch.

`RowWriter` has the three parts of it: reading prompts, reading on, choosing tokens. `JoiningRows` adds answers that
begin at any step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.methods.observers.steps import Observer
from semtoken.models.prompt_ids import pad
from semtoken.models.transformers.caches import SharedPrefix, joined_caches
from semtoken.models.transformers.choosing import chosen_tokens
from semtoken.models.transformers.inside import Inside
from semtoken.models.transformers.passes import Passes, cache_of
from semtoken.models.transformers.writing import BatchRow, write_tokens

LEAST_KNOWN = 4
"""The fewest tokens of a known beginning that are used again; a shorter one is read again."""


@dataclass(frozen=True, eq=False)
class Together:
    """A batch of answers whose prompts were read together and that are extended together, token by token."""

    rows: list[BatchRow]
    """The n answers; n is B but for prompts that were just read, each for several answers."""
    mask: npt.NDArray[np.int64]
    """[B, T], 0 where padded at the left."""
    cache: Any
    logits: torch.Tensor
    """[B, columns] of the next token; none once it is chosen and the rows have joined others."""
    inside: Mapping[str, Any] = field(default_factory=dict)
    """The readings of observers from inside the model: fields of the `Step` that chooses the next token."""

    @property
    def places(self) -> list[int]:
        """[n] the row of each answer in the mask, the cache and the logits."""
        return [row for row in range(len(self.mask)) for _ in range(len(self.rows) // len(self.mask))]


class RowWriter:
    """Writes answers, and shows observers each step; inside `with inside.watching(model):`."""

    def __init__(self, passes: Passes, vocabulary: Vocabulary, observers: Sequence[Observer], inside: Inside) -> None:
        self.passes = passes
        self.inside = inside
        self.observers = observers
        self._vocabulary = vocabulary

    @torch.inference_mode()
    def write(self, asked: Sequence[tuple[list[int], list[BatchRow]]], known: SharedPrefix | None) -> None:
        """Write answers to prompts, as many to each, until the last of them is complete."""
        begun = self.read([ids for ids, _ in asked], [row for _, rows in asked for row in rows], known)
        part = self._chosen(begun)
        while part is not None:
            part = self.step(part)

    @torch.inference_mode()
    def write_alone(self, prompt: Sequence[int], row: BatchRow) -> None:
        """Write one answer as every model can, with a pass over prompt and answer so far for each of its tokens."""
        while row.completion is None:
            logits = self.passes.whole([*prompt, *row.token_ids], 1)
            self._choose([row], [0], logits, self.inside.at())

    def read(self, prompts: Sequence[Sequence[int]], rows: list[BatchRow], known: SharedPrefix | None) -> Together:
        """Read prompts in one pass, behind what they have in common with a known beginning."""
        batch, columns, cache = pad(prompts, 0, left=True), 0, None
        if known is not None and (columns := known.known_columns(prompts)) >= LEAST_KNOWN:
            cache = known.begun(batch.mask[:, :columns])
        else:
            columns = 0
        output = self.passes.rows(batch.ids[:, columns:], mask=batch.mask, cache=cache)
        return Together(rows, batch.mask, cache_of(output), output.logits[:, -1], self.inside.at())

    def step(self, part: Together) -> Together | None:
        """Give every answer its next token; the rows that go on, None if all answers are complete."""
        ids = np.array([[row.token_ids[-1]] for row in part.rows], dtype=np.int64)
        mask = np.concatenate([part.mask, np.ones_like(ids)], axis=1)
        output = self.passes.rows(ids, mask=mask, cache=part.cache)
        read = replace(part, mask=mask, cache=cache_of(output), logits=output.logits[:, -1], inside=self.inside.at())
        return self._chosen(read)

    def _chosen(self, part: Together) -> Together | None:
        return join_batches([(part, self.choose(part))])

    def choose(self, part: Together) -> list[int]:
        """Choose the next tokens and show the step; returns which answers go on."""
        self._choose(part.rows, part.places, part.logits, part.inside)
        return [place for place, row in enumerate(part.rows) if row.completion is None]

    def _choose(
        self, rows: Sequence[BatchRow], places: Sequence[int], logits: torch.Tensor, inside: Mapping[str, Any]
    ) -> None:
        vocabulary = self._vocabulary
        own = logits if len(places) == len(logits) else logits[list(places)]  # selecting all rows would copy them
        tokens = chosen_tokens(own[:, : vocabulary.size], [row.choices for row in rows])
        write_tokens(rows, tokens, logits, places, vocabulary, self.observers, inside)


def join_batches(parts: Sequence[tuple[Together, Sequence[int]]]) -> Together | None:
    """One batch of the answers of several batches that have not ended; None if all have."""
    left = [(part, going_on) for part, going_on in parts if going_on]
    if not left:
        return None
    first, going_on = left[0]
    if len(left) == 1 and len(going_on) == len(first.rows) == len(first.mask):
        return first
    members = [part.rows[place] for part, going_on in left for place in going_on]
    kept = [(part, list(map(part.places.__getitem__, going_on))) for part, going_on in left]
    width = max(part.mask.shape[1] for part, _ in kept)
    mask = np.concatenate([np.pad(part.mask[rows], ((0, 0), (width - part.mask.shape[1], 0))) for part, rows in kept])
    # Sequences end together in their batches, so that what is cut off at the left is padding.
    mask = mask[:, -int(mask.sum(axis=1).max()) :]
    cache = joined_caches([(part.cache, rows) for part, rows in kept], mask.shape[1])
    return Together(members, mask, cache, first.logits[:0])
