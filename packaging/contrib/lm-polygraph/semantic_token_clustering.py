"""Proposed as lm_polygraph/estimators/semantic_token_clustering.py."""

from __future__ import annotations

import numpy as np

from .estimator import Estimator

STATS = {
    "SemanticTokenClustering": "stc_log_scores",
    "SemanticTokenClusteringShuffled": "stc_shuffled_log_scores",
    "SameSpellingProbability": "stc_spelling_log_scores",
}


class SemanticTokenClustering(Estimator):
    """Semantic Token Clustering (Cao et al., EACL 2026), for whitebox models.

    A step of the greedy answer counts the chosen token together with its cluster, with tokens that spell the beginning
    of what follows, and with function words. The estimate is minus the summed logs of these masses, so higher
    is riskier. One generation is enough, and no other model is asked.

    Two controls have the same form. "SemanticTokenClusteringShuffled" has the same clusters with their tokens
    exchanged among tokens of similar frequency: what it does as well does not come from meaning.
    "SameSpellingProbability" counts other spellings of the chosen token only.
    """

    def __init__(self, name="SemanticTokenClustering"):
        self.name = name
        super().__init__([STATS[name]], "sequence")

    def __str__(self):
        return self.name

    def __call__(self, stats):
        """Estimates, one for each answer."""
        return -np.asarray(stats[STATS[self.name]], dtype=float)
