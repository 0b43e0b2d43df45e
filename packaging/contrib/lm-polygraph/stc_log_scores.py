"""Proposed as lm_polygraph/stat_calculators/stc_log_scores.py."""

from __future__ import annotations

import numpy as np

from .stat_calculator import StatCalculator

BINS = 20
"""Bins of token id, which goes by frequency in most vocabularies, inside which the control exchanges tokens."""


class StcLogScoresCalculator(StatCalculator):
    """The log score of Semantic Token Clustering, from the distributions that GreedyProbsCalculator keeps.

    The clusters of the vocabulary are made once for a model, and cached. The package semtoken is needed when the
    calculator is first used, not before. Beside the score stand those of two controls: shuffled clusters, and other
    spellings of the chosen token only.
    """

    @staticmethod
    def meta_info():
        """Fills three log scores; needs the greedy tokens and their distributions."""
        return (
            ["stc_log_scores", "stc_shuffled_log_scores", "stc_spelling_log_scores"],
            ["greedy_log_probs", "greedy_tokens"],
        )

    def __init__(self, clusters=None, preset="paper", seed=0):
        super().__init__()
        self.clusters = clusters
        self.shuffled = None
        self.preset = preset
        self.seed = seed

    def _prepare(self, model):
        import semtoken

        if self.clusters is None:
            self.clusters = semtoken.ScoredModel(model.model, model.tokenizer, preset="paper").clusters
        elif not isinstance(self.clusters, semtoken.TokenClusters):
            self.clusters = semtoken.TokenClusters.from_pretrained(self.clusters)
        if self.shuffled is None:
            random, labels = np.random.default_rng(self.seed), np.array(self.clusters.labels)
            for members in np.array_split(np.arange(len(labels)), BINS):
                labels[members] = random.permutation(labels[members])
            self.shuffled = semtoken.TokenClusters(labels, self.clusters.vocabulary)

    def __call__(self, dependencies, texts, model, max_new_tokens=100, **kwargs):
        """Log scores of the greedy answers, each at most 0."""
        import semtoken

        self._prepare(model)
        found = {name: [] for name in self.meta_info()[0]}
        for rows, ids in zip(dependencies["greedy_log_probs"], dependencies["greedy_tokens"], strict=True):
            rows = np.asarray(rows, np.float32)
            for name, clusters, preset in (
                ("stc_log_scores", self.clusters, self.preset),
                ("stc_shuffled_log_scores", self.shuffled, self.preset),
                ("stc_spelling_log_scores", self.clusters, "default"),
            ):
                found[name].append(semtoken.score_logits(rows, ids, clusters, preset).log_confidence)
        return found
