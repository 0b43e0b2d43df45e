"""Answers token by token, and the one place that shows every step of a model to observers.

While transformers' `generate` writes, the model's own logits are kept by a forward hook, before any processor; a
stopping criterion sees them together with the tokens that were chosen, hands both to the observers, and says which
answers are complete. Where `generate` cannot be used, `write_plainly` goes the way that every model allows.
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
from semtoken.models.prompt_ids import AnswerText
from semtoken.models.transformers.caches import is_repeatable
from semtoken.models.transformers.choosing import AnswerChoices, chosen_tokens
from semtoken.models.transformers.inside import Inside, forward_hook, inner_model
from semtoken.models.transformers.passes import Passes, cache_of
from semtoken.support.arrays import as_rows

FEW_ROWS = 8
"""A batch of fewer rows is kept as it is: one row takes the model nearly as long."""


@dataclass(eq=False)
class BatchRow:
    """One row of a batch, with the state of the answer that is written in it."""

    answer: int
    """The answer's number among all answers of the call."""
    max_new_tokens: int
    choices: AnswerChoices
    """How its tokens are chosen."""
    stop_ids: frozenset[int]
    """Tokens that end the answer."""
    stop_strings: tuple[str, ...]
    """Texts that end the answer where they are complete."""
    token_ids: list[int] = field(default_factory=list)
    text: AnswerText | None = None
    """The text of the answer, in which stop strings are looked for; None before the first token, or without them."""

    def completed(self, token: int, vocabulary: Vocabulary, ended: Collection[int]) -> Completion | None:
        """Add a token; returns the completed answer if it ends with this token, else None."""
        self.token_ids.append(token)
        stopped = token in self.stop_ids or self.answer in ended
        if self.stop_strings:
            self.text = self.text or AnswerText(vocabulary, self.stop_strings)
            self.text.add(token)
            stopped = stopped or self.text.stopped
        if stopped or len(self.token_ids) >= self.max_new_tokens:
            return Completion(self.token_ids, truncated=not stopped)
        return None


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


@torch.inference_mode()
def write_plainly(
    passes: Passes,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    row: BatchRow,
    observers: Sequence[Observer],
) -> Completion:
    """Write one answer, with a pass over the prompt and all of the answer so far for each of its tokens."""
    inside = Inside(observers)
    with inside.watching(passes.model):
        while True:
            logits = passes.whole([*prompt, *row.token_ids], 1)
            [token] = chosen_tokens(logits[:, : vocabulary.size], [row.choices])
            ended = show_tokens([row], [token], logits, [0], vocabulary, observers, inside.at())
            if completion := row.completed(token, vocabulary, ended):
                finish(row.answer, completion, observers)
                return completion


class StepWatch(StoppingCriteria):  # type: ignore[misc]
    """Shows every step of the rows of one `model.generate` call to observers, inside `with watch.watching(model):`.
    Verdicts of further stopping `criteria` end answers, too. With `shrinks`, `generate` ends when half of the rows are
    complete, so that the others can go on in a smaller batch, if the model's cache allows that.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rows: Sequence[BatchRow],
        observers: Sequence[Observer],
        criteria: Sequence[Any] = (),
        *,
        shrinks: bool = False,
    ) -> None:
        self.logits: torch.Tensor | None = None
        """[B, columns] of the newest step, before any processor."""
        self.cache: Any = None
        """Keys and values of all tokens but the newest ones."""
        self.completions: dict[int, Completion] = {}
        """Answer -> what became of it, once it is complete."""
        self.rows = rows
        self._vocabulary = vocabulary
        self._observers = observers
        self._criteria = criteria
        self._inside = Inside(observers)
        self._done = [False] * len(rows)
        self._shrinks = shrinks
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
            again = self._has_passed and (cache is None or cache is not self.cache)
            if (
                get_ident() != self._thread or again
            ):  # another thread's, or that of a processor that asks the model, too
                return
            self.logits, self.cache = output.logits[:, -1].detach(), cache
            self._has_passed = True

        with forward_hook(inner_model(model), keep_logits), self._inside.watching(model):
            yield

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> torch.Tensor:
        """Take in one step; returns which rows are complete (bool [B]), all of them if `generate` is to end."""
        active = [row for row, done in enumerate(self._done) if not done]
        if active:
            assert self.logits is not None, "generate inside `with watch.watching(model):`"
            tokens = input_ids[:, -1].tolist()
            rows, chosen = [self.rows[row] for row in active], [tokens[row] for row in active]
            inside = self._inside.at()
            ended = show_tokens(rows, chosen, self.logits, active, self._vocabulary, self._observers, inside)
            for criterion in self._criteria:
                # A criterion may give one verdict for all rows.
                verdict = torch.as_tensor(criterion(input_ids, scores, **kwargs)).expand(len(self.rows)).tolist()
                ended |= {self.rows[row].answer for row, stops in enumerate(verdict) if stops}
            for row in active:
                if completion := self.rows[row].completed(tokens[row], self._vocabulary, ended):
                    self._end(row, completion)
        self._has_passed = False
        # On Apple's GPUs, transformers makes one step more before it ends.
        ends = self._half_done and input_ids.device.type != "mps" and is_repeatable(self.cache)
        return torch.tensor([done or ends for done in self._done], dtype=torch.bool, device=input_ids.device)

    @property
    def _half_done(self) -> bool:
        left = self._done.count(False)
        return self._shrinks and len(self._done) >= FEW_ROWS and 0 < 2 * left <= len(self._done)

    def smaller_batch(self) -> list[int]:
        """The rows that have not ended, as a batch of their own that is watched from now on; empty if all have."""
        left = [row for row, done in enumerate(self._done) if not done] if self._half_done else []
        if left:
            self.rows, self._done = [self.rows[row] for row in left], [False] * len(left)
        return left

    @property
    def tokens_left(self) -> int:
        """The largest number of tokens that a row of the batch can still get before its limit."""
        return max(row.max_new_tokens - len(row.token_ids) for row in self.rows)

    def _end(self, place: int, completion: Completion) -> None:
        self._done[place] = True
        self.completions[self.rows[place].answer] = completion
        finish(self.rows[place].answer, completion, self._observers)

    def close(self) -> None:
        """Complete the answers that `generate` left unfinished, because of a limit of its own (`max_time`, ...)."""
        for place, done in enumerate(self._done):
            if not done:
                self._end(place, Completion(self.rows[place].token_ids, truncated=True))
