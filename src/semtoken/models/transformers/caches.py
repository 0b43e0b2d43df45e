"""Keys and values of beginnings that are read once, for all the rows that go on from them.

What prompts begin with, and each prompt of which several answers are drawn, is read once and repeated for every row.
Models whose cache is of another kind read everything again for every row.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

REPEATABLE = (DynamicLayer, DynamicSlidingWindowLayer)
"""Kinds of cache layers, exactly, that hold nothing but keys and values and so can be repeated."""

SHORTEST_PREFIX = 16
"""The fewest tokens of a shared beginning that are worth a pass of their own."""


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """The keys and values of a beginning that several prompts share, which the model has read once."""

    token_ids: tuple[int, ...]
    cache: Any
    """Keys and values of one row."""

    def cut(self, columns: int) -> Any:
        """A copy of the cache with only its first tokens, to go on from."""
        cache_copy = copied(self.cache)
        for layer in _layers_with_keys(cache_copy):
            layer.keys, layer.values = layer.keys[:, :, :columns], layer.values[:, :, :columns]
            _set_length(layer, columns)
        return cache_copy

    @property
    def is_whole(self) -> bool:
        """True if all layers hold all of its tokens: one with a window may have lost the first ones."""
        return all(layer.keys.shape[2] == len(self.token_ids) for layer in _layers_with_keys(self.cache))

    def known_columns(self, prompts: Sequence[Sequence[int]]) -> int:
        """The columns of a batch of prompts, padded at the left, that need not be read: each prompt has only tokens of
        this beginning there. At least one column is left.
        """
        unread = max(len(ids) - len(shared_beginning(([*self.token_ids, 0], ids))) for ids in prompts)
        return max(map(len, prompts)) - unread

    def begun(self, mask: npt.NDArray[np.int64]) -> Any:
        """A copy of the cache for a batch of prompts whose first `known_columns` columns it holds.
        The mask [B, columns] of these is 0 where padded at the left.
        """
        # Padding takes the first column, which the attention mask hides from the model.
        batch_cache, places = copied(self.cache), torch.from_numpy(np.maximum(mask.cumsum(axis=1) - 1, 0))
        for layer in _layers_with_keys(batch_cache):
            places = places.to(layer.keys.device)
            layer.keys = layer.keys[0][:, places].transpose(0, 1)
            layer.values = layer.values[0][:, places].transpose(0, 1)
            _set_length(layer, mask.shape[1])
        return batch_cache


@dataclass(eq=False)
class ReadBefore:
    """Texts that a model has read, for prompts that begin in the same way; to be forgotten once the model changes."""

    prompt: SharedPrefix | None = None
    """The last prompt whose answer joined others."""
    trunk: SharedPrefix | None = None
    """The shared beginning of the prompts that were read together last."""

    def beginning_of(self, ids: Sequence[int]) -> tuple[Any, int]:
        """A cache of as many first tokens of a text as were read before, and how many these are."""
        cache, most = None, 0
        for known in filter(None, (self.trunk, self.prompt)):
            shared = len(shared_beginning(([*known.token_ids, 0], [*ids, 0])))
            # A layer with a window may have lost what comes before it, so that its cache cannot be cut.
            if shared > most and (shared == len(known.token_ids) or known.is_whole):
                cache, most = known.cut(shared), shared
        return cache, most

    def forget(self) -> None:
        """Drop all of it."""
        self.prompt = self.trunk = None


def read_prompt(cache: Any, token_ids: Sequence[int], columns: int) -> SharedPrefix | None:
    """A shared prefix of the first prompt in the cache of a batch of so many `columns`, padded at the left, for prompts
    that begin in the same way; None where a layer holds only the last columns.
    """
    if any(layer.keys.shape[2] < columns for layer in _layers_with_keys(cache)):
        return None
    prompt_cache = copied(cache)
    for layer in _layers_with_keys(prompt_cache):  # copies, as a view would keep the whole batch in memory
        layer.keys = layer.keys[:1, :, columns - len(token_ids) :].clone()
        layer.values = layer.values[:1, :, columns - len(token_ids) :].clone()
    return SharedPrefix(tuple(token_ids), prompt_cache)


def copied(cache: Any) -> Any:
    """A repeatable cache to go on from, so that this one can be used again; keys and values are not copied. None where
    there is none.
    """
    if cache is None:
        return None
    cache_copy = copy.copy(cache)
    cache_copy.layers = [copy.copy(layer) for layer in cache.layers]
    return cache_copy


def _layers_with_keys(cache: Any) -> list[Any]:
    """The layers that hold keys and values; others read those of another one."""
    return [layer for layer in cache.layers if layer.keys is not None and layer.keys.numel()]


def _set_length(layer: Any, tokens: int) -> None:
    """Say how many tokens a layer has seen: a sliding window counts them apart from those that it keeps."""
    if isinstance(layer, DynamicSlidingWindowLayer):
        layer.cumulative_length = tokens


def is_repeatable(cache: Any) -> bool:
    """Return True if a cache holds plain keys and values in all its layers, so that its rows can be repeated."""
    return isinstance(cache, DynamicCache) and all(type(layer) in REPEATABLE for layer in cache.layers)


def keeps_all(cache: Any) -> bool:
    """Return True if a cache is repeatable, and all of its layers keep every token."""
    return is_repeatable(cache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def joined_caches(parts: Sequence[tuple[Any, Sequence[int]]], length: int) -> Any:
    """Concatenate some rows of several repeatable caches, whose sequences end together, into the first one.
    It is padded or cut at the left to a `length` in tokens that no kept row exceeds.
    """
    first = parts[0][0]
    each = zip(*(_layers_with_keys(cache) for cache, _ in parts), strict=True)
    for layer, *others in each:
        layers = list(zip((layer, *others), (rows for _, rows in parts), strict=True))
        columns = length
        if isinstance(layer, DynamicSlidingWindowLayer):
            # One less than the window: the newest token, which is yet to be read, is part of it.
            columns = min(length, layer.sliding_window - 1)
            layer.cumulative_length = length
        for name in ("keys", "values"):
            setattr(
                layer,
                name,
                torch.cat([_fitted(getattr(part_layer, name), rows, columns) for part_layer, rows in layers]),
            )
    return first


def _fitted(states: torch.Tensor, rows: Sequence[int], columns: int) -> torch.Tensor:
    """Some rows of [B, heads, columns, size], with as many columns at the end as are asked for."""
    # Indexing copies, and caches are gigabytes.
    if list(rows) != list(range(len(states))):
        states = states[list(rows)]
    missing = columns - states.shape[2]
    return torch.nn.functional.pad(states, (0, 0, missing, 0)) if missing > 0 else states[:, :, -missing:]


def shared_beginning(sequences: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The tokens that all sequences begin with; at least one token of each sequence is left out.

    >>> shared_beginning([[5, 6, 7, 8], [5, 6, 9]])
    (5, 6)
    """
    length = min(map(len, sequences)) - 1
    first = np.array([list(ids[:length]) for ids in sequences])
    same = (first == first[0]).all(axis=0)
    length = length if same.all() else int(np.argmin(same))
    return tuple(int(token) for token in sequences[0][:length])
