"""Answers token by token, and the one place that shows every step of a model to observers.

While transformers' `generate` writes, the model's own logits are kept by a forward hook, before any processor; a
stopping criterion sees them together with the tokens that were chosen, hands both to the observers, and says which
answers are complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from transformers import StoppingCriteria

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.methods.observers.steps import Completion, Observer, Step, finish, show
from semtoken.models.answer_text import AnswerText
from semtoken.models.transformers.choosing import AnswerChoices
from semtoken.models.transformers.inside import Inside, forward_hook, inner_model
from semtoken.models.transformers.passes import cache_of
from semtoken.support.arrays import as_rows


@dataclass(eq=False)
class BatchRow:
    """One row of a batch, with the state of the answer that is written in it."""

    answer: int
    """The answer's number among all answers of the call."""
    max_new_tokens: int
    choices: AnswerChoices
    """The way in which its tokens are chosen."""
    stop_ids: frozenset[int]
    """Tokens that end the answer."""
    stop_strings: tuple[str, ...]
    """Texts that end the answer where they are complete."""
    token_ids: list[int] = field(default_factory=list)
    text: AnswerText | None = None
    """The text of the answer, in which stop strings are looked for; None before the first token, or without them."""
    completion: Completion | None = None
    """The whole answer, once it is complete."""

    def completed(self, token: int, vocabulary: Vocabulary, ended: Collection[int]) -> Completion | None:
        """Add a token; returns the completed answer if it ends with this token, else None."""
        self.token_ids.append(token)
        stopped = token in self.stop_ids or self.answer in ended
        if self.stop_strings:
            self.text = self.text or AnswerText(vocabulary, self.stop_strings)
            self.text.add(token)
            stopped = stopped or self.text.stopped
        if stopped or len(self.token_ids) >= self.max_new_tokens:
            self.completion = Completion(self.token_ids, truncated=not stopped)
        return self.completion


def show_tokens(
    rows: Sequence[BatchRow],
    tokens: Sequence[int],
    logits: torch.Tensor,
    places: Sequence[int],
    vocabulary: Vocabulary,
    observers: Sequence[Observer],
    inside: Mapping[str, Any],
) -> set[int]:
    """Show the step in which some rows, at `places` in the logits [B, columns], get their tokens; returns the answers
    that observers end. `inside` is what observers read from inside the model.
    """
    ends = [token in row.stop_ids for row, token in zip(rows, tokens, strict=True)]
    answers = [row.answer for row in rows]
    return show(Step(answers, tokens, vocabulary.size, as_rows(logits), places, ends=ends, **inside), observers)


def add_tokens(
    rows: Sequence[BatchRow],
    tokens: Sequence[int],
    ended: Collection[int],
    vocabulary: Vocabulary,
    observers: Sequence[Observer],
) -> None:
    """Add the tokens of a step, once it was shown, to some rows; `ended` are answers that end with it in any case."""
    for row, token in zip(rows, tokens, strict=True):
        if completion := row.completed(token, vocabulary, ended):
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
            inside = self._inside.at()
            ended = show_tokens(rows, chosen, self.logits, active, self._vocabulary, self._observers, inside)
            for criterion in self._criteria:
                # A criterion may give one verdict for all rows.
                verdict = torch.as_tensor(criterion(input_ids, scores, **kwargs)).expand(len(self._rows)).tolist()
                ended |= {self._rows[place].answer for place, stops in enumerate(verdict) if stops}
            add_tokens(rows, chosen, ended, self._vocabulary, self._observers)
        self._has_passed = False
        complete = [row.completion is not None for row in self._rows]
        return torch.tensor(complete, dtype=torch.bool, device=input_ids.device)

    def close(self) -> None:
        """Complete the answers that `generate` left unfinished, because of a limit of its own (`max_time`, ...)."""
        for row in self._rows:
            if row.completion is None:
                row.completion = Completion(row.token_ids, truncated=True)
                finish(row.answer, row.completion, self._observers)
