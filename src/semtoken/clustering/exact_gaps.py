"""Decisions that the error of a float32 product leaves open, made by distances in float64.

The gaps of tiles differ from exact ones in their last digits, by an amount that depends on the order of summation.
Which of two clusters is nearer, and which of two merges comes first, is asked here where that difference could decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.near import Graph, Level
from semtoken.clustering.tiles import CLOSENESS, CpuTiles, Gaps
from semtoken.support.arrays import IntArray

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
        """The most by which a gap may be off."""
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
        ids, gaps = graph.neighbor[span], graph.gap[span]
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
        """The gaps that may change places with others."""
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
