"""Token table -> labels: exact hierarchical clustering and k-means at the size of real vocabularies.

Knows nothing of tokens: rows in, labels out. `cluster_tokens` gives the labels; `cluster_table` gives them
with a report of what was done, for the provenance. Read on in `agglomerative.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from semtoken.choices import Algorithm, Linkage, Metric
from semtoken.clustering import memory
from semtoken.clustering.agglomerative import Course, agglomerate
from semtoken.clustering.kmeans import kmeans_labels
from semtoken.clustering.merges import Merges, cut
from semtoken.clustering.progress import ClusteringReport, Monitor, Progress, describe_cut
from semtoken.clustering.rows import TableParts, as_rows
from semtoken.errors import InvalidInputError
from semtoken.support.compiled import usable_threads
from semtoken.support.inputs import listed, one_of, whole

__all__ = ["Clustering", "ClusteringReport", "TableParts", "cluster_table", "cluster_tokens"]


@dataclass(frozen=True)
class Clustering:
    """The result of `cluster_table`: labels of the rows, and a report."""

    labels: Mapping[int, NDArray[np.int32]]
    """Number of clusters asked for -> label of every row, numbered in the order of first appearance."""
    merges: Merges | None
    """The lower part of the dendrogram, down to the fewest clusters asked for; None for k-means."""
    report: ClusteringReport


LARGEST_SEED = 2**32 - 1


def cluster_tokens(
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
) -> Any:
    """Labels of the rows of a token table.

    Parameters
    ----------
    table, algorithm, linkage, metric, seed, memory_budget, progress, device
        See `cluster_table`, which also reports what was done.
    n_clusters : int or sequence of ints
        How many clusters, or several numbers, all served by one run.

    Returns
    -------
    int32 array of shape (n,), or a dict {number of clusters: such an array}
        Labels 0..k-1 in the order of first appearance; a dict if `n_clusters` is a sequence.

    Examples
    --------
    >>> table = np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]], np.float32)
    >>> cluster_tokens(table, 2).tolist()
    [0, 1, 0, 1]
    >>> {k: labels.tolist() for k, labels in cluster_tokens(table, [1, 4]).items()}
    {1: [0, 0, 0, 0], 4: [0, 1, 2, 3]}
    """
    labels = cluster_table(
        table,
        n_clusters,
        algorithm=algorithm,
        linkage=linkage,
        metric=metric,
        seed=seed,
        memory_budget=memory_budget,
        progress=progress,
        device=device,
    ).labels
    return dict(labels) if isinstance(n_clusters, Iterable) else labels[n_clusters]


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
    threads: int | None = None,
    tile: int | None = None,
) -> Clustering:
    """Cluster the rows of a token table and report how.

    Agglomerative clustering is exact: the partition is the one that SciPy gives on the full matrix of
    distances, wherever distances differ; equal ones are decided by row numbers, so that every run, number of
    threads and tile size gives the same labels. Memory is proportional to the number of rows.

    Parameters
    ----------
    table : array of shape (n, d), torch tensor, or `TableParts`
        float32, float16, bfloat16 (a tensor, or its bits in a uint16 array). It is not copied.
    n_clusters : int or sequence of ints
        Between 1 and n.
    algorithm : {"agglomerative", "kmeans"}
        k-means++ seeding and Lloyd's iterations, on unit rows under the cosine metric.
    linkage : {"complete", "average", "single"}
        Distance of two clusters: that of their farthest rows, the mean, that of their nearest rows.
    metric : {"cosine", "euclidean"}
        Cosine distance is in [0, 2]; a row of zeros is at distance 1 from every row, as in scikit-learn.
    seed : int
        The seed of k-means; agglomerative clustering draws nothing.
    memory_budget : int, optional
        Bytes that may be taken beyond the table. Default: 70% of the memory that is free.
    progress : callable, optional
        Called as progress(phase, fraction done in [0, 1], seconds left in the phase or None).
    device : {"cpu", "auto", "cuda", ...}, optional
        Where distances of complete and single linkage are computed. "auto" takes a CUDA device if torch finds
        one; None does the same if torch has been imported already, else takes the processor.
    threads : int, optional
        Default: as many as there are processors, or OMP_NUM_THREADS.
    tile : int, optional
        Rows in a block of distances. Default: by the length of the rows and the memory.

    Returns
    -------
    Clustering
        `labels`, a dict {number of clusters: int32 array [n]}; the `merges` of the tree, if one was made; and a
        `report` of the settings, the time and the memory.

    Raises
    ------
    InvalidInputError
        A table or a setting that cannot be used: NaN or infinity (with the token ids), more clusters than rows.
    InsufficientMemory
        The work would not fit; refused before it starts.
    MissingExtra
        numba or threadpoolctl is missing.
    """
    start, cpu = time.perf_counter(), time.process_time()
    one_of("algorithm", algorithm, get_args(Algorithm))
    one_of("linkage", linkage, get_args(Linkage))
    one_of("metric", metric, get_args(Metric))
    seed = whole(seed, "seed", low=0, high=LARGEST_SEED)
    monitor = Monitor(progress)
    with monitor.phase("table"):
        rows = as_rows(table, metric)
    wanted = _check_numbers(n_clusters, rows.n)
    allowed = memory.budget(memory_budget)
    threads = usable_threads() if threads is None else whole(threads, "threads", low=1)
    tile = None if tile is None else whole(tile, "tile", low=1)
    settings = {
        "algorithm": algorithm,
        "linkage": linkage if algorithm == "agglomerative" else None,
        "metric": metric,
        "seed": seed,
        "n_clusters": list(wanted),
        "rows": rows.n,
        "columns": rows.columns,
        "dtype": "bfloat16" if rows.parts[0].dtype == np.uint16 else str(rows.parts[0].dtype),
        "threads": threads,
    }
    common: dict[str, Any] = {"allowed": allowed, "threads": threads, "monitor": monitor}
    merges, course = None, Course("k-means on cpu")
    if algorithm == "kmeans":
        labels = kmeans_labels(rows, wanted, seed=seed, **common)
    else:
        merges, course = agglomerate(rows, linkage, min(wanted), device=device, tile=tile, **common)
        labels = {k: cut(merges, k) for k in wanted}
    total = time.perf_counter() - start
    report = ClusteringReport(
        settings=settings,
        engine=course.engine,
        fallback=course.fallback,
        seconds={**monitor.seconds, "total": total},
        peak_memory=memory.peak_rss(),
        memory_budget=allowed,
        passes=course.passes,
        gemm_seconds=monitor.gemm_seconds,
        gemm_share=monitor.gemm_seconds / max(time.process_time() - cpu, 1e-9),
        gemm_flops=monitor.gemm_flops,
        cuts=tuple(describe_cut(labels[k], k, merges) for k in wanted),
    )
    return Clustering(labels, merges, report)


def _check_numbers(n_clusters: int | Sequence[int], n: int) -> tuple[int, ...]:
    several = tuple(listed(n_clusters, "n_clusters")) if isinstance(n_clusters, Iterable) else (n_clusters,)
    if not several:
        raise InvalidInputError("n_clusters is empty: say how many clusters are wanted.")
    for k in several:
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not 1 <= k <= n:
            raise InvalidInputError(
                f"n_clusters must be a whole number from 1 to {n:,}, the rows of the table; not {k!r}."
            )
    return tuple(dict.fromkeys(int(k) for k in several))
