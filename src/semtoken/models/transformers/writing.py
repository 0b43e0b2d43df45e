"""Answers token by token, and the one place that shows every step of a model to observers.

While transformers' `generate` writes, the model's own logits are kept by a forward hook, before any processor; a
stopping criterion sees them together with the tokens that were chosen, hands both to the observers, and says which
answers are complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from transformers import StoppingCriteria

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.methods.observers.steps import Observer, Step, finish, show
from semtoken.models.transformers.anatomy import inner_model
from semtoken.models.transformers.choosing import AnswerChoices
from semtoken.models.transformers.inside import Inside, forward_hook
from semtoken.models.transformers.passes import cache_of
from semtoken.models.written import WrittenAnswer
from semtoken.support.arrays import as_rows


@dataclass(eq=False, kw_only=True)
class BatchRow(WrittenAnswer):
    """One row of a batch, with the state of the answer that is written in it."""

    choices: AnswerChoices
    """The way in which its tokens are chosen."""


def write_tokens(
    rows: Sequence[BatchRow],
    tokens: Sequence[int],
    logits: torch.Tensor,
    places: Sequence[int],
    vocabulary: Vocabulary,
    observers: Sequence[Observer],
    inside: Mapping[str, Any],
    ended: Collection[int] = (),
) -> None:
    """Show the step in which some rows, at `places` in the logits [B, columns], get their tokens, and add these to the
    answers. `inside` is what observers read from inside the model; `ended` are answers that end with it in any case.
    """
    ends = [token in row.stop_ids for row, token in zip(rows, tokens, strict=True)]
    answers = [row.answer for row in rows]
    step = Step(answers, tokens, vocabulary.size, as_rows(logits), places, ends=ends, **inside)
    ended = {*ended, *show(step, observers)}
    for row, token in zip(rows, tokens, strict=True):
        if completion := row.completed(token, vocabulary, ended=row.answer in ended):
            finish(row.answer, completion, observers)


class StepWatch(StoppingCriteria):  # type: ignore[misc]
    """Shows every step of the rows of one `model.generate` call to observers, inside `with watch.watching(model):`.
    Verdicts of further stopping `criteria` end answers, too.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rows: Sequence[BatchRow],
        observers: Sequence[Observer],
        criteria: Sequence[Any] = (),
    ) -> None:
        self.logits: torch.Tensor | None = None
        """[B, columns] of the newest step, before any processor."""
        self._cache: Any = None
        """Keys and values of all tokens but the newest ones."""
        self._vocabulary = vocabulary
        self._rows = rows
        self._observers = observers
        self._criteria = criteria
        self._inside = Inside(observers)
        self._thread = get_ident()
        self._has_passed = False
        """The model has read the newest tokens. Only a prompt is read in several passes, which share a cache."""

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Keep the logits of each forward pass, and the data inside the model that observers need, until the block
        ends.
        """

        def keep_logits(module: Any, args: Any, output: Any) -> None:
            cache = cache_of(output)
            again = self._has_passed and (cache is None or cache is not self._cache)
            if (
                get_ident() != self._thread or again
            ):  # another thread's, or that of a processor that asks the model, too
                return
            self.logits, self._cache = output.logits[:, -1].detach(), cache
            self._has_passed = True

        with forward_hook(inner_model(model), keep_logits), self._inside.watching(model):
            yield

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> torch.Tensor:
        """Take in one step; returns which rows are complete (bool [B])."""
        active = [place for place, row in enumerate(self._rows) if row.completion is None]
        if active:
            assert self.logits is not None, "generate inside `with watch.watching(model):`"
            tokens = input_ids[:, -1].tolist()
            rows, chosen = [self._rows[place] for place in active], [tokens[place] for place in active]
            inside, ended = self._inside.at(), set[int]()
            for criterion in self._criteria:
                # A criterion may give one verdict for all rows.
                verdict = torch.as_tensor(criterion(input_ids, scores, **kwargs)).expand(len(self._rows)).tolist()
                ended |= {self._rows[place].answer for place, stops in enumerate(verdict) if stops}
            write_tokens(rows, chosen, self.logits, active, self._vocabulary, self._observers, inside, ended)
        self._has_passed = False
        complete = [row.completion is not None for row in self._rows]
        return torch.tensor(complete, dtype=torch.bool, device=input_ids.device)

    def close(self) -> None:
        """Complete the answers that `generate` left unfinished, because of a limit of its own (`max_time`, ...)."""
        for row in self._rows:
            if row.completion is None:
                finish(row.answer, row.broken_off(), self._observers)
