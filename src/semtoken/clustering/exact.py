"""Decisions that the error of a float32 product leaves open, made by distances in float64.

The gaps of tiles differ from exact ones in their last digits, by an amount that depends on the order of summation.
Which of two clusters is nearer, and which of two merges comes first, is asked here where that difference could tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.near import Graph, Level
from semtoken.clustering.tiles import CLOSENESS, CpuTiles

Ints = NDArray[np.int64]

ROUNDING = 4.0 * 2.0**-24
"""Error of a sum of d products in float32, as a part of sqrt(d) times their greatest sum. Found: a quarter of it."""
FEW_PAIRS = 256
"""Of so many pairs of rows all are computed in float64; of more, those that a product shows to be farthest."""
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Members:
    """The base clusters of every cluster, as chains: one that has merged is a part of the chain of the whole."""

    first: Ints
    """[2m] the first base cluster of each cluster."""
    last: Ints
    """[2m] the last one."""
    following: Ints
    """[m] the base cluster behind each in its chain, -1 for none."""

    @classmethod
    def of(cls, m: int) -> Members:
        """Every base cluster for itself."""
        return cls(np.arange(2 * m), np.arange(2 * m), np.full(m, -1))

    def list_of(self, cluster: int) -> list[int]:
        """The base clusters of one cluster."""
        at, last = int(self.first[cluster]), int(self.last[cluster])
        found = [at]
        while at != last:
            at = int(self.following[at])
            found.append(at)
        return found


class ExactGaps:
    """Largest gaps between the rows of two clusters, in float64.

    Parameters
    ----------
    tiles : CpuTiles
        Where the gaps with errors came from.
    level : Level
        The base clusters.
    close : bool
        Whether small gaps were computed again from differences.
    """

    def __init__(self, tiles: CpuTiles, level: Level, *, close: bool) -> None:
        self._tiles, self._level = tiles, level
        least, most = half_norms(tiles, level.order)
        self.slack = np.float32(ROUNDING * np.sqrt(tiles.rows.width) * 2 * most)
        """How far a gap may be from the exact one."""
        self.refined = np.float32(CLOSENESS * 2 * least if close else 0.0)
        """Gaps below were computed from differences."""

    def _rows(self, clusters: list[int]) -> Ints:
        level = self._level
        return np.concatenate([level.order[level.starts[c] : level.starts[c + 1]] for c in clusters])

    def error(self, gaps: Any) -> Any:
        """How far gaps may be from exact ones."""
        return np.where(gaps < self.refined, gaps * np.float32(2.0**-22), self.slack)

    def between(self, one: Ints, other: Ints) -> float:
        """Largest gap between some rows and others."""
        i, j = (part.ravel() for part in np.meshgrid(np.arange(len(one)), np.arange(len(other)), indexing="ij"))
        if len(i) > FEW_PAIRS:
            rows = self._tiles.rows
            gap = rows.block(one, left=True) @ rows.block(other, left=False).T
            i, j = np.nonzero(gap >= gap.max() - 2 * self.slack)
        return float(self._exact(one[i], other[j]).max())

    def _exact(self, one: Ints, other: Ints) -> NDArray[np.float64]:
        """Gaps of pairs of rows, the same to the last digit from both sides."""
        return self._tiles.rows.float64_gaps(np.minimum(one, other), np.maximum(one, other))

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

    def heights(self, parts: Ints, members: Members) -> NDArray[np.float64]:
        """Gaps of merges, given the two clusters of each."""
        lists = [(self._rows(members.list_of(a)), self._rows(members.list_of(b))) for a, b in parts.tolist()]
        found = np.empty(len(lists))
        small = [t for t, (one, other) in enumerate(lists) if len(one) * len(other) <= FEW_PAIRS]
        for first in range(0, len(small), CHUNK):
            chunk = small[first : first + CHUNK]
            one = np.concatenate([np.repeat(lists[t][0], len(lists[t][1])) for t in chunk])
            other = np.concatenate([np.tile(lists[t][1], len(lists[t][0])) for t in chunk])
            counts = [len(lists[t][0]) * len(lists[t][1]) for t in chunk]
            found[chunk] = np.maximum.reduceat(self._exact(one, other), np.cumsum([0, *counts[:-1]]))
        for t in set(range(len(lists))) - set(small):
            found[t] = self.between(*lists[t])
        return found


def half_norms(tiles: CpuTiles, rows: Ints) -> tuple[float, float]:
    """The least and the greatest |x|^2 / 2 of some rows."""
    if tiles.rows.metric == "cosine":
        return 0.5, 0.5
    halves = [tiles.rows.block(rows[at : at + CHUNK], left=False)[:, -2] for at in range(0, len(rows), CHUNK)]
    return min(float(half.min()) for half in halves), max(float(half.max()) for half in halves)
