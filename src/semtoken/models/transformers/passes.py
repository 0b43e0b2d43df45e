"""Single forward passes of a transformers model: a text alone, rows of a batch behind a cache, a tree of tokens.

Whatever is read once rests on the model's cache of keys and values: the beginning that prompts share, and each prompt
although several answers are drawn from it. It is repeated for every row that goes on from it. Models whose cache is of
another kind read everything again for every row.

Several texts as one tree of tokens: what some of them begin with is in it once, and nothing is padded.

The tree is read as one row. Its mask lets every token see only those that come before it in its own text. A
`PromptTree` is read in one pass. A `GrowingTree` holds many questions about one text: the first look says where to look
next, so further tokens are read behind any place of it, with the keys and values of all that was read before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation.utils import ALL_CACHE_NAMES

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.support.arrays import BoolArray, IdArray

CACHE: str = ALL_CACHE_NAMES[0]
"""What the installed transformers calls the cache, as an argument and in what a pass returns."""
ARGUMENTS = frozenset({"position_ids", "logits_to_keep"})
"""Arguments that some models need or follow, and others refuse."""


def cache_of(output: Any) -> Any:
    """The cache that a pass of a model returns, or None."""
    return getattr(output, CACHE, None)


@dataclass(frozen=True)
class Passes:
    """How a model is called."""

    model: Any
    takes: frozenset[str] = frozenset()
    """Those of `ARGUMENTS` that it is given."""

    @property
    def device(self) -> torch.device:
        """Where its inputs go: where its embeddings are, or its first weights that are in memory."""
        weights = chain([self.model.get_input_embeddings().weight], self.model.parameters())
        return next((weight.device for weight in weights if not weight.is_meta), torch.device("cpu"))

    def whole(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        """Read a text alone in one pass; gives the logits [keep, columns] of its last tokens.
        All other ways of reading are compared with this one.
        """
        tensor = torch.tensor([list(ids)], device=self.device)
        kept = {"logits_to_keep": keep} if "logits_to_keep" in self.takes else {}
        logits: torch.Tensor = self.model(input_ids=tensor, **kept).logits[0, -keep:]
        return logits

    def rows(self, ids: IdArray, *, mask: npt.NDArray[np.int64], cache: Any = None, keep: int = 1) -> Any:
        """Run the model once over columns `ids` [B, n] of a batch; `mask` [B, T] has all tokens so far, these included.
        Logits of the last `keep` positions are wanted; a model that cannot leave out the others gives all.
        """
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, -ids.shape[1] :]
        return self._call(ids, torch.from_numpy(mask), positions, cache, keep)

    def nodes(self, ids: IdArray, seen: BoolArray, positions: IdArray, cache: Any, keep: IdArray) -> Any:
        """Run the model once over N tokens, each of which sees only some of the tokens before it, as in a tree.
        `seen` [N, K + N] says which of the K in the cache, and of these; `positions` [N] are places in their texts.
        """
        hidden = torch.from_numpy(~seen)[None, None]
        mask = torch.zeros(hidden.shape, dtype=self.model.dtype).masked_fill_(hidden, torch.finfo(self.model.dtype).min)
        return self._call(ids[None], mask, positions[None], cache, torch.from_numpy(keep))

    def _call(self, ids: IdArray, mask: torch.Tensor, positions: IdArray, cache: Any, keep: int | torch.Tensor) -> Any:
        device = self.device
        optional = {
            "position_ids": torch.from_numpy(positions).to(device),
            "logits_to_keep": keep if isinstance(keep, int) else keep.to(device),
        }
        options = {name: value for name, value in optional.items() if name in self.takes}
        if cache is not None:
            options[CACHE] = cache
        tensors = {"input_ids": torch.from_numpy(ids).to(device), "attention_mask": mask.to(device)}
        return self.model(**tensors, **options, use_cache=True)


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
        return cache_copy

    def repeated(self, rows: int) -> Any:
        """A copy of the cache with this many equal rows, for a batch."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(rows)
        return cache

    def known_columns(self, prompts: Sequence[Sequence[int]]) -> int:
        """The columns of a batch of prompts, padded at the left, that need not be read: each prompt has only tokens of
        this beginning there. At least one column is left.
        """
        unread = max(len(ids) - len(shared_beginning((self.token_ids, ids))) for ids in prompts)
        return max(map(len, prompts)) - unread

    def begun(self, mask: npt.NDArray[np.int64]) -> Any:
        """A copy of the cache for a batch of prompts whose first `known_columns` columns it holds.
        The mask [B, columns] of these is 0 where padded at the left.
        """
        return rows_of(self.cache, np.maximum(mask.cumsum(axis=1) - 1, 0))


def rows_of(cache: Any, columns: npt.NDArray[np.int64]) -> Any:
    """A repeatable cache for a batch, whose rows are made of columns [B, T] of the first row of another cache."""
    batch_cache, places = copied(cache), torch.from_numpy(columns)
    for layer in _layers_with_keys(batch_cache):
        places = places.to(layer.keys.device)
        layer.keys = layer.keys[0][:, places].transpose(0, 1)
        layer.values = layer.values[0][:, places].transpose(0, 1)
        if isinstance(layer, DynamicSlidingWindowLayer):
            layer.cumulative_length = columns.shape[1]
    return batch_cache


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
    """A repeatable cache to go on from, so that this one can be used again; keys and values are not copied."""
    cache_copy = copy.copy(cache)
    cache_copy.layers = [copy.copy(layer) for layer in cache.layers]
    return cache_copy


def _layers_with_keys(cache: Any) -> list[Any]:
    """The layers that hold keys and values; others read those of another one."""
    return [layer for layer in cache.layers if layer.keys is not None and layer.keys.numel()]


def is_repeatable(cache: Any) -> bool:
    """Whether a cache holds plain keys and values in all its layers, so that its rows can be repeated."""
    return isinstance(cache, DynamicCache) and all(type(layer) in REPEATABLE for layer in cache.layers)


def keeps_all(cache: Any) -> bool:
    """Whether a cache is repeatable, and all of its layers keep every token."""
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


MOST_NODES = 512
"""The most tokens of a tree besides what all its prompts begin with. Its mask is as large as their square."""
CHUNK = 512
"""How many tokens of a shared beginning are read at one time, if nobody says otherwise."""


class ReadsTokens(Protocol):
    """The part of a backend that `JoiningRows` and `GrowingTree` read tokens by; `TransformersBackend` is one."""

    def has_other_weights(self) -> bool:
        """Whether the weights were changed since prompts were read."""

    def forget_prompts(self) -> None:
        """Drop what was read of prompts."""

    last_prompt: SharedPrefix | None
    """The prompt that was read last, for those that begin in the same way."""
    last_trunk: SharedPrefix | None
    """What all prompts of the last tree begin with."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model."""

    @property
    def reads_trees(self) -> bool:
        """Whether the model can read several prompts in one pass as a tree of tokens."""

    @property
    def passes(self) -> Passes:
        """How the model is called."""


class TokenTree:
    """N tokens, its nodes, that are read behind K known ones."""

    def __init__(self, known: int) -> None:
        self.known = known
        """K."""
        self.places: dict[tuple[int, int], int] = {}
        """(place of the token before, token) -> its place among the known tokens and the nodes behind them."""
        self.positions = [*range(known)]
        """[K + N] the place of each token in its text."""
        self.seen: BoolArray = np.zeros((0, known), dtype=bool)
        """[N, K + N] which tokens each node sees: itself and those before it in its text."""

    def place(self, before: int, token: int) -> int:
        """The place of a token behind another one, -1 for the beginning. A new node counts from `grow` on."""
        return self.places.setdefault((before, token), self.known + len(self.places))

    def ids(self, first: int = 0) -> IdArray:
        """The tokens of the nodes from one on."""
        return np.array([token for _, token in islice(self.places, first, None)], dtype=np.int64)

    def grow(self) -> None:
        """Take in the new nodes."""
        old, known, size = len(self.seen), self.known, len(self.places)
        seen = np.zeros((size, known + size), dtype=bool)
        seen[:old, : known + old] = self.seen
        for node, (before, _) in enumerate(islice(self.places, old, None), start=old):
            if before < known:
                seen[node, : before + 1] = True
            else:
                seen[node] = seen[before - known]
            seen[node, known + node] = True
            self.positions.append(self.positions[before] + 1 if before >= 0 else 0)
        self.seen = seen

    def cut(self, size: int) -> None:
        """Leave only the first nodes."""
        self.places = dict(islice(self.places.items(), size))
        self.positions, self.seen = self.positions[: self.known + size], self.seen[:size, : self.known + size]


@dataclass(frozen=True, eq=False)
class PromptTree:
    """N tokens of several prompts that the model is to read in one pass, behind K tokens that it has read."""

    ids: IdArray
    """Token ids of the tree's nodes, [N]."""
    positions: IdArray
    """[N] the place of each token in its prompt."""
    seen: BoolArray
    """[N, K + N] which of the known tokens, and of those of the tree, each of them sees: itself and those before it."""
    columns: Sequence[Sequence[int]]
    """The place of every token among all K + N, for each prompt."""

    @property
    def last(self) -> IdArray:
        """For each prompt, the place of its last token among the N tokens."""
        known = self.seen.shape[1] - self.seen.shape[0]
        return np.array([places[-1] - known for places in self.columns])

    def padded(self) -> tuple[IdArray, IdArray]:
        """`columns` as rows that end together, and their mask, 0 where padded at the left."""
        lengths = np.array([len(places) for places in self.columns])
        mask = np.arange(lengths.max())[::-1] < lengths[:, None]
        places = np.zeros(mask.shape, dtype=np.int64)
        places[mask] = np.concatenate(self.columns)
        return places, mask.astype(np.int64)


def prompt_tree(prompts: Sequence[Sequence[int]], known: Sequence[int] = ()) -> PromptTree:
    """The tree of some prompts. The last token of each is to be read although it may be known.

    >>> prompt_tree([[5, 6, 7], [5, 6, 8], [5]], known=[5, 9]).ids
    array([6, 7, 8, 5])
    """
    tree, columns = TokenTree(len(known)), []
    for ids in prompts:
        before, places = -1, []
        for position, token in enumerate(ids):
            if before == position - 1 and position < min(len(known), len(ids) - 1) and known[position] == token:
                before = position  # still within what is known
            else:
                before = tree.place(before, token)
            places.append(before)
        columns.append(places)
    tree.grow()
    return PromptTree(tree.ids(), np.array(tree.positions[len(known) :], dtype=np.int64), tree.seen, columns)


def groups_of(prompts: Sequence[Sequence[int]], most: int = MOST_NODES) -> list[list[int]]:
    """Divide prompts into groups whose trees stay small, in order; a prompt that shares too little is alone.

    What a prompt shares with the one before it counts once, all but its last token.

    >>> groups_of([[1, 2, 3], [1, 2, 3], [1, 2, 4], [5, 6, 7]], most=3)
    [[0, 1, 2], [3]]
    """
    groups: list[list[int]] = []
    trunk = total = 0
    for number, ids in enumerate(prompts):
        if groups:
            shared = min(trunk, len(shared_beginning((prompts[groups[-1][0]], ids))))
            further = len(ids) - len(shared_beginning((prompts[number - 1], ids)))
            if total + further - shared <= most:
                groups[-1].append(number)
                trunk, total = shared, total + further
                continue
        groups.append([number])
        trunk, total = len(ids), len(ids)
    return groups


class GrowingTree:
    """Prompts that the model reads together as a tree of tokens, and the tokens that it reads behind them later.
    `begin` reads what all prompts begin with. The model must read trees (`TransformersBackend.reads_trees`).
    """

    def __init__(self, backend: ReadsTokens, prompts: Sequence[Sequence[int]]) -> None:
        self._backend = backend
        self._beginning = beginning = shared_beginning(prompts)
        self._cache: Any = None
        self._tree = TokenTree(len(beginning))
        self._prompts = [list(ids[len(beginning) :]) for ids in prompts]

    def begin(self) -> Generator[int, int | None, None]:
        """Read the beginning that all prompts share; a generator that pauses as `read_trunk` does."""
        self._cache = yield from read_trunk(self._backend, self._beginning)

    @torch.inference_mode()
    def read(
        self,
        places: Sequence[tuple[int, tuple[int, ...]]],
        take: Callable[[int, torch.Tensor], None],
        *,
        last: bool = False,
    ) -> Generator[int, int | None, None]:
        """Read what follows at places of the tree (prompt number, tokens behind it), none given before.
        It pauses as `read_trunk` does; `take` gets the number of each place and its logits [columns].
        With `last` nothing will be read behind them: about `MOST_NODES` tokens are kept at one time, however many.
        """
        tree, wanted = self._tree, dict[int, list[int]]()
        size, cache = len(tree.seen), copied(self._cache) if last else None
        for number in sorted(range(len(places)), key=places.__getitem__):  # so that shared beginnings stay together
            prompt, path = places[number]
            place = tree.known - 1
            for token in (*self._prompts[prompt], *path):
                place = tree.place(place, token)
            wanted.setdefault(place - tree.known, []).append(number)
            if last and len(tree.places) - size >= MOST_NODES:
                yield from self._look(wanted, take)
                tree.cut(size)
                self._cache, wanted = copied(cache), {}
        yield from self._look(wanted, take)

    def _look(
        self, wanted: Mapping[int, Sequence[int]], take: Callable[[int, torch.Tensor], None]
    ) -> Generator[int, int | None, None]:
        """Read the new nodes; `wanted` names the places to which the logits of some of them belong."""
        tree, first = self._tree, len(self._tree.seen)
        assert min(wanted, default=first) >= first, "a place was read before, and its logits are gone"
        tree.grow()
        ids, read = tree.ids(first), 0
        while first < len(tree.seen):
            stop = min(first + ((yield read) or len(ids)), len(tree.seen))
            nodes = [node for node in range(first, stop) if node in wanted]
            rows = self._pass(first, ids[: stop - first], np.array(nodes or [first]) - first)
            for node, row in zip(nodes, rows, strict=False):  # where none is wanted there is the row of the first
                for number in wanted[node]:
                    take(number, row)
            float(rows[-1, 0])  # as in `read_trunk`
            ids, read, first = ids[stop - first :], stop - first, stop

    def _pass(self, first: int, ids: IdArray, keep: IdArray) -> torch.Tensor:
        """Logits [kept, columns] of nodes from the first on, which see what was read before."""
        tree, stop = self._tree, self._tree.known + first + len(ids)
        seen, positions = tree.seen[first : first + len(ids), :stop], tree.positions[stop - len(ids) : stop]
        output = self._backend.passes.nodes(ids, seen, np.array(positions), self._cache, keep)
        self._cache = cache_of(output)
        return output.logits[0]  # type: ignore[no-any-return]


@torch.inference_mode()
def read_trunk(backend: ReadsTokens, trunk: Sequence[int]) -> Generator[int, int | None, Any]:
    """Read the beginning that all prompts share, reusing the backend's last one as far as it fits.

    Pauses before each piece of a trunk, gives the number of tokens that it has read since the pause before, and gets
    how many it may read until the next one; None for as many as are good.
    """
    known = backend.last_trunk
    cache, start = None, 0
    if known is not None and (shared := len(shared_beginning((known.token_ids, [*trunk, 0])))) > 0:
        cache, start = known.cut(min(shared, len(trunk))), min(shared, len(trunk))
    read = 0
    while start < len(trunk):
        ids = np.array([trunk[start : start + ((yield read) or CHUNK)]], dtype=np.int64)
        read = ids.shape[1]
        start += read
        mask = np.ones((1, start), dtype=np.int64)
        output = backend.passes.rows(ids, mask=mask, cache=cache)
        cache = cache_of(output)
        float(output.logits[0, -1, 0])  # a GPU is waited for, so that who paces this knows what reading takes
    if trunk:
        backend.last_trunk = SharedPrefix(tuple(trunk), cache)
        cache = copied(cache)
    return cache
