"""From checked rows to merges: the order of events that complete, average and single linkage share.

Equal rows merge first, at distance 0, and go on as one row. (Rows of zeros, too: under cosine they are at
distance 1 from everything and from each other, so they merge at height 1, but nothing can come before. Average linkage
under euclidean distance is the exception: there every row goes on by itself.)
What remains is handed to the engine of the linkage, and the merges it gives are put together with those.

Exact linkage in rounds of mutual nearest neighbors, without a stored matrix.

Any two clusters that are each other's nearest may merge at once (the linkages used here are reducible: a merged
cluster is never nearer to a third than the nearer of its parts was). So each round merges all such pairs and
computes the distances of the new clusters to all others. A short list of near neighbors for every cluster
makes it rarely necessary to look at all distances of an old one again.

Average linkage always takes this way: under cosine, the mean distance of two clusters is one minus the product
of their mean unit rows, so a cluster costs no more than a row. Complete linkage takes it where the sparse graph
does not fit into memory; clusters then cost as much as the rows they hold.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from semtoken.choices import Linkage
from semtoken.clustering import memory
from semtoken.clustering.linkages import PAIRS_PER_ROW, FoundMerges, SparsePathEnds, complete_merges, single_merges
from semtoken.clustering.merges import Merges
from semtoken.clustering.near import BYTES_PER_PAIR, EVERYTHING, SAMPLED_ROWS
from semtoken.clustering.progress import Did, Job, Monitor, run_all
from semtoken.clustering.rows import Rows, compiled_loops, equal_rows
from semtoken.clustering.tiles import Block, CpuTiles, Gaps, blocks_of, resolve, tiles_on
from semtoken.support.arrays import IntArray

PLACES = 16
"""How many near neighbors are remembered for every cluster."""
SOME = 256
"""For how many clusters the means are computed at a time, which takes a few more copies of them."""
SLACK = 0.7
"""The slots are renumbered without the empty ones when fewer than this share of them holds a cluster."""


@dataclass
class Lists:
    """The known nearest neighbors of every slot."""

    near: NDArray[np.int32]
    near_gap: NDArray[np.float32]
    near_tie: NDArray[np.int32]
    count: NDArray[np.int32]
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
        return Lists(self.near[slots], self.near_gap[slots], self.near_tie[slots], self.count[slots], self.bound[slots])

    def forget(self, slots: IntArray) -> None:
        """Empty the lists of some slots."""
        self.count[slots] = 0
        self.bound[slots] = np.inf

    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The arrays in the order in which the compiled loops take them."""
        return self.near, self.near_gap, self.near_tie, self.count, self.bound


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
        """How many rows each of these slots contributes to a matrix product."""
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

    def look(self, slots: IntArray, fresh: NDArray[np.bool_], threads: int, tell: Callable[[float], None]) -> None:
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
        run_all(jobs, threads, tell)

    def _look(
        self, slots: IntArray, fresh: NDArray[np.bool_], scanned: NDArray[np.bool_], lock: threading.Lock, did: Did
    ) -> None:
        loops = compiled_loops()
        left = self.clusters.left(slots)
        ranges = self.clusters.columns()
        for columns in ranges:
            gap = self.clusters.gaps(left, slots, columns)
            np.maximum(gap, 0, out=gap)
            state = (self.name, self.low, *self.lists.arrays())
            loops.scan_rows(gap, slots, columns.start, *state)
            if fresh.any():
                # Lists of other slots are written here, and by other threads, too.
                with lock:
                    loops.offer_rows(gap, slots, fresh, columns.start, scanned, *state)
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
        compiled_loops().drop_dead(self.alive, *self.lists.arrays(), stale)
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


log = logging.getLogger(__name__)


SMALL_TILE, LARGE_TILE, TILE_ON_DEVICE = 1024, 1536, 8192
"""How many rows a block has: tiles of short rows should stay in the cache, long rows and devices want larger
products."""
MOST_PAIR_BYTES = 5_000_000_000
"""The most bytes for pairs that are worth having; more would hardly save another pass over the distances."""
BYTES_PER_ROW = {"complete": 8 * SAMPLED_ROWS, "average": 12 * PLACES, "single": 80 * PAIRS_PER_ROW}
"""Bytes per row without which an engine cannot work: the sample, the short lists, the pairs to be thinned."""


@dataclass(frozen=True)
class Distinct:
    """The different rows that are clustered, and the rows that equal one of them or are zero."""

    nodes: NDArray[np.int64]
    """Rows that differ from each other, ascending."""
    weight: NDArray[np.int64]
    """How many rows each of them stands for."""
    equal: NDArray[np.int64]
    """Pairs (row, later row equal to it)."""
    zeros: NDArray[np.int64]
    """Pairs (first row of zeros, later one), under cosine."""

    @classmethod
    def of(cls, rows: Rows) -> Distinct:
        """Group equal rows of a table, so that each is clustered once."""
        leader = equal_rows(rows)
        nodes, weight = np.unique(leader, return_counts=True)
        others = np.flatnonzero(leader != np.arange(rows.n))
        pairs = np.stack([leader[others], others], axis=1)
        late = rows.zero[others] & (rows.metric == "cosine")
        return cls(nodes, weight, pairs[~late], pairs[late])

    @classmethod
    def all_of(cls, rows: Rows) -> Distinct:
        """Treat every row as different, without looking for equal ones."""
        none = np.empty((0, 2), np.int64)
        return cls(np.arange(rows.n), np.ones(rows.n, np.int64), none, none)


@dataclass(frozen=True)
class Course:
    """How clusters were found, for the report: see `ClusteringReport`."""

    engine: str
    fallback: str | None = None
    passes: tuple[Mapping[str, float | None], ...] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """How the allowed memory is divided."""

    tile: int
    """Rows in a block."""
    fixed: int
    """Bytes for blocks, tiles and a few numbers per row."""
    room: int
    """How many pairs may be kept at a time."""


def agglomerate(
    rows: Rows,
    linkage: Linkage,
    fewest: int,
    *,
    allowed: int,
    threads: int,
    device: str | None,
    tile: int | None,
    monitor: Monitor,
) -> tuple[Merges, Course]:
    """Merge rows from the bottom of the dendrogram until `fewest` clusters are left.
    `InsufficientMemory`, before any work on distances, if not even the smallest plan fits into `allowed` bytes.
    """
    # Average linkage works on NumPy arrays: means of clusters, or sums over tiles.
    place = resolve(device) if linkage != "average" else "cpu"
    plan = make_plan(rows, linkage, allowed=allowed, threads=threads, tile=tile, on_cpu=place == "cpu")
    tiles = tiles_on(place, rows, plan.tile, monitor)
    with monitor.phase("rows"):
        # A mean euclidean distance is taken over all rows, equal ones too.
        whole = linkage == "average" and rows.metric == "euclidean"
        distinct = Distinct.all_of(rows) if whole else Distinct.of(rows)
    # Equal rows merge at distance 0, before everything else.
    needed = rows.n - fewest - len(distinct.equal)
    passes: list[dict[str, float]] = []
    engine, fallback = f"no distances needed on {tiles.name}", None
    merges = FoundMerges(np.empty((0, 2), np.int64), np.empty(0, np.float32))
    options: dict[str, Any] = {"late": len(distinct.zeros), "threads": threads, "monitor": monitor}
    with tiles.running():
        if needed <= 0:
            pass
        elif linkage == "single":
            merges, engine = single_merges(tiles, distinct.nodes, needed, **options), "spanning forest"
        elif linkage == "average":
            merges, engine = rounds_merges(_average(tiles, distinct), needed, **options), "rounds"
        else:
            engine = "sparse chain"
            try:
                merges, passes = complete_merges(tiles, distinct.nodes, needed, room=plan.room, **options)
            except SparsePathEnds as reason:
                engine, fallback = "rounds", str(reason)
                log.warning("complete linkage goes on in rounds, exact but slower: %s", reason)
                tiles = tiles_on("cpu", rows, min(plan.tile, LARGE_TILE), monitor)
                state = Rounds(WholeRows(tiles, distinct.nodes, "max"), tiles, distinct.nodes, distinct.weight)
                merges = rounds_merges(state, needed, **options)
    reports = tuple(_report(rows, pass_facts) for pass_facts in passes)
    return assemble(rows, distinct, merges), Course(f"{engine} on {tiles.name}", fallback, reports)


def _report(rows: Rows, facts: Mapping[str, float]) -> dict[str, float | None]:
    """The facts of a pass with the distance of its threshold; None for the pass that keeps everything."""
    gap = np.float32(facts["gap"])
    threshold = None if gap >= EVERYTHING else float(rows.distance(np.array(gap)))
    return {"threshold": threshold, **{name: value for name, value in facts.items() if name != "gap"}}


def make_plan(
    rows: Rows, linkage: Linkage, *, allowed: int, threads: int, tile: int | None, on_cpu: bool = True
) -> MemoryPlan:
    """Divide the allowed memory, with smaller tiles where there is little.
    `InsufficientMemory` if not even tiles of 64 rows and the smallest number of pairs fit.
    """
    size = tile or (TILE_ON_DEVICE if not on_cpu else LARGE_TILE if rows.columns >= 1024 else SMALL_TILE)
    least = rows.n * (100 + BYTES_PER_ROW[linkage])
    # The means of clusters take a copy of the table.
    if linkage == "average" and rows.metric == "cosine":
        least += 4 * rows.n * rows.columns
    # Tiles may take half of what is left, so that pairs have room.
    while tile is None and size > 64 and _tile_bytes(size, rows.width, threads) > (allowed - least) / 2:
        size //= 2
    fixed = least + _tile_bytes(size, rows.width, threads)
    memory.check(
        fixed,
        allowed,
        what=f"{linkage} linkage of {rows.n:,} rows of {rows.columns:,} numbers",
        alternatives="raise memory_budget, free memory, or use fewer threads"
        + ("; complete or single linkage needs no copy of the table." if linkage == "average" else "."),
    )
    # The sample is gone when pairs are kept.
    room = (min(allowed - fixed, MOST_PAIR_BYTES) + rows.n * BYTES_PER_ROW[linkage]) // BYTES_PER_PAIR
    plan = MemoryPlan(size, fixed, room)
    log.info(
        "%s linkage of %d rows: %s for tiles of %d rows and %s for pairs, of %s allowed",
        linkage, rows.n, memory.gigabytes(fixed), size, memory.gigabytes(room * BYTES_PER_PAIR),
        memory.gigabytes(allowed),
    )  # fmt: skip
    return plan


def _tile_bytes(size: int, width: int, threads: int) -> int:
    """Two blocks of rows, a tile of gaps, and its places and values, in every thread."""
    return threads * (2 * 4 * size * width + 12 * size * size)


def _average(tiles: CpuTiles, distinct: Distinct) -> Rounds:
    rows = tiles.rows
    if rows.metric == "cosine":
        means = MeanRows(tiles, distinct.nodes, distinct.weight)
        return Rounds(means, tiles, distinct.nodes, distinct.weight)
    return Rounds(WholeRows(tiles, distinct.nodes, "mean"), tiles, distinct.nodes, distinct.weight)


def assemble(rows: Rows, distinct: Distinct, found_merges: FoundMerges) -> Merges:
    """All merges sorted by height: those of equal rows, those that the engine found, and those of zero rows."""
    at = int(np.searchsorted(found_merges.gap, np.float32(1))) if len(distinct.zeros) else len(found_merges.gap)
    pair = np.concatenate([distinct.equal, found_merges.pair[:at], distinct.zeros, found_merges.pair[at:]])
    height = np.concatenate(
        [
            np.zeros(len(distinct.equal), np.float32),
            rows.distance(found_merges.gap[:at]),
            np.ones(len(distinct.zeros), np.float32),
            rows.distance(found_merges.gap[at:]),
        ]
    )
    return Merges(rows.n, pair.min(axis=1).astype(np.int32), pair.max(axis=1).astype(np.int32), height)
