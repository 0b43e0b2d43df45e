"""Proposed as lm_polygraph/estimators/semantic_token_clustering.py."""

from __future__ import annotations

import numpy as np

from .estimator import Estimator


class SemanticTokenClustering(Estimator):
    """Semantic Token Clustering (Cao et al., EACL 2026), for whitebox models.

    A step of the greedy answer counts the chosen token together with its cluster, with tokens that spell the beginning
    of what follows, and with function words. The estimate is minus the summed logs of these masses, so higher
    is riskier. One generation is enough, and no other model is asked.
    """

    def __init__(self):
        super().__init__(["stc_log_scores"], "sequence")

    def __str__(self):
        return "SemanticTokenClustering"

    def __call__(self, stats):
        """Estimates, one for each log score in `stc_log_scores`."""
        return -np.asarray(stats["stc_log_scores"], dtype=float)
