"""Every distance in memory, merged by SciPy: the plain way, for tables small enough."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from semtoken._extras import require
from semtoken.clustering import memory
from semtoken.clustering.merges import Merges, in_order
from semtoken.clustering.rows import Rows

Linkage: TypeAlias = Literal["complete", "average", "single"]
TILE = 1024


def dense_merges(rows: Rows, linkage: Linkage, allowed: int) -> Merges:
    """The whole dendrogram from the condensed matrix of distances."""
    n = rows.n
    memory.check(
        8 * n * (n - 1) + 16 * TILE * rows.width,
        allowed,
        what=f"Clustering {n:,} rows with every distance in memory",
        alternatives="cluster on a machine with more memory, or raise memory_budget.",
    )
    if n == 1:
        return Merges(1, np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    hierarchy = require("scipy.cluster.hierarchy", extra="cluster")
    condensed = np.empty(n * (n - 1) // 2, np.float64)
    for start in range(0, n, TILE):
        left = rows.block(np.arange(start, min(start + TILE, n)), left=True)
        right = rows.block(np.arange(start, n), left=False)
        distance = rows.distance(left @ right.T)
        for r in range(len(left)):
            i = start + r
            offset = i * n - i * (i + 1) // 2
            condensed[offset : offset + n - i - 1] = distance[r, r + 1 :]
    return _from_scipy(n, hierarchy.linkage(condensed, linkage), rows.unit)


def _from_scipy(n: int, tree: np.ndarray, unit: float) -> Merges:
    lowest = np.concatenate([np.arange(n), np.empty(len(tree), np.int64)])
    for t, (a, b) in enumerate(tree[:, :2].astype(np.int64)):
        lowest[n + t] = min(lowest[a], lowest[b])
    pair = np.sort(lowest[tree[:, :2].astype(np.int64)], axis=1).astype(np.int32)
    height = (tree[:, 2] * unit).astype(np.float32)
    return in_order(n, pair[:, 0], pair[:, 1], height, tree[:, 3].astype(np.int64))
