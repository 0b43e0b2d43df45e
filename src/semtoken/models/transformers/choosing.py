"""The choice of the next token of an answer: the best one, or one that is drawn with random numbers of its own.

Sampling has a stream of random numbers for each answer, so that up to rounding its batch cannot matter.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from semtoken.errors import InvalidInputError
from semtoken.models.base import Decoding
from semtoken.models.prompt_ids import draw_key

FAN = 16
"""The number of branches of each node of the tree in which a token is drawn."""
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
    """The choices of an answer's tokens: drawn with random numbers of its own, or always the most probable one."""

    settings: tuple[float, float, int, float] | None
    """Temperature, top-p, top-k and min-p; None for the best token."""
    stream: np.random.Generator | None
    """The answer's own random numbers; None where nothing is drawn."""

    @classmethod
    def of(cls, decoding: Decoding, prompt: Sequence[int], sample: int = 0) -> AnswerChoices:
        """The choices for the answer with number `sample` to a prompt."""
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
