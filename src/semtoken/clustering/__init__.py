"""Token table -> labels: exact hierarchical clustering and k-means at the size of real vocabularies.

Knows nothing of tokens: rows in, labels out. `cluster_tokens` gives the labels; `cluster_table` gives them with a
report of what was done, for the provenance.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering import memory
from semtoken.clustering.merges import Merges, by_first_appearance, cut
from semtoken.clustering.report import ClusteringReport, describe_cut
from semtoken.clustering.rows import Metric, TableParts, as_rows
from semtoken.errors import InvalidInput

__all__ = ["Clustering", "ClusteringReport", "TableParts", "cluster_table", "cluster_tokens"]

log = logging.getLogger(__name__)

Algorithm: TypeAlias = Literal["agglomerative", "kmeans"]
Linkage: TypeAlias = Literal["complete", "average", "single"]
Progress: TypeAlias = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class Clustering:
    """What `cluster_table` gives back."""

    labels: dict[int, NDArray[np.int32]]
    """Number of clusters asked for -> label of every row, numbered in the order of first appearance."""
    merges: Merges | None
    """The lower part of the dendrogram, down to the fewest clusters asked for; None for k-means."""
    report: ClusteringReport


@overload
def cluster_tokens(table: Any, n_clusters: int = 16_000, **settings: Any) -> NDArray[np.int32]: ...
@overload
def cluster_tokens(
    table: Any, n_clusters: Sequence[int], **settings: Any
) -> dict[int, NDArray[np.int32]]: ...
def cluster_tokens(
    table: Any, n_clusters: int | Sequence[int] = 16_000, **settings: Any
) -> NDArray[np.int32] | dict[int, NDArray[np.int32]]:
    """Labels of the rows of a token table. See `cluster_table` for the settings."""
    labels = cluster_table(table, n_clusters, **settings).labels
    return labels if isinstance(n_clusters, Sequence) else labels[n_clusters]


def cluster_table(
    table: Any,
    n_clusters: int | Sequence[int] = 16_000,
    *,
    algorithm: Algorithm = "agglomerative",
    linkage: Linkage = "complete",
    metric: Metric = "cosine",
    seed: int = 0,
    memory_budget: int | None = None,
    progress: Progress | None = None,
    device: str | None = None,
) -> Clustering:
    """Cluster the rows of a token table."""
    start = time.perf_counter()
    rows = as_rows(table, metric)
    wanted = (n_clusters,) if not isinstance(n_clusters, Sequence) else tuple(n_clusters)
    for k in wanted:
        if not 1 <= k <= rows.n:
            raise InvalidInput(f"n_clusters must be between 1 and the {rows.n:,} rows of the table, not {k}.")
    allowed = memory.budget(memory_budget)
    merges: Merges | None = None
    if algorithm == "kmeans":
        from sklearn.cluster import KMeans

        unit = rows.block(np.arange(rows.n), left=True)[:, : rows.columns]
        labels = {
            k: by_first_appearance(KMeans(k, n_init=1, random_state=seed).fit(unit).labels_) for k in wanted
        }
    else:
        from semtoken.clustering.dense import dense_merges

        merges = dense_merges(rows, linkage, allowed)
        labels = {k: cut(merges, k) for k in wanted}
    report = ClusteringReport(
        settings={
            "algorithm": algorithm,
            "linkage": linkage,
            "metric": metric,
            "seed": seed,
            "n_clusters": wanted,
        },
        engine="dense",
        seconds={"total": time.perf_counter() - start},
        peak_memory=memory.peak_rss(),
        memory_budget=allowed,
        cuts=tuple(describe_cut(labels[k], k, merges) for k in wanted),
    )
    return Clustering(labels, merges, report)
