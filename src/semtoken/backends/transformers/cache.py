"""Prompts read once: the beginning that all of them share, and each prompt although several answers are drawn from it.

Both rest on the model's cache of keys and values, which is repeated for every row that goes on from it. Models whose
cache is of another kind read everything again for every row.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken._extras import require

require("torch", extra="transformers")
require("transformers", extra="transformers")

from transformers import DynamicCache  # noqa: E402
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer  # noqa: E402

REPEATABLE = (DynamicLayer, DynamicSlidingWindowLayer)
"""Kinds of cache layers, exactly, that hold nothing but keys and values and so can be repeated."""

SHORTEST_PREFIX = 16
"""Tokens; a shorter beginning is not worth a pass of its own."""


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """A beginning of prompts, read."""

    token_ids: tuple[int, ...]
    cache: Any
    """Keys and values of one row."""

    def repeated(self, rows: int) -> Any:
        """A cache of its own for a batch."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(rows)
        return cache


def is_repeatable(cache: Any) -> bool:
    """Whether the rows of a cache can be repeated."""
    return isinstance(cache, DynamicCache) and all(type(layer) in REPEATABLE for layer in cache.layers)


def shared_beginning(sequences: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The tokens that all sequences begin with, at least one token of each left out.

    >>> shared_beginning([[5, 6, 7, 8], [5, 6, 9]])
    (5, 6)
    """
    length = min(map(len, sequences)) - 1
    first = np.array([list(ids[:length]) for ids in sequences])
    same = (first == first[0]).all(axis=0)
    length = length if same.all() else int(np.argmin(same))
    return tuple(int(token) for token in sequences[0][:length])
