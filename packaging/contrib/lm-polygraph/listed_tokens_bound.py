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

    Without clusters it bounds minus the log-probability of the answer with other spellings of its tokens counted.
    Behind an API, which names tokens by their texts, it then needs neither a tokenizer nor a model. A whitebox model
    names them by ids, and `vocabulary` says what they spell: a `semtoken.Vocabulary`, or a model's name or directory.
    With the clusters of the model it bounds SemanticTokenClustering.
    """

    def __init__(self, bound="upper", clusters=None, vocabulary=None):
        if bound not in ("lower", "upper"):
            raise ValueError(f"bound must be 'lower' or 'upper', got {bound!r}")
        self.bound = bound
        self.tokens = vocabulary if clusters is None else clusters
        self.preset = "default" if clusters is None else "paper"
        super().__init__(["greedy_tokens", "greedy_log_likelihoods", "greedy_tokens_alternatives"], "sequence")

    def __str__(self):
        return f"ListedTokensBound_{self.bound}_{self.preset}"

    def __call__(self, stats):
        """Estimates, one for each answer, higher is riskier; NaN for an answer without log-probabilities."""
        answers = zip(
            stats["greedy_tokens"], stats["greedy_log_likelihoods"], stats["greedy_tokens_alternatives"], strict=True
        )
        return np.array([self._estimate(*answer) for answer in answers])

    def _estimate(self, tokens, logs, alternatives):
        import semtoken

        if not len(tokens):
            return np.nan
        # A token is a string behind an API, an id of a whitebox model.
        form = self._of_strings if isinstance(tokens[0], str) else self._of_ids
        steps = [form(token, float(log), others) for token, log, others in zip(tokens, logs, alternatives, strict=True)]
        least, most = semtoken.score_logprobs(steps, self.tokens, self.preset).log_confidence_interval
        return -least if self.bound == "upper" else -most

    @staticmethod
    def _of_ids(token, log, others):
        return token, {token: log, **dict(others)}

    @staticmethod
    def _of_strings(token, log, others):
        listed = [{"token": other, "logprob": value} for other, value in others]
        # A chosen token below all others may stand outside the list, whose least probability bounds what is not listed.
        rest = [one for one in listed if one["token"] != token]
        inside = not rest or log >= min(one["logprob"] for one in rest)
        return {"token": token, "logprob": log, "top_logprobs": listed if inside else rest}
