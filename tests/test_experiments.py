"""The intervals of the experiments rest on an AUROC of resamples, which agrees with scikit-learn's weighted one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "experiments"
pytest.importorskip("pandas")


def test_auroc_of_resamples_is_scikit_learns_weighted_one() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    spec = importlib.util.spec_from_file_location("experiment_tables", FOLDER / "default_rule" / "tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 12, 60).astype(float)  # many ties
    right = rng.random(60) < 0.3
    counts = rng.multinomial(60, np.full(60, 1 / 60), size=8).astype(float)
    found = tables.aurocs(scores, right, counts)
    for row, value in zip(counts, found, strict=True):
        assert value == pytest.approx(metrics.roc_auc_score(~right, scores, sample_weight=row))
