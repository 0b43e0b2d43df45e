"""Proposed as test/test_semantic_token_clustering.py: the estimator by hand, without a model."""

from types import SimpleNamespace

import numpy as np
import pytest

semtoken = pytest.importorskip("semtoken")

from lm_polygraph.estimators.semantic_token_clustering import STATS, SemanticTokenClustering  # noqa: E402
from lm_polygraph.stat_calculators.stc_log_scores import StcLogScoresCalculator  # noqa: E402


def test_estimates_are_those_of_semtoken_and_the_controls_differ():
    """On random distributions over the vocabulary of semtoken's embedded model."""
    clusters = semtoken.TokenClusters.from_pretrained("almanac")
    random = np.random.default_rng(0)
    logits = random.normal(size=(4, clusters.vocabulary.size)).astype(np.float32) * 3
    rows = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    tokens = [int(np.argmax(row)) for row in rows]
    calculator = StcLogScoresCalculator(clusters)
    stats = calculator({"greedy_log_probs": [rows], "greedy_tokens": [tokens]}, ["text"], SimpleNamespace())
    assert set(stats) == set(calculator.meta_info()[0])
    estimates = {name: float(SemanticTokenClustering(name)(stats)[0]) for name in STATS}
    # Never riskier than the plain probability of the tokens: more probability is counted, not less.
    plain = -sum(rows[place, token] for place, token in enumerate(tokens))
    assert all(0 <= value <= plain + 1e-4 for value in estimates.values())
    expected = semtoken.score_logits(rows, tokens, clusters, "paper").log_confidence
    assert estimates["SemanticTokenClustering"] == pytest.approx(-expected)
    assert estimates["SemanticTokenClustering"] != estimates["SemanticTokenClusteringShuffled"]
    assert (np.sort(np.bincount(calculator.shuffled.labels)) == np.sort(np.bincount(clusters.labels))).all()
