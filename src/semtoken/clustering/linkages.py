"""Merges of complete and single linkage: how two clusters' distance follows from their parts.

Decisions that the error of a float32 product leaves open, made by distances in float64.

The gaps of tiles differ from exact ones in their last digits, by an amount that depends on the order of summation.
Which of two clusters is nearer, and which of two merges comes first, is asked here where that difference could tell.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.merges import number_roots
from semtoken.clustering.near import (
    EVERYTHING,
    Graph,
    Level,
    TooManyTies,
    distance_pass,
    graph_of,
    near_pairs,
    sampled_gaps,
)
from semtoken.clustering.progress import Monitor
from semtoken.clustering.rows import compiled_loops
from semtoken.clustering.tiles import CLOSENESS, CpuTiles, Gaps, Pairs
from semtoken.support.arrays import IntArray

log = logging.getLogger(__name__)

STEPS = 10_000
"""How many steps of the chain there are between two looks at the clock and at Ctrl-C."""
FLOPS_PER_PAIR = 100_000
"""How many operations of the product there have to be for each pair that is kept: keeping it then takes less than a
tenth of the time of a pass."""
FEWEST_PAIRS = 128
"""The fewest pairs per row that are worth having room for, even if products are cheap."""
SMALL = 1_000_000
"""There is always room for this many pairs."""
SLOW, HOPELESS = 0.1, 0.002
"""Shares of the clusters. After a pass that merges fewer than the first, the next one keeps more pairs. The sparse
graph is given up after a pass that merges fewer than the second with all the pairs for which there is room."""
CLOSE_UP_TO = {"cosine": 2.0**-10, "euclidean": 2.0**-6}
"""Above these gaps no pair of clusters is so close that digits cancel."""


@dataclass(frozen=True)
class FoundMerges:
    """Merges of clusters named by their lowest rows, in the order in which they are applied."""

    pair: NDArray[np.int64]
    gap: NDArray[np.floating[Any]]


class SparsePathEnds(Exception):
    """No sparse graph that is worth its memory fits into it, so another way must be taken; the message says why."""


def complete_merges(
    tiles: CpuTiles,
    nodes: NDArray[np.int64],
    needed: int,
    *,
    late: int = 0,
    room: int,
    threads: int,
    monitor: Monitor,
) -> tuple[FoundMerges, list[dict[str, float]]]:
    """At least the lowest `needed` merges of the dendrogram, under complete linkage, of the rows `nodes` [m].
    These ascend, no two alike. Merges known to happen at gap 1 (`late`, rows of zeros with each other) count as soon as
    that height is reached. `SparsePathEnds` if as many pairs as there is `room` for lead to next to no merges.
    """
    cluster = np.arange(len(nodes))
    reached = np.float32(0)
    stages: list[FoundMerges] = []
    passes: list[dict[str, float]] = []
    width = tiles.rows.width
    least = max(FEWEST_PAIRS * len(nodes), SMALL)
    worthwhile = int(np.clip(len(nodes) ** 2 * width / FLOPS_PER_PAIR, least, room))
    while sum(len(s.gap) for s in stages) + (late if reached >= 1 else 0) < needed:
        level = level_of(nodes, cluster)
        close = float(reached) <= CLOSE_UP_TO[tiles.rows.metric]
        stage, limit, kept = _stage(tiles, level, worthwhile, reached, close=close, threads=threads, monitor=monitor)
        # A pass costs the same however little it merges.
        if limit < EVERYTHING and len(stage.gap) < SLOW * level.clusters:
            if worthwhile == room and len(stage.gap) < HOPELESS * level.clusters:
                raise SparsePathEnds(
                    f"{room:,} pairs, all there is memory for, lead to {len(stage.gap):,} merges of "
                    f"{level.clusters:,} clusters"
                )
            worthwhile = min(4 * worthwhile, room)
        if len(stage.gap) or limit == EVERYTHING:
            reached = max(reached, limit)
        lowest = level.order[level.starts[:-1]]  # clusters are named by their lowest rows
        stages.append(FoundMerges(lowest[stage.pair], stage.gap))
        cluster = _merge(cluster, stage, level.clusters)
        passes.append({"gap": float(reached), "pairs": kept, "before": level.clusters, "merges": len(stage.gap)})
        log.info("pass %d: %d pairs kept, %d merges of %d clusters", len(passes), kept, len(stage.gap), level.clusters)
    pairs = np.concatenate([s.pair for s in stages] or [np.empty((0, 2), np.int64)])
    gaps = np.concatenate([s.gap for s in stages] or [np.empty(0)])
    order = np.argsort(gaps, kind="stable")  # a pass may find a merge a little below the threshold of that before
    return FoundMerges(pairs[order], gaps[order].astype(np.float32)), passes


def level_of(nodes: NDArray[np.int64], cluster: NDArray[np.int64]) -> Level:
    """Sort rows by cluster; clusters are numbered by their lowest rows."""
    order = np.argsort(cluster, kind="stable")
    return Level(nodes[order], np.concatenate([[0], np.cumsum(np.bincount(cluster))]))


class ChainClusters(NamedTuple):
    """The 2m clusters of a run of the chain: those that are given, and then the results of merges."""

    parent: NDArray[np.int32]
    """[2m] the cluster that each has become part of, itself at first."""
    low: NDArray[np.int32]
    """[2m] the lowest base cluster of each."""
    size: NDArray[np.int32]
    """[2m] how many base clusters each has."""
    part: NDArray[np.int32]
    """[2m] zeros, in which a list counts how much of each cluster it holds."""
    farthest: NDArray[np.float32]
    """[2m] zeros, in which it notes the largest gap to them."""
    touched: NDArray[np.int32]
    """[m] room for the clusters that were counted."""

    @classmethod
    def of(cls, m: int) -> ChainClusters:
        """Begin with m clusters that are not merged."""
        return cls(
            parent=np.arange(2 * m, dtype=np.int32),
            low=np.arange(2 * m, dtype=np.int32),
            size=np.ones(2 * m, np.int32),
            part=np.zeros(2 * m, np.int32),
            farthest=np.zeros(2 * m, np.float32),
            touched=np.empty(m, np.int32),
        )


class MadeMerges(NamedTuple):
    """The merges of a run of the chain, in the order in which they were found."""

    pair: NDArray[np.int64]
    """[m, 2] the lowest base clusters of both."""
    parts: NDArray[np.int64]
    """[m, 2] the clusters that became one."""
    height: NDArray[np.float32]
    """[m] the gap between them."""


def chain_merges(
    graph: Graph, exact: ExactGaps, reached: np.float32, limit: np.float32, monitor: Monitor
) -> tuple[FoundMerges, NDArray[np.int32]]:
    """All merges that the graph of near pairs allows, in no order, and how many parts each result has.

    The pass before ended at `reached`, and the graph holds all pairs up to `limit`. Clusters are named by their lowest
    parts. Whatever the errors of the gaps leave open is decided by exact ones.
    """
    m = len(graph.start) // 2
    clusters = ChainClusters.of(m)
    made = MadeMerges(np.empty((m, 2), np.int64), np.empty((m, 2), np.int64), np.empty(m, np.float32))
    stack = np.empty(m, np.int32)
    members = Members.of(m)
    state = np.array([0, 0, 0, -1, -1])
    # A pair that the graph lacks has a gap above the limit, and an exact one above the limit less the error: no merge
    # up to here depends on it.
    within = np.float32(limit - 2 * exact.error(limit))
    loops = compiled_loops()
    more = True
    while more:
        more = loops.chain(state, STEPS, graph, clusters, members, made, stack, exact.slack, exact.refined, within)
        if state[3] >= 0:
            before = int(stack[state[0] - 2]) if state[0] > 1 else -1
            state[4] = exact.nearest(int(state[3]), before, graph, members, clusters.low)
        monitor.advance(min(1.0, float(state[1]) / (m + state[2])))
    done = int(state[2])
    heights = exact.heights(made.height[:done], made.parts[:done], members, (reached, limit))
    return FoundMerges(np.sort(made.pair[:done], axis=1), heights), clusters.size[m : m + done]


def _stage(
    tiles: CpuTiles, level: Level, room: int, reached: np.float32, *, close: bool, threads: int, monitor: Monitor
) -> tuple[FoundMerges, np.float32, int]:
    """One pass and the merges it leads to, with its threshold and the number of pairs."""
    none = FoundMerges(np.empty((0, 2), np.int64), np.empty(0))
    exact = ExactGaps(tiles, level, close=close)
    try:
        near = near_pairs(tiles, level, room, close=close, threads=threads, monitor=monitor, error=exact.error)
    except TooManyTies:
        return none, np.float32(0), 0
    kept = sum(len(pairs.gap) for pairs in near.pairs)
    with monitor.phase("graph"):
        graph = graph_of(near, level.clusters)
    with monitor.phase("merging"):
        merges, parts = chain_merges(graph, exact, reached, near.limit, monitor)
    order = np.lexsort((merges.pair[:, 0], parts, merges.gap))  # a merge stands after those it is built from
    safe = near.limit if near.limit == EVERYTHING else np.float32(near.limit - 3 * exact.error(near.limit))
    return FoundMerges(merges.pair[order], merges.gap[order]), safe, kept


def _merge(cluster: NDArray[np.int64], stage: FoundMerges, m: int) -> NDArray[np.int64]:
    """Clusters after the merges, numbered by their lowest rows."""
    parent = np.arange(m)
    parent[stage.pair[:, 1]] = stage.pair[:, 0]
    return number_roots(parent).astype(np.int64)[cluster]


PAIRS_PER_ROW = 32
"""How many pairs are gathered for each row before they are thinned."""
SAMPLED_ROWS = 512
"""How many rows are sampled, whose distances to all others bound the height of the cut from above."""


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


ROUNDING = 4.0 * 2.0**-24
"""Error of a sum of d products in float32, as a part of sqrt(d) times their greatest sum. Measured errors are a quarter
of it."""
FEW_PAIRS = 256
"""Up to this many pairs of rows are all computed in float64; of more, only the farthest by their products."""
CHUNK = 4096


class Members(NamedTuple):
    """The base clusters of every cluster, as chains: one that has merged is a part of the chain of the whole."""

    first: IntArray
    """[2m] the first base cluster of each cluster."""
    last: IntArray
    """[2m] the last base cluster of each cluster."""
    following: IntArray
    """[m] the base cluster behind each in its chain, -1 for none."""

    @classmethod
    def of(cls, m: int) -> Members:
        """Begin with m clusters of one base cluster each."""
        return cls(np.arange(2 * m), np.arange(2 * m), np.full(m, -1))

    def list_of(self, cluster: int) -> list[int]:
        """The base clusters of one cluster."""
        at, last = int(self.first[cluster]), int(self.last[cluster])
        base_clusters = [at]
        while at != last:
            at = int(self.following[at])
            base_clusters.append(at)
        return base_clusters


class ExactGaps:
    """The largest gap between the rows of two clusters, in float64.

    The gaps with errors came from `tiles`; with `close`, small ones were computed again from differences.
    """

    def __init__(self, tiles: CpuTiles, level: Level, *, close: bool) -> None:
        self._tiles, self._level = tiles, level
        least, most = half_norms(tiles, level.order)
        self.slack = np.float32(ROUNDING * np.sqrt(tiles.rows.width) * 2 * most)
        """How far a gap may be from the exact one."""
        self.refined = np.float32(CLOSENESS * 2 * least if close else 0.0)
        """Gaps below this one were computed from differences."""

    def _rows(self, clusters: list[int]) -> IntArray:
        level = self._level
        return np.concatenate([level.order[level.starts[c] : level.starts[c + 1]] for c in clusters])

    def error(self, gaps: Any) -> Any:
        """A bound on how far gaps that were computed in float32 are from the exact ones."""
        return np.where(gaps < self.refined, gaps * np.float32(2.0**-22), self.slack)

    def between(self, one: IntArray, other: IntArray) -> float:
        """The largest gap between a row of one set and a row of the other."""
        if len(one) * len(other) <= FEW_PAIRS:
            return float(self._exact(np.repeat(one, len(other)), np.tile(other, len(one))).max())
        # The pairs of rows that may be the farthest, from products of pieces of both.
        rows, size = self._tiles.rows, self._tiles.size
        most, candidates = np.float32(0), []
        for a in range(0, len(one), size):
            left = rows.block(one[a : a + size], left=True)
            for b in range(0, len(other), size):
                gap = left @ rows.block(other[b : b + size], left=False).T
                most = max(most, gap.max())
                i, j = np.nonzero(gap >= most - 2 * self.slack)
                candidates.append((one[a + i], other[b + j], gap[i, j]))
        first, second, far = (np.concatenate(parts) for parts in zip(*candidates, strict=True))
        near_most = far >= most - 2 * self.slack
        return float(self._exact(first[near_most], second[near_most]).max())

    def _exact(self, one: IntArray, other: IntArray) -> NDArray[np.float64]:
        """Gaps of pairs of rows, the same to the last digit from both sides."""
        return self._tiles.rows.exact_gaps(np.minimum(one, other), np.maximum(one, other))

    def nearest(self, cluster: int, before: int, graph: Graph, members: Members, low: NDArray[np.int32]) -> int:
        """The nearest in the list of a cluster; of equally near ones that before it in the chain, then the lowest."""
        span = slice(graph.start[cluster], graph.start[cluster] + graph.length[cluster])
        ids, gaps = graph.neighbour[span], graph.gap[span]
        errors = self.error(gaps)
        best = int(gaps.argmin())
        own = self._rows(members.list_of(cluster))
        rivals = ids[gaps - errors <= gaps[best] + errors[best]].tolist()
        exact = [self.between(own, self._rows(members.list_of(rival))) for rival in rivals]
        return int(min(zip(exact, rivals, strict=True), key=lambda pair: (pair[0], pair[1] != before, low[pair[1]]))[1])

    def heights(self, gaps: Gaps, parts: IntArray, members: Members, ends: Sequence[Any]) -> NDArray[np.float64]:
        """The gap [n] between the clusters `parts` [n, 2] of each merge, exact where rounding could change the order.
        Merges of another pass may stand beside those near the gaps where it begins and `ends`: these are exact, too.
        """
        merge_gaps = gaps.astype(np.float64)
        doubtful = np.flatnonzero(
            self._in_doubt(merge_gaps) | np.any([abs(merge_gaps - e) < 8 * self.slack for e in ends], 0)
        )
        lists = {t: [self._rows(members.list_of(cluster)) for cluster in parts[t]] for t in doubtful.tolist()}
        small = [t for t, (one, other) in lists.items() if len(one) * len(other) <= FEW_PAIRS]
        for first in range(0, len(small), CHUNK):
            chunk = small[first : first + CHUNK]
            one = np.concatenate([np.repeat(lists[t][0], len(lists[t][1])) for t in chunk])
            other = np.concatenate([np.tile(lists[t][1], len(lists[t][0])) for t in chunk])
            counts = [len(lists[t][0]) * len(lists[t][1]) for t in chunk]
            merge_gaps[chunk] = np.maximum.reduceat(self._exact(one, other), np.cumsum([0, *counts[:-1]]))
        for t in lists.keys() - set(small):
            merge_gaps[t] = self.between(*lists[t])
        return merge_gaps

    def _in_doubt(self, gaps: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of some gaps may change places with others."""
        order = np.argsort(gaps, kind="stable")
        least, most = (gaps[order] + sign * self.error(gaps[order]) for sign in (-1, 1))
        doubt = np.zeros(len(gaps), np.bool_)
        doubt[order[1:]] = least[1:] <= np.maximum.accumulate(most)[:-1]
        doubt[order[:-1]] |= most[:-1] >= np.minimum.accumulate(least[::-1])[::-1][1:]
        return doubt


def half_norms(tiles: CpuTiles, rows: IntArray) -> tuple[float, float]:
    """The smallest and the largest |x|^2 / 2 among some rows."""
    if tiles.rows.metric == "cosine":
        return 0.5, 0.5
    halves = [tiles.rows.block(rows[at : at + CHUNK], left=False)[:, -2] for at in range(0, len(rows), CHUNK)]
    return min(float(half.min()) for half in halves), max(float(half.max()) for half in halves)
