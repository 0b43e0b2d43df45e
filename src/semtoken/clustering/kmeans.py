"""k-means by scikit-learn, on unit rows (cosine) or rows as they are (euclidean), in float32."""

from __future__ import annotations

import logging
import warnings

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering import memory
from semtoken.clustering.merges import by_first_appearance
from semtoken.clustering.progress import Monitor
from semtoken.clustering.rows import Rows
from semtoken.support.extras import require

log = logging.getLogger(__name__)

BLOCK = 4096
"""Rows made float32 at a time."""


def kmeans_labels(
    rows: Rows, wanted: tuple[int, ...], *, seed: int, allowed: int, monitor: Monitor
) -> dict[int, NDArray[np.int32]]:
    """Labels for each number of clusters: k-means++ seeding, Lloyd's iterations, one start.

    There are fewer clusters than asked for where the table has fewer distinct rows; the log says so.

    Raises
    ------
    InsufficientMemory
        The float32 rows and three sets of centres do not fit into `allowed` bytes.
    """
    needed = 4 * rows.columns * (rows.n + 3 * max(wanted))
    memory.check(
        needed,
        allowed,
        what=f"k-means of {rows.n:,} rows",
        alternatives="agglomerative clustering, which needs no copy of the table; or a larger memory_budget.",
    )
    cluster = require("sklearn.cluster", extra="cluster")
    labels = {}
    for k in wanted:
        with monitor.phase(f"k-means {k}"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fewer distinct rows than clusters: reported below
            model = cluster.KMeans(k, init="k-means++", n_init=1, random_state=seed, copy_x=False)
            labels[k] = by_first_appearance(model.fit(_float32_rows(rows)).labels_)
        found = int(labels[k].max()) + 1
        if found < k:
            log.warning("k-means found %d clusters instead of %d: the table has no more distinct rows", found, k)
    return labels


def _float32_rows(rows: Rows) -> NDArray[np.float32]:
    """All rows at once (made again for every run: k-means moves them to their mean and back)."""
    table = np.empty((rows.n, rows.columns), np.float32)
    for b in range(0, rows.n, BLOCK):
        index = np.arange(b, min(b + BLOCK, rows.n))
        table[index] = rows.block(index, left=False)[:, :-2]
    return table
