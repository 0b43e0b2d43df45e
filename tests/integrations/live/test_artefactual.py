"""EPR and WEPR beside artefactual's detectors: equal numbers from the same lists of log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from artefactual.scoring import EntropyTransformer
from sklearn.linear_model import LogisticRegression

from semtoken import methods


def rows() -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [np.sort(np.log(random.dirichlet(np.full(40, 0.3), size=n)), axis=1)[:, ::-1][:, :15] for n in (1, 4, 9)]


def test_epr_is_theirs() -> None:
    for logs in rows():
        assert methods.epr(list(logs)) == pytest.approx(EntropyTransformer("epr").transform(logs[None])[0, 0], rel=1e-9)


def test_wepr_is_theirs() -> None:
    features = np.concatenate([EntropyTransformer("wepr").transform(logs[None]) for logs in rows()])
    fitted = LogisticRegression().fit(features, [0, 1, 1])
    theirs = fitted.predict_proba(features)[:, 1]
    for logs, probability_correct in zip(rows(), theirs, strict=True):
        ours = methods.wepr(list(logs), fitted.coef_[0], float(fitted.intercept_[0]))
        assert ours == pytest.approx(probability_correct, rel=1e-9)
