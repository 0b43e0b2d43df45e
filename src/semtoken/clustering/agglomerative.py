"""From checked rows to merges: the order of events that complete, average and single linkage share.

Equal rows merge first, at distance 0, and go on as one row. (Rows of zeros, too: under cosine they are at
distance 1 from everything and from each other, so they merge at height 1, but nothing can come before. Average linkage
under euclidean distance is the exception: there every row goes on by itself.)
What remains is handed to the engine of the linkage, and the merges it gives are put together with those.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semtoken.choices import Linkage
from semtoken.clustering import memory
from semtoken.clustering.complete_linkage import SparsePathEnds, complete_merges
from semtoken.clustering.merges import FoundMerges, Merges
from semtoken.clustering.near import BYTES_PER_PAIR, EVERYTHING, SAMPLED_ROWS
from semtoken.clustering.progress import Monitor
from semtoken.clustering.rounds import PLACES, MeanRows, Rounds, WholeRows, rounds_merges
from semtoken.clustering.rows import Rows, equal_rows
from semtoken.clustering.single_linkage import PAIRS_PER_ROW, single_merges
from semtoken.clustering.tiles import CpuTiles, resolve, tiles_on

log = logging.getLogger(__name__)

SMALL_TILE, LARGE_TILE, TILE_ON_DEVICE = 1024, 1536, 8192
"""The number of rows of a block: tiles of short rows should stay in the cache, long rows and devices want larger
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
    """The number of rows that each of them stands for."""
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
    """The engine and the passes that found the clusters, for `ClusteringReport`."""

    engine: str
    fallback: str | None = None
    passes: tuple[Mapping[str, float | None], ...] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """The division of the allowed memory."""

    tile: int
    """Rows in a block."""
    fixed: int
    """Bytes for blocks, tiles and a few numbers per row."""
    room: int
    """The most pairs that may be kept at a time."""


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
            merges, engine = rounds_merges(_rounds(tiles, distinct, linkage), needed, **options), "rounds"
        else:
            engine = "sparse chain"
            try:
                merges, passes = complete_merges(tiles, distinct.nodes, needed, room=plan.room, **options)
            except SparsePathEnds as reason:
                engine, fallback = "rounds", str(reason)
                log.warning("complete linkage goes on in rounds, exact but slower: %s", reason)
                tiles = tiles_on("cpu", rows, min(plan.tile, LARGE_TILE), monitor)
                merges = rounds_merges(_rounds(tiles, distinct, linkage), needed, **options)
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


def _rounds(tiles: CpuTiles, distinct: Distinct, linkage: Linkage) -> Rounds:
    """The start of a run in rounds, every row a cluster of its own, for complete or average linkage."""
    clusters: MeanRows | WholeRows
    if linkage == "average" and tiles.rows.metric == "cosine":
        clusters = MeanRows(tiles, distinct.nodes, distinct.weight)
    else:
        clusters = WholeRows(tiles, distinct.nodes, "mean" if linkage == "average" else "max")
    return Rounds(clusters, tiles, distinct.nodes, distinct.weight)


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
