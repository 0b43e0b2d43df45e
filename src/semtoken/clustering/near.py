"""One pass over the distances: the graph of all pairs of clusters that are near enough.

How near is decided by memory: the threshold is set from a sample so that about as many pairs qualify as
there is room for, and lowered on the way if the sample was wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.progress import Did, Monitor, run_all
from semtoken.clustering.rows import compiled_loops
from semtoken.clustering.tiles import Block, CpuTiles, Gaps, Pairs, blocks_of

BYTES_PER_PAIR = 24
"""Bytes that a kept pair takes: 8 in the chunk that a tile gives, and 8 in the list of each end. The former are freed
as the latter fill."""
SAMPLED_ROWS = 192
"""The most clusters that are sampled; their distances to all others decide the threshold."""
EVERYTHING = np.float32(np.finfo(np.float32).max)
"""The threshold that keeps all pairs."""


class TooManyTies(Exception):
    """So many pairs have equal gaps that no threshold keeps few enough of them in memory."""


@dataclass(frozen=True)
class Level:
    """The clusters with which one pass over the distances starts."""

    order: NDArray[np.int64]
    """Rows sorted by cluster; clusters are numbered by their lowest rows."""
    starts: NDArray[np.int64]
    """The place in `order` at which each cluster begins, and the end."""

    @property
    def clusters(self) -> int:
        """The number of clusters at this level."""
        return len(self.starts) - 1


class Graph(NamedTuple):
    """The near clusters of each cluster: those of c, and their gaps, stand in `neighbor` and `gap` at
    start[c] : start[c] + length[c].
    """

    start: NDArray[np.int64]
    length: NDArray[np.int64]
    neighbor: NDArray[np.int32]
    gap: NDArray[np.float32]


class Keeper(Protocol):
    """Collects the pairs of clusters that a pass finds, from several threads."""

    @property
    def limit(self) -> np.float32:
        """The largest gap of a pair that is still wanted; it shrinks while pairs come in."""

    def add(self, pairs: Pairs, limit: np.float32) -> None:
        """Add the pairs of a tile that were found with this limit."""


def near_pairs(
    tiles: CpuTiles,
    level: Level,
    room: int,
    *,
    close: bool,
    threads: int,
    monitor: Monitor,
    error: Callable[[Gaps], Gaps],
) -> KeptPairs:
    """All pairs of clusters with gaps below a threshold, at most `room`; `TooManyTies` if no threshold keeps so few.
    With `close`, small gaps have all their digits: needed while clusters may still be that near.
    Pairs are wanted too that are farther than the threshold by no more than three times the error of such a gap.
    """
    with monitor.phase("threshold"):
        limits = thresholds(tiles, level, room, close=close)
        kept = KeptPairs(np.where(limits < EVERYTHING, limits + 3 * error(limits), limits).astype(np.float32), room)
    with monitor.phase("distances"):
        distance_pass(tiles, level, kept, close=close, threads=threads, monitor=monitor)
    return kept


def distance_pass(tiles: CpuTiles, level: Level, kept: Keeper, *, close: bool, threads: int, monitor: Monitor) -> None:
    """Find all pairs of clusters with gaps below the limit, tile by tile, and add them to `kept`."""
    blocks = blocks_of(level.order, level.starts, tiles.size)
    jobs = [(_work(blocks[i:]), partial(_row_of_tiles, tiles, blocks[i:], kept, close)) for i in range(len(blocks))]
    run_all(jobs, threads, monitor.advance)


def thresholds(tiles: CpuTiles, level: Level, room: int, *, close: bool) -> NDArray[np.float32]:
    """Falling thresholds: the first is expected to keep a little less than `room` pairs, each further one fewer.

    They depend on the table and on `room` alone, and the one that a pass ends with is the first that keeps
    at most `room` pairs, so neither threads nor the size of tiles have a say in the result.
    """
    m = level.clusters
    if m * (m - 1) // 2 <= room:
        return np.array([EVERYTHING])
    gaps = np.concatenate([g.ravel() for g in sampled_gaps(tiles, level, close=close)])
    # A little less than there is room for, since a sample may be off.
    share = 0.85 * room / (m * (m - 1) / 2)
    steps = share * 0.8 ** np.arange(16)
    ranks = np.unique((steps * len(gaps)).astype(np.int64))[::-1]
    first = np.maximum(np.partition(gaps, ranks)[ranks], 0)
    # Where the sample was far off, as with thousands of nearly equal rows, the threshold falls by halves.
    below = first[-1] * 0.5 ** np.arange(1, 60)
    return np.unique(np.concatenate([first, below]).astype(np.float32))[::-1]


def graph_of(near: KeptPairs, m: int) -> Graph:
    """Enter pairs into the lists of both their ends; empties `near.pairs` on the way to save memory."""
    loops = compiled_loops()
    degree = np.zeros(m, np.int64)
    for pairs in near.pairs:
        loops.count_degrees(pairs.where, pairs.first_row, pairs.first_column, degree)
    # Merged clusters take the numbers m, m + 1, ... and the place of one of their parts.
    start = np.zeros(2 * m, np.int64)
    np.cumsum(degree[:-1], out=start[1:m])
    length = np.zeros(2 * m, np.int64)
    length[:m] = degree
    total = int(degree.sum())
    graph = Graph(start, length, np.empty(total, np.int32), np.empty(total, np.float32))
    fill = start[:m].copy()
    while near.pairs:
        pairs = near.pairs.pop()
        loops.scatter(pairs.where, pairs.gap, pairs.first_row, pairs.first_column, fill, graph.neighbor, graph.gap)
    return graph


class KeptPairs:
    """Pairs gathered from all threads. Lowers the threshold when there are too many."""

    def __init__(self, limits: NDArray[np.float32], room: int) -> None:
        self._limits: list[np.float32] = list(limits)
        self._room = room
        self._count = 0
        self._lock = threading.Lock()
        self.pairs: list[Pairs] = []

    @property
    def limit(self) -> np.float32:
        """See `Keeper.limit`."""
        return self._limits[0]

    def add(self, pairs: Pairs, limit: np.float32) -> None:
        """See `Keeper.add`."""
        with self._lock:
            # Another thread may have lowered the threshold since the tile was begun.
            self._append(pairs if limit == self.limit else _filtered(pairs, self.limit))
            while self._count > self._room:
                if len(self._limits) == 1:
                    raise TooManyTies
                del self._limits[0]
                old, self.pairs, self._count = self.pairs, [], 0
                while old:
                    self._append(_filtered(old.pop(), self.limit))

    def _append(self, pairs: Pairs) -> None:
        if len(pairs.gap):
            self.pairs.append(pairs)
            self._count += len(pairs.gap)


def _filtered(pairs: Pairs, limit: np.float32) -> Pairs:
    keep = pairs.gap <= limit
    return Pairs(pairs.first_row, pairs.first_column, pairs.where[keep], pairs.gap[keep])


def _work(blocks: list[Block]) -> float:
    """Pairs of rows in the tiles of the first block with all."""
    return float(len(blocks[0].index)) * sum(len(block.index) for block in blocks)


def _row_of_tiles(tiles: CpuTiles, blocks: list[Block], kept: Keeper, close: bool, did: Did) -> None:
    """The tiles of the first block with itself and all that follow."""
    p = blocks[0]
    left = tiles.left(p)
    for q in blocks:
        if not (q is p and p.clusters == 1):  # one cluster has no pairs in itself
            limit = kept.limit
            kept.add(tiles.pairs(left, p, q, limit, close=close), limit)
        did(float(len(p.index)) * len(q.index))


def sampled_gaps(tiles: CpuTiles, level: Level, *, close: bool, count: int = SAMPLED_ROWS) -> list[NDArray[np.float32]]:
    """The gaps between some clusters, drawn with a fixed seed, and all clusters, tile by tile."""
    m = level.clusters
    # A fixed seed, so that the same table gives the same threshold in every run.
    drawn = np.random.default_rng(0).permutation(m)[:count]
    rows = np.cumsum(np.diff(level.starts)[drawn])
    # Clusters of many rows cost as much as their rows, so that fewer of them are sampled.
    drawn = np.sort(drawn[: max(1, int(np.searchsorted(rows, 4 * count)))])
    sample = Block.of(drawn, level.order, level.starts)
    parts = blocks_of(sample.index, sample.starts, tiles.size)
    gaps: list[NDArray[np.float32]] = []
    for part in parts:
        left = tiles.left(part)
        gaps += [
            tiles.host(tiles.gaps(left, part, block, close=close))
            for block in blocks_of(level.order, level.starts, tiles.size)
        ]
    return gaps
