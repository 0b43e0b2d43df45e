"""A dendrogram as a list of merges, and how to cut it.

Building the tree and cutting it are separate, so that 8,000, 12,000 and 16,000 clusters come from one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Merges:
    """The lower part of a dendrogram of `n` rows, in the order in which the merges are applied.

    Merge t joins the cluster whose lowest row is `low[t]` with the one whose lowest row is `high[t]`
    (`low < high`) at distance `height[t]`. Heights never fall along the list.
    """

    n: int
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    height: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.height)


@dataclass(frozen=True)
class FoundMerges:
    """Merges of clusters named by their lowest rows, in the order in which they are applied."""

    pair: NDArray[np.int64]
    gap: NDArray[np.floating[Any]]


def cut(merges: Merges, n_clusters: int) -> NDArray[np.int32]:
    """Labels [n] of `n_clusters` clusters, in the order of their first rows; `ValueError` if merges are too few.

    >>> tree = Merges(3, np.array([0, 0], "i4"), np.array([2, 1], "i4"), np.array([0.1, 0.5], "f4"))
    >>> cut(tree, 2).tolist(), cut(tree, 1).tolist()
    ([0, 1, 0], [0, 0, 0])
    """
    needed = merges.n - n_clusters
    if needed > len(merges):
        raise ValueError(f"{len(merges)} merges cannot make {n_clusters} clusters of {merges.n} rows")
    parent = np.arange(merges.n)
    parent[merges.high[:needed]] = merges.low[:needed]
    return number_roots(parent)


def number_roots(parent: NDArray[np.int64]) -> NDArray[np.int32]:
    """Number the roots of all trees in ascending order, and give each node the number of its root."""
    while True:
        grandparent = parent[parent]
        if np.array_equal(grandparent, parent):
            break
        parent = grandparent
    return np.unique(parent, return_inverse=True)[1].astype(np.int32)


def by_first_appearance(labels: NDArray[np.integer]) -> NDArray[np.int32]:
    """Rename the labels of a partition to 0, 1, ... in the order in which they first occur.

    >>> by_first_appearance(np.array([7, 2, 7, 0])).tolist()
    [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]
