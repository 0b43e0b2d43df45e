"""Proposed as test/test_listed_tokens_bound.py: the bounds hold the estimate over the whole vocabulary."""

import numpy as np
import pytest

semtoken = pytest.importorskip("semtoken")

from lm_polygraph.estimators.listed_tokens_bound import ListedTokensBound  # noqa: E402


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("whitebox", [True, False])
def test_the_bounds_hold_the_estimate_over_the_whole_vocabulary(k, whitebox):
    """On random distributions over the vocabulary of semtoken's embedded model; ids with clusters, strings without."""
    clusters = semtoken.TokenClusters.from_pretrained("almanac")
    random = np.random.default_rng(k)
    logits = random.normal(size=(6, clusters.vocabulary.size)).astype(np.float32) * 6
    rows = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    words = [i for i, text in enumerate(clusters.vocabulary.texts) if text.strip().isalpha()]
    # Some tokens are the best, others stand far outside the list.
    tokens = [words[int(np.argmax(row[words]))] if i % 2 else words[100 * i] for i, row in enumerate(rows)]
    listed = [[(int(i), float(row[i])) for i in np.argsort(-row)[:k]] for row in rows]
    logs = [float(row[token]) for row, token in zip(rows, tokens, strict=True)]
    named = tokens
    if not whitebox:
        texts = clusters.vocabulary.texts
        listed = [[(texts[i], value) for i, value in step] for step in listed]
        named = [texts[token] for token in tokens]
    stats = {"greedy_tokens": [named], "greedy_log_likelihoods": [logs], "greedy_tokens_alternatives": [listed]}
    bounds = [ListedTokensBound(end, clusters if whitebox else None) for end in ("lower", "upper")]
    lower, upper = (float(bound(stats)[0]) for bound in bounds)
    exact = -semtoken.score_logits(rows, tokens, clusters, bounds[0].preset).log_confidence
    assert lower - 1e-4 <= exact <= upper + 1e-4
    assert lower < upper


def test_an_answer_without_log_probabilities_has_no_bound():
    """NaN, as where nothing is known, and an end that is none is refused."""
    empty = {"greedy_tokens": [[]], "greedy_log_likelihoods": [[]], "greedy_tokens_alternatives": [[]]}
    assert np.isnan(ListedTokensBound()(empty)[0])
    with pytest.raises(ValueError, match="lower"):
        ListedTokensBound("middle")
