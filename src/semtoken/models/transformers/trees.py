"""Several texts as one tree of tokens: what some of them begin with is in it once, and nothing is padded.

The tree is read as one row, behind the beginning that all of its texts share. Its mask lets every token see only those
that come before it in its own text.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from semtoken.models.prompt_ids import Place, common_beginning
from semtoken.models.transformers.caches import ReadBefore, SharedPrefix, copied, shared_beginning
from semtoken.models.transformers.passes import Passes, cache_of
from semtoken.support.arrays import BoolArray, IdArray

MOST_NODES = 512
"""The most tokens of a tree besides what all its texts begin with. Its mask is as large as their square."""
CHUNK = 512
"""The number of tokens of a shared beginning that are read at one time, if nobody says otherwise."""


@dataclass(frozen=True, eq=False)
class TokenTree:
    """The N tokens of some texts, each after the one before it in its text; what texts begin with is there once."""

    ids: IdArray
    """[N] the tokens."""
    depths: IdArray
    """[N] the place of each token in its text."""
    seen: BoolArray
    """[N, N] which tokens each one sees: itself and those before it in its text."""
    ends: list[int]
    """The node at which each text ends."""

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> TokenTree:
        """The tree of texts, none of which is empty."""
        nodes: dict[tuple[int, int], int] = {}  # (node before, token) -> node
        ends = []
        for text in texts:
            node = -1
            for token in text:
                node = nodes.setdefault((node, token), len(nodes))
            ends.append(node)
        seen, depths = np.eye(len(nodes), dtype=bool), np.zeros(len(nodes), dtype=np.int64)
        for node, (before, _) in enumerate(nodes):
            if before >= 0:
                seen[node] |= seen[before]
                depths[node] = depths[before] + 1
        return cls(np.array([token for _, token in nodes], dtype=np.int64), depths, seen, ends)

    def read(self, passes: Passes, known: int, nodes: range, keep: IdArray, cache: Any) -> Any:
        """Run the model over some nodes, behind a cache of `known` tokens before the tree and of the nodes before
        these. Logits of the nodes in `keep` are wanted.
        """
        some = slice(nodes.start, nodes.stop)
        seen = np.concatenate([np.ones((len(nodes), known), dtype=bool), self.seen[some, : nodes.stop]], axis=1)
        return passes.nodes(self.ids[some], seen, known + self.depths[some], cache, keep - nodes.start)


def groups_of(texts: Sequence[Sequence[int]], most: int = MOST_NODES) -> list[list[int]]:
    """Divide texts into groups whose trees stay small, in order; a text that shares too little is alone.

    What a text shares with the one before it counts once, all but its last token.

    >>> groups_of([[1, 2, 3], [1, 2, 3], [1, 2, 4], [5, 6, 7]], most=3)
    [[0, 1, 2], [3]]
    """
    groups: list[list[int]] = []
    trunk = total = 0
    for number, ids in enumerate(texts):
        if groups:
            shared = min(trunk, len(shared_beginning((texts[groups[-1][0]], ids))))
            further = len(ids) - len(shared_beginning((texts[number - 1], ids)))
            if total + further - shared <= most:
                groups[-1].append(number)
                trunk, total = shared, total + further
                continue
        groups.append([number])
        trunk, total = len(ids), len(ids)
    return groups


@dataclass(frozen=True, eq=False)
class ReadTexts:
    """Texts that were read as a tree, for others that go on from them."""

    trunk: tuple[int, ...]
    """The beginning that all of them share."""
    tails: list[tuple[int, ...]]
    """The rest of each, in the order in which the tree was made of them."""
    nodes: int
    """The size of that tree."""
    cache: Any
    """Keys and values of trunk and tree."""

    def has(self, tail: tuple[int, ...]) -> bool:
        """True if all of a text was read that has this tail behind the trunk: the logits behind it are not kept."""
        return any(read[: len(tail)] == tail for read in self.tails)


@torch.inference_mode()
def read_ends(
    passes: Passes,
    read_before: ReadBefore,
    prompts: Sequence[tuple[int, ...]],
    places: Sequence[Place],
    take: Callable[[int, torch.Tensor], None],
    behind: ReadTexts | None = None,
) -> Generator[int, int | None, ReadTexts]:
    """Read texts in as few passes as possible; `take` gets the number of each, and the logits [columns] behind it.
    Those that were read before (`behind`) are not read again where all of the texts go on from them.

    A text is given by its place: it is a prompt with a few tokens behind it, and there may be thousands of a long one.
    The model must read trees (`TransformersBackend.reads_trees`). The generator pauses as `read_trunk` does, and gives
    what others can go on from.
    """
    trunk = shared_beginning(prompts) if behind is None else behind.trunk
    tails = [(*prompts[number][len(trunk) :], *path) for number, path in places]
    if behind is None or any(map(behind.has, tails)):
        behind = ReadTexts(trunk, [], 0, (yield from read_trunk(passes, read_before, trunk)))
    read_on = behind
    for numbers in _small_trees(tails):
        # A tree of more texts has the nodes of the first ones at its beginning, so the cache of these fits.
        together = [*behind.tails, *(tails[number] for number in numbers)]
        tree, cache = TokenTree.of(together), copied(behind.cache)
        ends, first, read = tree.ends[len(behind.tails) :], behind.nodes, 0
        while first < len(tree.ids):
            stop = min(first + ((yield read) or len(tree.ids)), len(tree.ids))
            wanted = sorted({end for end in ends if first <= end < stop}) or [first]
            output = tree.read(passes, len(trunk), range(first, stop), np.array(wanted), cache)
            rows = dict(zip(wanted, output.logits[0], strict=True))
            for number, end in zip(numbers, ends, strict=True):
                if first <= end < stop:
                    take(number, rows[end])
            float(output.logits[0, -1, 0])  # as in `Passes.piece`
            cache, read, first = cache_of(output), stop - first, stop
        read_on = ReadTexts(trunk, together, len(tree.ids), cache)
    return read_on


def _small_trees(tails: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """The numbers of texts that are read as one tree of at most `MOST_NODES` tokens; a longer text is alone."""
    group: list[int] = []
    nodes = 0
    for number in sorted(range(len(tails)), key=tails.__getitem__):  # so that those with one beginning stay together
        tail = tails[number]
        new = len(tail) - common_beginning(tails[group[-1]] if group else (), tail)
        if group and nodes + new > MOST_NODES:
            yield group
            group, nodes, new = [], 0, len(tail)
        group.append(number)
        nodes += new
    yield group


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
    return copied(cache)
