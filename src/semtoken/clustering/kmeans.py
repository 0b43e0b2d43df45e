"""k-means on unit rows (cosine) or rows as they are (euclidean): k-means++ seeding, Lloyd's iterations, one start.

Both are exact and made of matrix products of many rows at a time, in float32.

*Seeding.* For each seed a few rows are drawn, each with a probability that is proportional to its squared distance from
the nearest seed so far, and the one that leaves the least squared distances is taken (as scikit-learn does, with more
draws). This needs the distances of all rows from those few. Here rows are proposed for many seeds at once, by the
distances that are known, so that one large product gives all their distances. They are then gone through in turn, and
each counts as drawn with the probability that the seeds taken since have left it: its squared distance now, divided by
that of the proposal. So the seeds are those of draws one after another.

*Iterations.* A center moves only if rows have joined or left its cluster. A row compares its own center with those
that moved; with the others only if its own center has moved away from it, since none of them was nearer before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering import memory
from semtoken.clustering.merges import by_first_appearance
from semtoken.clustering.progress import Did, Monitor, run_all
from semtoken.clustering.rows import Rows, compiled_loops
from semtoken.clustering.tiles import Block, CpuTiles, blocks_of
from semtoken.support.arrays import IntArray

log = logging.getLogger(__name__)

Floats: TypeAlias = NDArray[np.float32]

TILE = 1024
"""The number of rows of a block, and the most seeds that are proposed together."""
MOST_DRAWS, FEWEST = 10_000, 3
"""For each of k seeds, 2 + log(k) rows are drawn, as scikit-learn does, but no more than so many in all, unless that
leaves fewer than three for each: the more seeds there are, the less each of them matters."""
MOST_ITERATIONS = 300


def kmeans_labels(
    rows: Rows, wanted: tuple[int, ...], *, seed: int, allowed: int, threads: int, monitor: Monitor
) -> dict[int, NDArray[np.int32]]:
    """The labels by k-means for each wanted number of clusters; fewer clusters, logged, where fewer rows are distinct.
    `InsufficientMemory` if the centers, and blocks of rows in every thread, do not fit into `allowed` bytes.
    """
    needed = 4 * rows.width * (max(wanted) + 3 * threads * TILE) + threads * 4 * TILE**2 + (40 + 4 * TILE) * rows.n
    memory.check(
        needed,
        allowed,
        what=f"k-means of {rows.n:,} rows",
        alternatives="fewer clusters or threads, or a larger memory_budget.",
    )
    # Under cosine, a row of zeros is the origin here, at distance 1 from unit rows and 0 from itself.
    tiles = CpuTiles(replace(rows, metric="euclidean"), TILE, monitor)
    labels = {}
    for k in wanted:
        with tiles.running():
            labels[k] = by_first_appearance(_clustered(tiles, k, np.random.default_rng(seed), threads, monitor))
        n_clusters = int(labels[k].max()) + 1
        if n_clusters < k:
            log.warning("k-means found %d clusters instead of %d: the table has no more distinct rows", n_clusters, k)
    return labels


@dataclass(frozen=True, eq=False)
class _Nearest:
    """The center that is nearest to each row."""

    gap: Floats
    """[n] half the squared distance."""
    center: IntArray
    """[n] its number."""


def _clustered(tiles: CpuTiles, k: int, random: np.random.Generator, threads: int, monitor: Monitor) -> IntArray:
    """The cluster of each row."""
    n = tiles.rows.n
    blocks = [np.arange(b, min(b + TILE, n)) for b in range(0, n, TILE)]

    def for_all(work: Callable[[IntArray], None]) -> None:
        """Call a function for blocks of rows, in threads."""

        def job(block: IntArray, did: Did) -> None:
            work(block)
            did(len(block))

        run_all([(len(block), partial(job, block)) for block in blocks], threads, lambda _: None)

    with monitor.phase(f"seeding {k}"):
        draws = max(FEWEST, min(2 + int(np.log(k)), MOST_DRAWS // k))
        seeds, gaps = [int(random.integers(n))], np.empty((1, n), np.float32)
        for_all(partial(_measure, tiles, np.array(seeds), gaps))
        nearest = _Nearest(gaps[0], np.zeros(n, np.int64))
        while len(seeds) < k and nearest.gap.any():
            proposed = _propose_seeds(nearest.gap, min(TILE, draws * min(len(seeds), k - len(seeds))), random)
            gaps = np.empty((len(proposed), n), np.float32)
            for_all(partial(_measure, tiles, proposed, gaps))
            seeds += _choose_seeds(nearest, proposed, gaps, len(seeds), draws, random)
            monitor.advance(len(seeds) / k)
    centers = np.zeros((len(seeds), tiles.rows.width), np.float32)
    touched = np.ones(len(seeds), bool)
    with monitor.phase(f"iterations {k}"):
        for iteration in range(MOST_ITERATIONS):
            _fill_empty(nearest, len(seeds), touched)
            moved = _move(tiles, centers, nearest.center, touched)
            before = nearest.center.copy()
            for_all(partial(_compare, tiles, centers, moved, nearest))
            changed = before != nearest.center
            touched[:] = False
            touched[before[changed]] = touched[nearest.center[changed]] = True
            log.info("iteration %d: %d centers moved, %d rows changed", iteration + 1, moved.sum(), changed.sum())
            monitor.advance(1 - changed.mean())
            if not changed.any():
                break
    return nearest.center


def _propose_seeds(gap: Floats, count: int, random: np.random.Generator) -> IntArray:
    """Rows drawn with probabilities that are proportional to their squared distances from the nearest seeds."""
    below = np.cumsum(gap, dtype=np.float64)
    drawn = np.searchsorted(below, random.random(count) * below[-1], side="right")
    rows: IntArray = np.minimum(drawn, np.flatnonzero(gap)[-1])  # rounding at the very end
    return rows


def _choose_seeds(
    nearest: _Nearest, proposed: IntArray, gaps: Floats, first: int, draws: int, random: np.random.Generator
) -> list[int]:
    """At least one seed, and as many as the proposed rows lead to, whose distances are then taken into account."""
    loops = compiled_loops()
    taken: list[int] = []
    drawn: list[int] = []
    at_first = nearest.gap[proposed]
    for i, chance in enumerate(random.random(len(proposed))):
        if chance * at_first[i] < nearest.gap[proposed[i]]:
            drawn.append(i)
        if len(drawn) == draws:
            best = drawn[int(np.argmin([loops.sum_of_least(gaps[place], nearest.gap) for place in drawn]))]
            loops.nearest_in_tile(gaps[best : best + 1], np.array([first + len(taken)]), nearest.gap, nearest.center)
            taken.append(int(proposed[best]))
            drawn = []
    return taken


def _measure(tiles: CpuTiles, proposed: IntArray, gaps: Floats, rows: IntArray) -> None:
    """Compute the gaps between proposed seeds and some rows."""
    gaps[:, rows[0] : rows[-1] + 1] = tiles.gaps([], _single(proposed), _single(rows), close=True)


def _single(rows: IntArray) -> Block:
    """A block of rows each of which is a cluster."""
    return Block(0, rows, np.arange(len(rows) + 1))


def _compare(tiles: CpuTiles, centers: Floats, moved: NDArray[np.bool_], nearest: _Nearest, rows: IntArray) -> None:
    """Find the nearest centers of some rows, now that some of the centers have moved."""
    part = slice(rows[0], rows[-1] + 1)
    right = tiles.rows.block(rows, left=False)
    gap, center = nearest.gap[part].copy(), nearest.center[part]
    lost = moved[center]
    gap[lost] = np.inf
    _search(tiles, centers, np.flatnonzero(moved), right, gap, center)
    # Where the own center has come nearer, the centers that stayed cannot be nearer than it.
    far = np.flatnonzero(lost & (gap > nearest.gap[part]))
    if len(far):
        far_gap, far_center = gap[far], center[far]
        _search(tiles, centers, np.flatnonzero(~moved), right[far], far_gap, far_center)
        gap[far], center[far] = far_gap, far_center
    nearest.gap[part] = gap


def _search(tiles: CpuTiles, centers: Floats, some: IntArray, right: Floats, gap: Floats, center: IntArray) -> None:
    """Compare the nearest centers of the rows of a right factor with some others."""
    for b in range(0, len(some), TILE):
        numbers = some[b : b + TILE]
        compiled_loops().nearest_in_tile(tiles.product(centers[numbers], right), numbers, gap, center)


def _move(tiles: CpuTiles, centers: Floats, labels: IntArray, touched: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Put the centers of some clusters where their mean rows are; which centers have moved."""
    order = np.argsort(labels, kind="stable")
    order = order[touched[labels[order]]]
    numbers, starts = np.unique(labels[order], return_index=True)
    moved = np.zeros(len(centers), bool)
    for block in blocks_of(order, np.append(starts, len(order)), TILE):
        some = numbers[block.first : block.first + block.clusters]
        total = np.zeros((block.clusters, tiles.rows.columns))
        local = np.repeat(np.arange(block.clusters), np.diff(block.starts))
        for b in range(0, len(local), TILE):  # a cluster may be larger than a block
            compiled_loops().add_rows(
                tiles.rows.block(block.index[b : b + TILE], left=False), local[b : b + TILE], total
            )
        mean = total / np.diff(block.starts)[:, None]
        factors = np.empty((block.clusters, tiles.rows.width), np.float32)
        # The left factor of the product that gives gaps; see `rows`.
        factors[:, :-2], factors[:, -2] = -mean, 1
        factors[:, -1] = 0.5 * np.einsum("ij,ij->i", mean, mean)
        moved[some] = (factors != centers[some]).any(axis=1)
        centers[some] = factors
    return moved


def _fill_empty(nearest: _Nearest, k: int, touched: NDArray[np.bool_]) -> None:
    """Give each cluster that has lost its rows the row that is farthest from its center."""
    empty = np.flatnonzero(np.bincount(nearest.center, minlength=k) == 0)
    if not len(empty):
        return
    farthest = np.argsort(-nearest.gap, kind="stable")[: len(empty)]
    for cluster, row in zip(empty.tolist(), farthest.tolist(), strict=True):
        if nearest.gap[row] > 0:
            touched[nearest.center[row]] = touched[cluster] = True
            nearest.gap[row], nearest.center[row] = 0, cluster
