"""Answers token by token: how the next one is chosen, and the one place that shows every step of a model to observers.

Sampling has a stream of random numbers for each answer, so that up to rounding its batch cannot matter.

While transformers' `generate` writes, the model's own logits are kept by a forward hook, before any processor; a
stopping criterion sees them together with the tokens that were chosen, hands both to the observers, and says which
answers are complete. Where `generate` cannot be used, `write_plainly` goes the way that every model allows.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, MinPLogitsWarper, StoppingCriteria, TopKLogitsWarper, TopPLogitsWarper

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import InvalidInputError
from semtoken.methods.observers.steps import Completion, Observer, Step, finish, show
from semtoken.models.base import Decoding
from semtoken.models.prompt_ids import AnswerText, draw_key
from semtoken.models.transformers.caches import is_repeatable
from semtoken.models.transformers.inside import Inside, forward_hook, inner_model
from semtoken.models.transformers.passes import Passes, cache_of
from semtoken.support.arrays import as_rows

FAN = 16
"""How many branches each node has of the tree in which a token is drawn."""
ROWS = 16
"""For how many rows tokens are drawn together on the CPU: copies of so few stay in its cache, which is four times as
fast."""


def draw(
    logits: torch.Tensor, streams: Sequence[np.random.Generator], temperature: float, warpers: Sequence[Any] = ()
) -> torch.Tensor:
    """Draw ids [B] from logits [B, V], at a temperature and then through `warpers` (top-k, top-p, ...).
    Every answer has its own stream of random numbers (`drawn_places`), so apart from rounding a draw does not depend on
    the other rows; the last bits of logits change a token about as rarely as they change the probabilities.
    """
    if not 0 < temperature < float("inf"):
        raise InvalidInputError(f"temperature must be a positive number, got {temperature!r}.")
    depth = depth_of(logits.shape[1])
    drawn = np.array([stream.random(depth) for stream in streams]).reshape(-1, depth)
    numbers = torch.from_numpy(drawn).to(logits.device)
    some = ROWS if logits.device.type == "cpu" else len(logits)
    draws = []
    for part, places in zip(torch.split(logits, some), torch.split(numbers, some), strict=True):
        scaled = part.float()
        scaled = scaled - scaled.amax(-1, keepdim=True)  # from the best, so that none overflows
        # A temperature below the smallest float32 would become 0 in it.
        scaled /= max(temperature, torch.finfo(scaled.dtype).tiny)
        for warper in warpers:
            scaled = warper(None, scaled)
        draws.append(drawn_places(scaled.exp_(), places))
    return torch.cat(draws)


def depth_of(size: int) -> int:
    """The depth of the tree by which one of this many places is drawn, at least 1."""
    depth = 1
    while FAN**depth < size:
        depth += 1
    return depth


def drawn_places(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Draw places [B] by weights [B, V] >= 0 (not all of a row 0); places of weight zero are never drawn.
    `numbers` [B, `depth_of(V)`], independent in [0, 1), choose the branches of a tree by the sums below them. In one
    running sum over all tokens, the rounding of a single logit would move all borders behind it, and among thousands of
    improbable tokens a number often lies at one.
    """
    size, rows = weights.shape[1], torch.arange(len(weights), device=weights.device)
    levels = []
    for _ in range(numbers.shape[1]):
        missing = -weights.shape[1] % FAN
        levels.append(torch.nn.functional.pad(weights, (0, missing)).reshape(len(weights), FAN, -1))
        weights = levels[-1].sum(1, dtype=torch.float64)  # branches of a node lie apart: sums run along the memory
    place = torch.zeros_like(rows)
    for level, number in zip(reversed(levels), numbers.unbind(1), strict=True):
        place = place.clamp(
            max=level.shape[2] - 1
        )  # rows with NaN alone end in the padding: their step is refused later
        inner = level[rows, :, place].cumsum(-1, dtype=torch.float64)
        branch = torch.searchsorted(inner, number[:, None] * inner[:, -1:], right=True)[:, 0]
        place = branch.clamp(max=FAN - 1) * level.shape[2] + place
    return place.clamp(max=size - 1)


class Sampling(LogitsProcessor):  # type: ignore[misc]
    """Draws the tokens of the rows that are sampled, never a column beyond `size`, and leaves others to greedy
    decoding.
    """

    def __init__(self, answers: Sequence[AnswerChoices], size: int) -> None:
        self._size = size
        self._answers = answers
        self._greedy = [row for row, answer in enumerate(answers) if answer.settings is None]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Leave only the drawn token possible."""
        chosen = torch.full_like(scores, -torch.inf)
        chosen[self._greedy] = scores[self._greedy]
        for rows, tokens in drawn_tokens(scores[:, : self._size], self._answers):
            chosen[rows, tokens] = 0.0
        return chosen


@dataclass(frozen=True, eq=False)
class AnswerChoices:
    """How the tokens of one answer are chosen: drawn with its own random numbers, or always the most probable one."""

    settings: tuple[float, float, int, float] | None
    """Temperature, top-p, top-k and min-p; None for the best token."""
    stream: np.random.Generator | None
    """The answer's own random numbers; None where nothing is drawn."""

    @classmethod
    def of(cls, decoding: Decoding, prompt: Sequence[int], sample: int = 0) -> AnswerChoices:
        """How the tokens of the answer with number `sample` to a prompt are chosen."""
        if decoding.temperature == 0:
            return cls(None, None)
        settings = (decoding.temperature, decoding.top_p, decoding.top_k, decoding.min_p)
        seed = secrets.randbits(63) if decoding.seed is None else decoding.seed
        return cls(settings, np.random.default_rng(draw_key(seed, prompt, sample)))


def chosen_tokens(logits: torch.Tensor, answers: Sequence[AnswerChoices]) -> list[int]:
    """Choose the next token of n answers from their rows of logits [n, V], each by its own settings."""
    tokens = logits.argmax(-1)
    for rows, drawn in drawn_tokens(logits, answers):
        tokens[rows] = drawn
    chosen: list[int] = tokens.tolist()
    return chosen


def drawn_tokens(
    logits: torch.Tensor, answers: Sequence[AnswerChoices]
) -> Iterator[tuple[Sequence[int], torch.Tensor]]:
    """Draw the next tokens from logits [n, V], for each group of rows with the same sampling settings."""
    groups: dict[tuple[float, float, int, float], list[int]] = {}
    for row, answer in enumerate(answers):
        if answer.settings is not None:
            groups.setdefault(answer.settings, []).append(row)
    for (temperature, top_p, top_k, min_p), rows in groups.items():
        streams = [stream for row in rows if (stream := answers[row].stream) is not None]
        # Selecting all rows would copy them.
        mine = logits if len(rows) == len(logits) else logits[rows]
        yield rows, draw(mine, streams, temperature, _warpers(top_p, top_k, min_p))


def _warpers(top_p: float, top_k: int, min_p: float) -> list[Any]:
    """The warpers of these settings, in the order in which transformers applies them."""
    warpers: list[Any] = []
    if top_k > 0:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    if min_p > 0:
        warpers.append(MinPLogitsWarper(min_p))
    return warpers


FEW_ROWS = 8
"""A batch of fewer rows is kept as it is: one row takes the model nearly as long."""


@dataclass(eq=False)
class BatchRow:
    """One row of a batch, with the state of the answer that is written in it."""

    answer: int
    """The answer's number among all answers of the call."""
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end the answer."""
    stop_strings: tuple[str, ...] = ()
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
    choices: AnswerChoices,
    observers: Sequence[Observer],
) -> Completion:
    """Write one answer, with a pass over the prompt and all of the answer so far for each of its tokens."""
    inside = Inside(observers)
    with inside.watching(passes.model):
        while True:
            logits = passes.whole([*prompt, *row.token_ids], 1)
            [token] = chosen_tokens(logits[:, : vocabulary.size], [choices])
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
        self._vocabulary = vocabulary
        self._rows = rows
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
            rows, chosen = [self._rows[row] for row in active], [tokens[row] for row in active]
            inside = self._inside.at()
            ended = show_tokens(rows, chosen, self.logits, active, self._vocabulary, self._observers, inside)
            for criterion in self._criteria:
                verdict = torch.as_tensor(criterion(input_ids, scores, **kwargs)).expand(len(self._rows)).tolist()
                ended |= {self._rows[row].answer for row, stops in enumerate(verdict) if stops}
            for row in active:
                if completion := self._rows[row].completed(tokens[row], self._vocabulary, ended):
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
            self._rows, self._done = [self._rows[row] for row in left], [False] * len(left)
        return left

    @property
    def tokens_left(self) -> int:
        """The largest number of tokens that a row of the batch can still get before its limit."""
        return max(row.max_new_tokens - len(row.token_ids) for row in self._rows)

    def _end(self, place: int, completion: Completion) -> None:
        self._done[place] = True
        self.completions[self._rows[place].answer] = completion
        finish(self._rows[place].answer, completion, self._observers)

    def close(self) -> None:
        """Complete the answers that `generate` left unfinished, because of a limit of its own (`max_time`, ...)."""
        for place, done in enumerate(self._done):
            if not done:
                self._end(place, Completion(self._rows[place].token_ids, truncated=True))
