"""Proposed as lm_polygraph/stat_calculators/stc_log_scores.py."""

from __future__ import annotations

import numpy as np

from .stat_calculator import StatCalculator


class StcLogScoresCalculator(StatCalculator):
    """The log score of Semantic Token Clustering, from the distributions that GreedyProbsCalculator keeps.

    The clusters of the vocabulary are made once for a model, and cached. The package semtoken is needed when the
    calculator is first used, not before.
    """

    @staticmethod
    def meta_info():
        """Fills `stc_log_scores`; needs the greedy tokens and their distributions."""
        return ["stc_log_scores"], ["greedy_log_probs", "greedy_tokens"]

    def __init__(self, clusters=None, preset="paper"):
        super().__init__()
        self.clusters = clusters
        self.preset = preset

    def __call__(self, dependencies, texts, model, max_new_tokens=100, **kwargs):
        """Log scores of the greedy answers, each at most 0."""
        import semtoken

        if self.clusters is None:
            self.clusters = semtoken.STC(model.model, model.tokenizer).clusters
        elif not isinstance(self.clusters, semtoken.TokenClusters):
            self.clusters = semtoken.TokenClusters.from_pretrained(self.clusters)
        answers = zip(dependencies["greedy_log_probs"], dependencies["greedy_tokens"], strict=True)
        scored = [
            semtoken.score_logits(np.asarray(rows, np.float32), ids, self.clusters, self.preset)
            for rows, ids in answers
        ]
        return {"stc_log_scores": [one.log_score for one in scored]}
