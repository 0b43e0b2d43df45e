"""Sampling with a stream of random numbers for each answer, so that its batch cannot matter."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from semtoken._extras import require
from semtoken.backends.base import Decoding
from semtoken.backends.seeds import draw_key
from semtoken.errors import InvalidInput

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import (  # noqa: E402
    LogitsProcessor,
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


class SeededDraws:
    """Draws one token for each answer of a batch, the same ones whatever else is in the batch.

    Every answer has its own stream of random numbers, one number a token: the token where the running sum of
    its probabilities passes that number. Two batches may differ in the last bits of their logits; that changes a
    token only if the number lies that close to a border.

    Parameters
    ----------
    keys
        One list of integers for each answer; equal keys, equal draws.
    temperature
        The logits are divided by it.
    warpers
        Logits processors of transformers that leave tokens out (top-k, top-p, ...), applied after the temperature.
    """

    def __init__(self, keys: Sequence[Sequence[int]], temperature: float, warpers: Sequence[Any] = ()) -> None:
        if not 0 < temperature < float("inf"):
            raise InvalidInput(f"temperature must be a positive number, got {temperature!r}.")
        self._streams = [np.random.default_rng(list(key)) for key in keys]
        self._temperature = temperature
        self._warpers = warpers

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [B, V] -> ids [B]."""
        exact = logits.double()
        scaled = (exact - exact.amax(-1, keepdim=True)) / self._temperature  # from the best, so that none overflows
        for warper in self._warpers:
            scaled = warper(None, scaled)
        sums = scaled.softmax(-1).cumsum(-1)
        numbers = torch.tensor([stream.random() for stream in self._streams], dtype=sums.dtype, device=sums.device)
        passed = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
        return passed.clamp(max=logits.shape[1] - 1)


class Sampling(LogitsProcessor):  # type: ignore[misc]
    """A logits processor that draws the tokens of the rows that are sampled, and leaves the others to greedy decoding.

    Parameters
    ----------
    prompts
        Token ids of each row's prompt.
    samples
        Number of each row among the answers to its prompt.
    decodings
        Of each row. Without a seed its draws cannot be repeated.
    size
        V; columns of a padded head beyond it are never drawn.
    """

    def __init__(
        self, prompts: Sequence[Sequence[int]], samples: Sequence[int], decodings: Sequence[Decoding], size: int
    ) -> None:
        self._size = size
        groups: dict[tuple[float, float, int, float], list[int]] = {}
        for row, decoding in enumerate(decodings):
            if decoding.temperature > 0:
                key = (decoding.temperature, decoding.top_p, decoding.top_k, decoding.min_p)
                groups.setdefault(key, []).append(row)
        self._groups = [
            (rows, SeededDraws([_key(decodings[i], prompts[i], samples[i]) for i in rows], key[0], _warpers(*key[1:])))
            for key, rows in groups.items()
        ]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Leave only the drawn token possible."""
        chosen = scores.clone()
        for rows, draws in self._groups:
            drawn = draws(scores[rows, : self._size])
            chosen[rows] = -torch.inf
            chosen[rows, drawn] = 0.0
        return chosen


def _key(decoding: Decoding, prompt: Sequence[int], sample: int) -> list[int]:
    return draw_key(secrets.randbits(63) if decoding.seed is None else decoding.seed, prompt, sample)


def _warpers(top_p: float, top_k: int, min_p: float) -> list[Any]:
    """In the order in which transformers applies them."""
    found: list[Any] = []
    if top_k > 0:
        found.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        found.append(TopPLogitsWarper(top_p))
    if min_p > 0:
        found.append(MinPLogitsWarper(min_p))
    return found
