"""Merges of single linkage: the edges of a minimum spanning forest, from pairs that come tile by tile."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.merges import FoundMerges
from semtoken.clustering.near import EVERYTHING, Level, distance_pass, sampled_gaps
from semtoken.clustering.progress import Monitor
from semtoken.clustering.rows import compiled_loops
from semtoken.clustering.tiles import CpuTiles, Pairs

PAIRS_PER_ROW = 32
"""The number of pairs that are gathered for each row before they are thinned."""
SAMPLED_ROWS = 512
"""The number of rows that are sampled; their distances to all others bound the height of the cut from above."""


def single_merges(
    tiles: CpuTiles, nodes: NDArray[np.int64], needed: int, *, late: int, threads: int, monitor: Monitor
) -> FoundMerges:
    """At least the lowest `needed` merges of the dendrogram under single linkage (`late` others happen at gap 1)."""
    m = len(nodes)
    wanted = min(needed, m - 1)
    if late:
        wanted = m - 1  # how many come before gap 1 is not known yet
    level = Level(nodes, np.arange(m + 1))
    with monitor.phase("threshold"):
        forest = _Forest(m, wanted, _upper_bound(tiles, level, wanted))
    with monitor.phase("distances"):
        distance_pass(tiles, level, forest, close=True, threads=threads, monitor=monitor)
    with monitor.phase("merging"):
        forest.thin()
        known = forest.gap <= forest.limit  # longer edges might give way to others
        return FoundMerges(nodes[forest.pair][known], forest.gap[known])


def _upper_bound(tiles: CpuTiles, level: Level, wanted: int) -> np.float32:
    """A height up to which at least `wanted` merges happen: link every row to the nearest of a few."""
    # The links to sampled rows are too few to bound so many merges.
    if wanted > level.clusters - 2 * SAMPLED_ROWS:
        return EVERYTHING
    gaps = sampled_gaps(tiles, level, close=True, count=SAMPLED_ROWS)
    per_tile = -(-level.clusters // tiles.size)
    nearest = np.full(level.clusters, np.inf, np.float32)
    for i in range(0, len(gaps), per_tile):
        rows = np.concatenate(gaps[i : i + per_tile], axis=1)
        np.minimum(nearest, rows.min(axis=0), out=nearest)
    # The sampled rows themselves (gap 0 to themselves) are the roots of these links and no links.
    return np.float32(max(0, np.partition(nearest, wanted + SAMPLED_ROWS - 1)[wanted + SAMPLED_ROWS - 1]))


class _Forest:
    """Pairs gathered from all threads, thinned to a minimum spanning forest whenever they are many."""

    def __init__(self, m: int, wanted: int, limit: np.float32) -> None:
        self._m = m
        self._wanted = wanted
        self._lock = threading.Lock()
        self._pending: list[Pairs] = []
        self._count = 0
        self.limit = limit
        self.one = self.other = np.empty(0, np.int64)
        self.pair = np.empty((0, 2), np.int64)
        self.gap = np.empty(0, np.float32)

    def add(self, pairs: Pairs, limit: np.float32) -> None:
        with self._lock:
            self._pending.append(pairs)
            self._count += len(pairs.gap)
            if self._count > PAIRS_PER_ROW * self._m:
                self.thin()

    def thin(self) -> None:
        """Keep the edges of the minimum spanning forest, sorted by (gap, first row, second row)."""
        one, other, gap = [self.one], [self.other], [self.gap]
        for pairs in self._pending:
            one.append(pairs.first_row + (pairs.where >> 16).astype(np.int64))
            other.append(pairs.first_column + (pairs.where & 65535).astype(np.int64))
            gap.append(pairs.gap)
        self._pending, self._count = [], 0
        ends, length = np.stack([np.concatenate(one), np.concatenate(other)]), np.concatenate(gap)
        order = np.lexsort((ends[0] * self._m + ends[1], length))
        kept, self.pair = compiled_loops().spanning_forest(self._m, ends[0], ends[1], order)
        self.one, self.other, self.gap = ends[0, kept], ends[1, kept], length[kept]
        if len(kept) >= self._wanted > 0:
            self.limit = min(self.limit, self.gap[self._wanted - 1])
