"""Proposed as lm_polygraph/estimators/listed_tokens_bound.py."""

from __future__ import annotations

import numpy as np

from .estimator import Estimator


class ListedTokensBound(Estimator):
    """A bound on the uncertainty where only the best tokens of each step are known, as behind an API.

    An API with log-probabilities lists the few best tokens of a step. What is not listed cannot be more probable than
    the least that is, and sums to what is left, so the estimate over the whole vocabulary lies in an interval. This
    estimator is one end of it: "upper", the cautious one, which counts the listed tokens alone, or "lower". Two
    answers whose intervals overlap are not told apart.

    Without clusters it bounds minus the log-probability of the answer with other spellings of its tokens counted, and
    needs neither a tokenizer nor a model. With the clusters of the model it bounds SemanticTokenClustering.
    """

    def __init__(self, bound="upper", clusters=None):
        if bound not in ("lower", "upper"):
            raise ValueError(f"bound must be 'lower' or 'upper', got {bound!r}")
        self.bound = bound
        self.clusters = clusters
        self.preset = "default" if clusters is None else "paper"
        super().__init__(["greedy_tokens_alternatives"], "sequence")

    def __str__(self):
        return f"ListedTokensBound_{self.bound}_{self.preset}"

    def __call__(self, stats):
        """Estimates, one for each answer, higher is riskier; NaN for an answer without log-probabilities."""
        return np.array([self._estimate(steps) for steps in stats["greedy_tokens_alternatives"]])

    def _estimate(self, steps):
        import semtoken

        if not steps:
            return np.nan
        # The chosen token comes first: a string behind an API, an id of a whitebox model.
        form = self._of_ids if isinstance(steps[0][0][0], int) else self._of_strings
        scored = semtoken.score_top_logprobs([form(step) for step in steps], self.clusters, self.preset)
        least, most = scored.log_score_bounds
        return -least if self.bound == "upper" else -most

    @staticmethod
    def _of_ids(step):
        return step[0][0], dict(step)

    @staticmethod
    def _of_strings(step):
        entries = [{"token": token, "logprob": value} for token, value in step]
        return {**entries[0], "top_logprobs": entries}
