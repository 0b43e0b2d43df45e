"""A tree of tokens that grows: many questions about one text are read together, and what they share is read once.

`trees.PromptTree` is read in one pass. Here the first look says where to look next, so further tokens are read behind
any place of the tree, with the keys and values of all that was read before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semtoken.backends.prompts import PaddedBatch
from semtoken.backends.transformers.cache import SharedPrefix, shared_beginning
from semtoken.backends.transformers.passes import cache_of
from semtoken.support.arrays import BoolArray, IdArray
from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken.backends.transformers.model import TransformersBackend

require("torch", extra="transformers")

import torch  # noqa: E402

MOST_NODES = 512
"""The most tokens of a tree besides what all its prompts begin with. Its mask is as large as their square."""
CHUNK = 512
"""How many tokens of a shared beginning are read at one time, if nobody says otherwise."""
ROOT = -1


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

    Parameters
    ----------
    backend
        A model that reads trees (`TransformersBackend.reads_trees`).
    prompts
        Token ids. What all of them begin with is read by `begin`.
    """

    def __init__(self, backend: TransformersBackend, prompts: Sequence[Sequence[int]]) -> None:
        self._backend = backend
        beginning = shared_beginning(prompts)
        self._beginning = beginning
        self._cache: Any = None
        self._trunk = len(beginning)
        self._nodes: dict[tuple[int, int], int] = {}
        """(place of the token before, token) -> its place among the nodes."""
        self._seen = np.zeros((0, 0), dtype=bool)
        self._positions: list[int] = []
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
        """Read what follows at some places of the tree; a generator that pauses as `read_trunk` does.

        Parameters
        ----------
        places
            Number of a prompt, and tokens behind it. No place may have been given before.
        take
            Called with the number of each place and its logits [columns].
        last
            Nothing will be read behind these places, so about `MOST_NODES` tokens are kept at one time, however many
            there are.
        """
        before = (len(self._positions), self._seen, SharedPrefix((), self._cache).copied() if last else None)
        new: list[tuple[int, int]] = []
        wanted: dict[int, list[int]] = {}
        for number in sorted(range(len(places)), key=places.__getitem__):  # so that shared beginnings stay together
            prompt, path = places[number]
            wanted.setdefault(self._path([*self._prompts[prompt], *path], new), []).append(number)
            if last and len(new) >= MOST_NODES:
                yield from self._look(new, wanted, take)
                self._forget(new, *before)
                new, wanted = [], {}
        yield from self._look(new, wanted, take)

    def _look(
        self,
        new: Sequence[tuple[int, int]],
        wanted: Mapping[int, Sequence[int]],
        take: Callable[[int, torch.Tensor], None],
    ) -> Generator[int, int | None, None]:
        first = len(self._positions)
        assert min(wanted, default=first) >= first, "a place was read before, and its logits are gone"
        self._extend(new)
        ids, read = np.array([token for _, token in new], dtype=np.int64), 0
        while first < len(self._positions):
            stop = min(first + ((yield read) or len(ids)), len(self._positions))
            nodes = [node for node in range(first, stop) if node in wanted]
            rows = self._pass(first, ids[: stop - first], np.array(nodes or [first]) - first)
            for node, row in zip(nodes, rows, strict=False):  # where none is wanted there is the row of the first
                for number in wanted[node]:
                    take(number, row)
            float(rows[-1, 0])  # as in `read_trunk`
            ids, read, first = ids[stop - first :], stop - first, stop

    def _forget(self, new: Sequence[tuple[int, int]], size: int, seen: BoolArray, cache: Any) -> None:
        """Return to the state before some nodes were read."""
        for key in new:
            del self._nodes[key]
        del self._positions[size:]
        self._seen, self._cache = seen, SharedPrefix((), cache).copied()

    def _path(self, tokens: Sequence[int], new: list[tuple[int, int]]) -> int:
        """The node of a path's last token; nodes that are missing are noted."""
        node = ROOT
        for token in tokens:
            key = (node, token)
            if key not in self._nodes:
                self._nodes[key] = len(self._nodes)
                new.append(key)
            node = self._nodes[key]
        return node

    def _extend(self, new: Sequence[tuple[int, int]]) -> None:
        old, size = len(self._positions), len(self._positions) + len(new)
        seen = np.zeros((size, size), dtype=bool)
        seen[:old, :old] = self._seen
        for node, (before, _) in enumerate(new, start=old):
            if before != ROOT:
                seen[node] = seen[before]
            seen[node, node] = True
            self._positions.append(self._trunk if before == ROOT else self._positions[before] + 1)
        self._seen = seen

    def _pass(self, first: int, ids: IdArray, keep: IdArray) -> torch.Tensor:
        """Logits [kept, columns] of nodes from the first on, which see what was read before."""
        stop = first + len(ids)
        seen = np.concatenate([np.ones((len(ids), self._trunk), dtype=bool), self._seen[first:stop, :stop]], axis=1)
        output = self._backend.passes.nodes(ids, seen, np.array(self._positions[first:stop]), self._cache, keep)
        self._cache = cache_of(output)
        return output.logits[0]  # type: ignore[no-any-return]


@torch.inference_mode()
def read_trunk(backend: TransformersBackend, trunk: Sequence[int]) -> Generator[int, int | None, Any]:
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
        output = backend.passes.rows(PaddedBatch(ids, np.ones_like(ids)), mask=mask, cache=cache, keep=1)
        cache = cache_of(output)
        float(output.logits[0, -1, 0])  # a GPU is waited for, so that who paces this knows what reading takes
    if trunk:
        backend.last_trunk = SharedPrefix(tuple(trunk), cache)
        cache = backend.last_trunk.copied()
    return cache
