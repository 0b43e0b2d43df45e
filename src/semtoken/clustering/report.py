"""What a clustering run was asked for, what it did, and what came out: plain facts for the provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.merges import Merges


@dataclass(frozen=True)
class CutReport:
    """One cut of the tree: how the rows fell into clusters."""

    n_clusters: int
    last_height: float | None
    """Distance at which the last merge of this cut happened; None where nothing merged or no tree was made."""
    next_height: float | None
    """Distance of the first merge above the cut, where the run went that far."""
    singletons: float
    """Share of the clusters that hold one row."""
    largest: int
    """Rows in the largest cluster."""
    sizes: Mapping[str, int]
    """Number of clusters by size: '1', '2', '3-4', '5-8', ... rows."""


@dataclass(frozen=True)
class ClusteringReport:
    """Settings, course and outcome of one run of `cluster_table`."""

    settings: Mapping[str, Any]
    """Algorithm, linkage, metric, seed, numbers of clusters, rows, columns, dtype, number of threads."""
    engine: str
    """Which way of computing was used, for example 'sparse chain on cpu'."""
    fallback: str | None = None
    """Why the first choice of engine was left, if it was. Results are exact either way."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds per phase, and 'total'."""
    peak_memory: int = 0
    """Highest resident memory of the whole process until the end of the run, in bytes."""
    memory_budget: int = 0
    """Bytes that the run was allowed to take beyond the table."""
    passes: tuple[Mapping[str, float | None], ...] = ()
    """Each pass of the sparse chain over the distances: clusters before, threshold (a distance; None: all pairs), pairs
    kept, merges found."""
    gemm_seconds: float = 0.0
    """Processor seconds spent in matrix products, summed over threads (on a device: seconds waited for them)."""
    gemm_share: float = 0.0
    """Share of the processor time of the run that went into matrix products."""
    gemm_flops: float = 0.0
    """Floating-point operations of those products."""
    cuts: tuple[CutReport, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def describe_cut(labels: NDArray[np.int32], n_clusters: int, merges: Merges | None) -> CutReport:
    """Sizes and heights of one cut."""
    sizes = np.bincount(labels)
    applied = len(labels) - n_clusters
    heights = merges.height if merges is not None else np.empty(0, np.float32)
    return CutReport(
        n_clusters=n_clusters,
        last_height=float(heights[applied - 1]) if 0 < applied <= len(heights) else None,
        next_height=float(heights[applied]) if applied < len(heights) else None,
        singletons=float(np.mean(sizes == 1)),
        largest=int(sizes.max()),
        sizes=_histogram(sizes),
    )


def _histogram(sizes: NDArray[np.int64]) -> dict[str, int]:
    """Clusters by size in ranges that double: 1, 2, 3-4, 5-8, ..."""
    exponent = np.ceil(np.log2(sizes)).astype(int)
    counts = np.bincount(exponent)
    return {_range_name(e): int(c) for e, c in enumerate(counts) if c}


def _range_name(exponent: int) -> str:
    low, high = 2 ** (exponent - 1) + 1, 2**exponent
    return str(high) if exponent < 2 else f"{low}-{high}"
