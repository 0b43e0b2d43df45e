"""Exact linkage in rounds of mutual nearest neighbors, without a stored matrix.

Any two clusters that are each other's nearest may merge at once (the linkages used here are reducible: a merged
cluster is never nearer to a third than the nearer of its parts was). So each round merges all such pairs and
computes the distances of the new clusters to all others. A short list of near neighbors for every cluster
makes it rarely necessary to look at all distances of an old one again.

Average linkage always takes this way: under cosine, the mean distance of two clusters is one minus the product
of their mean unit rows, so a cluster costs no more than a row. Complete linkage takes it where the sparse graph
does not fit into memory; clusters then cost as much as the rows they hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.merges import FoundMerges
from semtoken.clustering.progress import Did, Job, Monitor, run_all
from semtoken.clustering.rows import compiled_loops
from semtoken.clustering.tiles import Block, CpuTiles, Gaps, blocks_of
from semtoken.support.arrays import IntArray

PLACES = 16
"""The number of near neighbors that are remembered for every cluster."""
SOME = 256
"""For how many clusters the means are computed at a time, which takes a few more copies of them."""
SLACK = 0.7
"""The slots are renumbered without the empty ones when fewer than this share of them holds a cluster."""


class Lists(NamedTuple):
    """The known nearest neighbors of every slot, in the form in which the compiled loops take them."""

    near: NDArray[np.int32]
    """[m, PLACES] the neighbors of each slot, the nearest first."""
    near_gap: NDArray[np.float32]
    """[m, PLACES] their gaps."""
    near_tie: NDArray[np.int32]
    """[m, PLACES] what decides between equal gaps; see `_loops.comes_before`."""
    held: NDArray[np.int32]
    """[m] how many neighbors each slot has in its list."""
    bound: NDArray[np.float32]
    """[m] a gap for each slot: no cluster that is not in its list is nearer than this."""

    @classmethod
    def empty(cls, m: int) -> Lists:
        """Lists of m slots without any neighbors."""
        shape = (m, PLACES)
        return cls(
            np.zeros(shape, np.int32),
            np.zeros(shape, np.float32),
            np.zeros(shape, np.int32),
            np.zeros(m, np.int32),
            np.full(m, np.inf, np.float32),
        )

    def take(self, slots: IntArray) -> Lists:
        """The lists of some slots."""
        return Lists(self.near[slots], self.near_gap[slots], self.near_tie[slots], self.held[slots], self.bound[slots])

    def forget(self, slots: IntArray) -> None:
        """Empty the lists of some slots."""
        self.held[slots] = 0
        self.bound[slots] = np.inf


class MeanRows:
    """Clusters in slots, as the means of their unit rows: two are at the mean distance 1 - product of their means.
    `nodes` [m] are rows of the table, `weight` [m] says how many equal rows each stands for.
    """

    def __init__(self, tiles: CpuTiles, nodes: IntArray, weight: IntArray) -> None:
        self._tiles = tiles
        self._weight = weight.astype(np.float64)
        self._mean = np.empty((len(nodes), tiles.rows.columns), np.float32)
        for b in range(0, len(nodes), tiles.size):
            part = slice(b, b + tiles.size)
            self._mean[part] = tiles.rows.block(nodes[part], left=False)[:, :-2]
        # (1 - |mean|^2) / 2, kept apart because it is lost in the product when rows are nearly equal
        self._spread = np.where(tiles.rows.zero[nodes], 0.5, 0.0)

    def columns(self) -> list[slice]:
        """All slots, divided into ranges that one product computes."""
        return [slice(b, b + self._tiles.size) for b in range(0, len(self._mean), self._tiles.size)]

    def cost(self, slots: IntArray) -> IntArray:
        """The number of rows that each of these slots contributes to a matrix product."""
        return np.ones(len(slots), np.int64)

    def left(self, slots: IntArray) -> Any:
        """The left factor of `gaps` for these slots, which can be used for many columns."""
        return self._mean[slots]

    def gaps(self, left: Any, slots: IntArray, columns: slice) -> Gaps:
        """The gaps [slots, columns] between clusters. Entries of empty slots have no meaning."""
        gap = self._tiles.product(left, self._mean[columns])
        np.subtract(np.float32(1), gap, out=gap)
        halves = np.full(len(left), 0.5, np.float32), np.full(gap.shape[1], 0.5, np.float32)
        # Of nearly equal rows the digits of 1 - product cancel: these gaps are computed again from differences.
        i, j = self._tiles.close_pairs(gap, *halves, diagonal=False)
        if len(i):
            one, other = slots[i], j + columns.start
            exact = self._half_difference(one, other) + self._spread[one] + self._spread[other]
            gap[i, j] = exact
        return gap

    def merge(self, keep: IntArray, gone: IntArray) -> None:
        """Merge the clusters in the slots `gone` into those in the slots `keep`."""
        apart = self._half_difference(keep, gone)
        a, b = self._weight[keep], self._weight[gone]
        share = b / (a + b)
        self._spread[keep] += share * (self._spread[gone] - self._spread[keep] + (1 - share) * apart)
        self._weight[keep] = a + b
        for at in range(0, len(keep), SOME):
            part = slice(at, at + SOME)
            k, g, s = keep[part], gone[part], share[part, None].astype(np.float32)
            self._mean[k] = (1 - s) * self._mean[k] + s * self._mean[g]

    def compact(self, used: IntArray) -> None:
        """Keep only these slots, and renumber them from 0."""
        for at in range(0, len(used), SOME):  # in place: used[i] >= i
            part = slice(at, min(at + SOME, len(used)))
            self._mean[part] = self._mean[used[part]]
        self._mean = self._mean[: len(used)]
        self._weight, self._spread = self._weight[used], self._spread[used]

    def _half_difference(self, one: IntArray, other: IntArray) -> NDArray[np.float64]:
        gap = np.zeros(len(one))
        compiled_loops().exact_gaps(self._mean, np.ones(len(self._mean)), one, other, gap)
        return gap


class WholeRows:
    """Clusters in slots, as the rows they hold: the largest gap, or the mean distance, over all pairs of rows.

    A mean distance D is given as the gap that belongs to it, D^2 / 2 (euclidean).
    """

    def __init__(self, tiles: CpuTiles, nodes: IntArray, reduction: Literal["max", "mean"]) -> None:
        self._tiles = tiles
        self._reduction = reduction
        self._rows = nodes
        self._slot = np.arange(len(nodes))
        self._sort(len(nodes))

    def columns(self) -> list[slice]:
        """See `MeanRows.columns`."""
        return [slice(block.first, block.first + block.clusters) for block in self._blocks]

    def cost(self, slots: IntArray) -> IntArray:
        """See `MeanRows.cost`."""
        return self._starts[slots + 1] - self._starts[slots]

    def left(self, slots: IntArray) -> Any:
        """See `MeanRows.left`."""
        block = Block.of(slots, self._order, self._starts)
        return block, self._tiles.left(block)

    def gaps(self, left: Any, slots: IntArray, columns: slice) -> Gaps:
        """See `MeanRows.gaps`."""
        block, factors = left
        other = self._blocks[int(np.searchsorted([b.first for b in self._blocks], columns.start))]
        if self._reduction == "max":
            return self._tiles.host(self._tiles.gaps(factors, block, other, close=True))
        total = self._tiles.total_distance(factors, block, other)
        mean = total / np.maximum(np.outer(np.diff(block.starts), np.diff(other.starts)), 1)
        gap: Gaps = (0.5 * mean**2).astype(np.float32)
        return gap

    def merge(self, keep: IntArray, gone: IntArray) -> None:
        """See `MeanRows.merge`."""
        target = np.arange(len(self._starts) - 1)
        target[gone] = keep
        self._slot = target[self._slot]
        self._sort(len(target))

    def compact(self, used: IntArray) -> None:
        """See `MeanRows.compact`."""
        self._slot = np.searchsorted(used, self._slot)
        self._sort(len(used))

    def _sort(self, slots: int) -> None:
        order = np.argsort(self._slot, kind="stable")
        self._order = self._rows[order]
        count = np.bincount(self._slot, minlength=slots)
        self._starts: IntArray = np.concatenate([[0], np.cumsum(count)])
        self._blocks = blocks_of(self._order, self._starts, self._tiles.size)


class Rounds:
    """The state of a run of hierarchical clustering: the clusters in slots, and the known neighbors of each."""

    def __init__(self, clusters: MeanRows | WholeRows, tiles: CpuTiles, low: IntArray, weight: IntArray) -> None:
        m = len(low)
        self.clusters = clusters
        self.tiles = tiles
        self.low = low.astype(np.int32)
        self.weight = weight.astype(np.int64)
        self.name = np.arange(m, dtype=np.int32)
        """Cluster in each slot: 0..m-1 at first, m + t after merge t; -1 in an empty slot."""
        self.slot_of = np.arange(2 * m)
        self.alive = np.arange(2 * m) < m
        self.height = np.zeros(m, np.float32)
        """Height (as a gap) of the last merge in each slot, 0 before the first."""
        self.lists = Lists.empty(m)
        self.next_name = m

    @property
    def used(self) -> IntArray:
        """Slots that hold a cluster."""
        return np.flatnonzero(self.name >= 0)

    def look(self, slots: IntArray, fresh: NDArray[np.bool_], threads: int, report: Callable[[float], None]) -> None:
        """Search the nearest clusters of some slots, and update the lists of all others with the fresh ones."""
        self.lists.forget(slots)
        scanned = self.name < 0
        scanned[slots] = True
        lock = threading.Lock()
        jobs: list[Job] = []
        cost = self.clusters.cost(slots)
        size = max(1, min(self.tiles.size, -(-int(cost.sum()) // threads)))
        for some in _runs(cost, size):
            look = partial(self._look, slots[some], fresh[some], scanned, lock)
            jobs.append((float(some.stop - some.start), look))
        run_all(jobs, threads, report)

    def _look(
        self, slots: IntArray, fresh: NDArray[np.bool_], scanned: NDArray[np.bool_], lock: threading.Lock, did: Did
    ) -> None:
        loops = compiled_loops()
        left = self.clusters.left(slots)
        ranges = self.clusters.columns()
        for columns in ranges:
            gap = self.clusters.gaps(left, slots, columns)
            np.maximum(gap, 0, out=gap)
            loops.scan_rows(gap, slots, columns.start, self.name, self.low, self.lists)
            if fresh.any():
                # Lists of other slots are written here, and by other threads, too.
                with lock:
                    loops.offer_rows(gap, slots, fresh, columns.start, scanned, self.name, self.low, self.lists)
            did(len(slots) / len(ranges))

    def mutual(self) -> tuple[IntArray, IntArray, Gaps]:
        """Pairs of slots that are each other's nearest, and their gaps; at least one pair."""
        used = self.used
        nearest = np.full(len(self.name), -1)
        nearest[used] = self.slot_of[self.lists.near[used, 0]]
        pair = used[(nearest[nearest[used]] == used) & (used < nearest[used])]
        if len(pair) == 0:  # gaps of one pair may differ in the last digit, and three may chase each other
            first = np.lexsort((self.lists.near_tie[used, 0], self.lists.near_gap[used, 0]))[0]
            pair = used[[first]]
        return pair, nearest[pair], self.lists.near_gap[pair, 0]

    def merge(self, one: IntArray, other: IntArray, gap: Gaps) -> tuple[NDArray[np.int64], Gaps, IntArray]:
        """Merge pairs of slots. Returns the lowest rows of each pair's clusters [pairs, 2], the heights of the merges
        as gaps [pairs], and how many rows the merged clusters hold [pairs].
        """
        keep, gone = np.minimum(one, other), np.maximum(one, other)
        named = np.sort(np.stack([self.low[keep], self.low[gone]], axis=1), axis=1).astype(np.int64)
        # By rounding, a merge could come out a digit below its parts; a dendrogram never falls.
        height = np.maximum(gap, np.maximum(self.height[keep], self.height[gone]))
        self.clusters.merge(keep, gone)
        self.alive[self.name[keep]] = self.alive[self.name[gone]] = False
        new = np.arange(self.next_name, self.next_name + len(keep))
        self.next_name += len(keep)
        self.name[keep], self.name[gone] = new, -1
        self.slot_of[new], self.alive[new] = keep, True
        self.low[keep] = named[:, 0]
        self.weight[keep] += self.weight[gone]
        self.height[keep] = height
        self.lists.forget(keep)
        self.lists.forget(gone)
        return named, height, self.weight[keep]

    def unknown(self) -> IntArray:
        """The slots whose nearest cluster has to be searched again."""
        stale = np.empty(len(self.name), np.bool_)
        compiled_loops().drop_dead(self.alive, self.lists, stale)
        return np.flatnonzero(stale & (self.name >= 0))

    def compact(self) -> None:
        """Renumber the slots so that no empty ones remain between used ones."""
        used = self.used
        self.clusters.compact(used)
        self.name, self.low, self.weight = self.name[used], self.low[used], self.weight[used]
        self.height, self.lists = self.height[used], self.lists.take(used)
        self.slot_of[self.name] = np.arange(len(used))


def rounds_merges(state: Rounds, needed: int, *, late: int, threads: int, monitor: Monitor) -> FoundMerges:
    """At least the `needed` lowest merges of the dendrogram (`late` others are known to happen at gap 1)."""
    pairs: list[NDArray[np.int64]] = []
    sizes: list[IntArray] = []
    gaps: list[Gaps] = [np.ones(late, np.float32)]
    slots = state.used
    fresh = np.zeros(len(slots), np.bool_)
    with monitor.phase("distances"):
        state.look(slots, fresh, threads, monitor.advance)
    with monitor.phase("merging"):
        while len(state.used) > 1:
            one, other, gap = state.mutual()
            known = np.concatenate(gaps)
            # Heights only grow: the lowest pair still to merge is among these, so this is where to stop.
            if len(known) >= needed and gap.min() >= _smallest(known, needed):
                break
            candidates = np.concatenate([known, gap])
            ceiling = _smallest(candidates, needed) if len(candidates) >= needed else np.float32(np.inf)
            wanted = gap <= ceiling
            named, height, size = state.merge(one[wanted], other[wanted], gap[wanted])
            pairs.append(named)
            gaps.append(height)
            sizes.append(size)
            stale = state.unknown()
            slots = np.concatenate([np.minimum(one, other)[wanted], stale])
            fresh = np.arange(len(slots)) < len(named)
            done = min(1.0, sum(len(p) for p in pairs) / max(1, needed - late))
            state.look(slots, fresh, threads, lambda _, done=done: monitor.advance(done))  # type: ignore[misc]
            if len(state.used) < SLACK * len(state.name):
                state.compact()
    merges = _sorted(pairs, gaps[1:], sizes)
    # Merges above the lowest that is left are part of the tree, but others may come between them.
    left = state.lists.near_gap[state.used, 0]
    known_up_to = left.min() if len(left) > 1 else np.float32(np.inf)
    return FoundMerges(merges.pair[merges.gap <= known_up_to], merges.gap[merges.gap <= known_up_to])


def _runs(cost: IntArray, size: int) -> list[slice]:
    """Consecutive ranges whose cost is at most `size`, or that are single."""
    total = np.concatenate([[0], np.cumsum(cost)])
    runs = []
    start = 0
    while start < len(cost):
        stop = int(np.searchsorted(total, total[start] + size, side="right")) - 1
        runs.append(slice(start, max(stop, start + 1)))
        start = runs[-1].stop
    return runs


def _smallest(values: Gaps, rank: int) -> np.float32:
    """The value with `rank` - 1 values before it."""
    return np.float32(np.partition(values, rank - 1)[rank - 1])


def _sorted(pairs: list[NDArray[np.int64]], gaps: list[Gaps], sizes: list[IntArray]) -> FoundMerges:
    pair = np.concatenate(pairs or [np.empty((0, 2), np.int64)])
    gap = np.concatenate(gaps or [np.empty(0, np.float32)])
    size = np.concatenate(sizes or [np.empty(0, np.int64)])
    order = np.lexsort((pair[:, 0], size, gap))
    return FoundMerges(pair[order], gap[order])
