"""Several texts as one tree of tokens: what some of them begin with is in it once, and nothing is padded.

The tree is read as one row. Its mask lets every token see only those that come before it in its own text. It grows:
with many questions about one text, the first look says where to look next, so further tokens are read behind any place
of it, with the keys and values of all that was read before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from semtoken.models.transformers.caches import ReadBefore, SharedPrefix, copied, shared_beginning
from semtoken.models.transformers.passes import Passes, cache_of
from semtoken.support.arrays import BoolArray, IdArray

MOST_NODES = 512
"""The most tokens of a tree besides what all its prompts begin with. Its mask is as large as their square."""
CHUNK = 512
"""The number of tokens of a shared beginning that are read at one time, if nobody says otherwise."""


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

    def __init__(self, passes: Passes, read_before: ReadBefore, prompts: Sequence[Sequence[int]]) -> None:
        self._passes, self._read_before = passes, read_before
        self._beginning = beginning = shared_beginning(prompts)
        self._cache: Any = None
        self._tree = TokenTree(len(beginning))
        self._prompts = [list(ids[len(beginning) :]) for ids in prompts]

    def begin(self) -> Generator[int, int | None, None]:
        """Read the beginning that all prompts share; a generator that pauses as `read_trunk` does."""
        self._cache = yield from read_trunk(self._passes, self._read_before, self._beginning)

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
            float(rows[-1, 0])  # as in `Passes.piece`
            ids, read, first = ids[stop - first :], stop - first, stop

    def _pass(self, first: int, ids: IdArray, keep: IdArray) -> torch.Tensor:
        """Logits [kept, columns] of nodes from the first on, which see what was read before."""
        tree, stop = self._tree, self._tree.known + first + len(ids)
        seen, positions = tree.seen[first : first + len(ids), :stop], tree.positions[stop - len(ids) : stop]
        output = self._passes.nodes(ids, seen, np.array(positions), self._cache, keep)
        self._cache = cache_of(output)
        return output.logits[0]  # type: ignore[no-any-return]


@torch.inference_mode()
def read_trunk(passes: Passes, read_before: ReadBefore, trunk: Sequence[int]) -> Generator[int, int | None, Any]:
    """Read the beginning that all prompts share, and keep it. What was read before is used as far as it fits.

    Pauses before each piece of a trunk, gives the number of tokens that it has read since the pause before, and gets
    how many it may read until the next one; None for as many as are good.
    """
    cache, start = read_before.beginning_of(trunk)
    read = 0
    while start < len(trunk):
        stop = min(start + ((yield read) or CHUNK), len(trunk))
        cache = cache_of(passes.piece(trunk, start, stop, cache))
        read, start = stop - start, stop
    if trunk:
        read_before.trunk = SharedPrefix(tuple(trunk), cache)
        cache = copied(cache)
    return cache
