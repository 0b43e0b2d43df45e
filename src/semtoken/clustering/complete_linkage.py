"""Merges of complete linkage: passes over the near pairs of clusters, each followed by a nearest-neighbor chain."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.exact_gaps import ExactGaps, Members
from semtoken.clustering.merges import FoundMerges, number_roots
from semtoken.clustering.near import EVERYTHING, Graph, Level, TooManyTies, graph_of, near_pairs
from semtoken.clustering.progress import Monitor
from semtoken.clustering.rows import compiled_loops
from semtoken.clustering.tiles import CpuTiles

log = logging.getLogger(__name__)

STEPS = 10_000
"""The number of steps of the chain between two looks at the clock and at Ctrl-C."""
FLOPS_PER_PAIR = 100_000
"""The fewest operations of the product for each pair that is kept: keeping it then takes less than a tenth of the time
of a pass."""
FEWEST_PAIRS = 128
"""The fewest pairs per row that are worth having room for, even if products are cheap."""
SMALL = 1_000_000
"""There is always room for this many pairs."""
SLOW, HOPELESS = 0.1, 0.002
"""Shares of the clusters. After a pass that merges fewer than the first, the next one keeps more pairs. The sparse
graph is given up after a pass that merges fewer than the second with all the pairs for which there is room."""
CLOSE_UP_TO = {"cosine": 2.0**-10, "euclidean": 2.0**-6}
"""Above these gaps no pair of clusters is so close that digits cancel."""


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
