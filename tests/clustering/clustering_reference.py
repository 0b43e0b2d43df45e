"""SciPy on the full matrix of distances in float64: what every engine must reproduce."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import pdist

from semtoken.choices import Linkage, Metric

Array: TypeAlias = np.ndarray[Any, Any]
LINKAGES: tuple[Linkage, ...] = get_args(Linkage)
METRICS: tuple[Metric, ...] = get_args(Metric)


def reference_tree(table: Any, linkage_name: str, metric: Metric) -> Array:
    """SciPy's merge table. Cosine distances come from unit rows' differences, so small ones keep their digits."""
    rows = np.asarray(table, np.float64)
    if metric == "euclidean":
        return np.asarray(linkage(pdist(rows), linkage_name))
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norm, out=np.zeros_like(rows), where=norm > 0)
    distance = pdist(unit, "sqeuclidean") / 2
    zero = np.flatnonzero(norm[:, 0] == 0)
    if len(zero):
        i, j = np.triu_indices(len(rows), 1)
        distance[np.isin(i, zero) | np.isin(j, zero)] = 1.0
    return np.asarray(linkage(distance, linkage_name))


def reference_labels(tree: Array, k: Any) -> Array:
    return np.asarray(cut_tree(tree, k)[:, 0])


def assert_same_partition(a: Any, b: Any) -> None:
    """Equal up to the names of the clusters."""
    pairs = set(zip(np.asarray(a).tolist(), np.asarray(b).tolist(), strict=True))
    assert len(pairs) == len(set(np.asarray(a).tolist())) == len(set(np.asarray(b).tolist()))


def tables(kind: str, seed: int, n: int = 260, d: int = 12) -> Array:
    """Tables with distances that all differ, or differ wherever rows do."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((n, d)).astype(np.float32)
    if kind == "clustered":
        table = (3 * rng.standard_normal((9, d))[rng.integers(0, 9, n)] + table).astype(np.float32)
    elif kind == "duplicated":
        table[rng.permutation(n)[:40]] = table[rng.integers(0, 10, 40)]
    elif kind == "clique":  # rows hardly trained: nearly, but not exactly, equal
        junk = rng.permutation(n)[: n // 4]
        table[junk] = table[0] + 1e-3 * rng.standard_normal((len(junk), d)).astype(np.float32)
    elif kind == "shifted":
        table += 5
    return table


KINDS = ("random", "clustered", "duplicated", "clique", "shifted")
