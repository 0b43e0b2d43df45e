"""Answers that are given, not written: their steps, in as few passes as the model allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.methods.observers.steps import Completion, Observer, Step, finish, show
from semtoken.models.prompt_ids import pad
from semtoken.models.transformers.images import ImagePasses, ImagePrompt
from semtoken.models.transformers.inside import Inside
from semtoken.models.transformers.passes import Passes, cache_of
from semtoken.models.transformers.proof import Proof
from semtoken.support.arrays import as_rows

MOST_LOGITS = 2**25
"""The most logits that exist at one time when replies are read, unless those of one token of each reply are more."""


@dataclass(frozen=True, eq=False)
class GivenTexts:
    """Reads texts behind prompts with a model, whose next-token distributions are those of a plain pass."""

    passes: Passes
    proof: Proof
    """The ways of reading the model that are equal to a plain pass; no other is used."""
    vocabulary: Vocabulary
    columns: int
    """The number of logits that the model gives for each token."""
    padding: int
    """The token that fills shorter rows of a batch."""
    images: ImagePasses

    def show(
        self,
        prompts: list[list[int]],
        replies: list[list[int]],
        observers: Sequence[Observer],
        batch_size: int,
        chunk_size: int | None,
    ) -> None:
        """Show observers the steps of a generation that chose these replies, `chunk_size` of them at one time."""
        inside = Inside(observers)
        batch_size = self._rows_together(prompts, batch_size)
        for first in range(0, len(prompts), batch_size):
            batch = range(first, min(first + batch_size, len(prompts)))
            chunk = chunk_size or max(1, MOST_LOGITS // (len(batch) * self.columns))
            with inside.watching(self.passes.model):
                for step in self._steps(batch, prompts, replies, chunk, inside):
                    show(step, observers)
            for number in batch:
                finish(number, Completion(replies[number], truncated=None), observers)

    def _steps(
        self, batch: Sequence[int], prompts: list[list[int]], replies: list[list[int]], chunk: int, inside: Inside
    ) -> Iterator[Step]:
        """The steps of a generation that chose these replies."""
        mine = [replies[number] for number in batch]
        step = 0
        for logits in self._logits([prompts[number] for number in batch], mine, chunk):
            width = logits.shape[1]
            for i in range(width):
                rows = [row for row, ids in enumerate(mine) if len(ids) > step]
                yield Step(
                    answers=[batch[row] for row in rows],
                    tokens=[mine[row][step] for row in rows],
                    size=self.vocabulary.size,
                    logits=as_rows(logits[:, i]),
                    rows=rows,
                    **inside.at(i - width),
                )
                step += 1

    @torch.no_grad()
    def _logits(self, prompts: list[list[int]], replies: list[list[int]], chunk: int) -> Iterator[torch.Tensor]:
        """Logits from which the tokens of the replies are drawn, in order: [B, steps, columns], `chunk` steps at most.
        Prompts are read with the first chunk of the replies; others follow on the cache.
        """
        # Blank replies have no steps, and nothing needs to be read.
        if not any(replies):
            return
        if isinstance(prompts[0], ImagePrompt):
            yield self.images.whole(prompts[0], replies[0][:-1], len(replies[0]))[None]
            return
        if not self.proof.continued:
            [prompt_ids], [reply_ids] = prompts, replies
            yield self.passes.whole([*prompt_ids, *reply_ids[:-1]], len(reply_ids))[None]
            return
        prompt, reply = pad(prompts, self.padding, left=True), pad(replies, self.padding, left=False)
        ids = np.concatenate([prompt.ids, reply.ids[:, :-1]], axis=1)  # nothing is drawn after the last token
        mask = np.concatenate([prompt.mask, np.ones_like(reply.ids[:, :-1])], axis=1)
        # The first token of a reply is drawn behind the last token of its prompt.
        begin, first, cache = 0, prompt.ids.shape[1] - 1, None
        while begin < ids.shape[1]:
            stop = min(first + chunk, ids.shape[1])
            output = self.passes.rows(ids[:, begin:stop], mask=mask[:, :stop], cache=cache, keep=stop - first)
            yield output.logits[:, first - stop :]
            begin = first = stop
            cache = cache_of(output)

    def _rows_together(self, prompts: Sequence[list[int]], batch_size: int) -> int:
        """The number of prompts to read in one pass: one where the model reads rows otherwise than texts alone."""
        images = any(isinstance(ids, ImagePrompt) for ids in prompts)
        return batch_size if self.proof.padded and self.proof.continued and not images else 1
