"""Numbers of every step of the answering model: entropy, divergence from uniform, the best log-probabilities."""

from __future__ import annotations

import numpy as np

from semtoken.observers.steps import ENTROPY, LOGITS, Step, best
from semtoken.observers.table import PerStep, TokenNumbers, statistic
from semtoken.results.generation import Layout
from semtoken.support.arrays import FloatArray, row_divergences

MOST = 20
"""How many of the best log-probabilities of each step are kept: as many as APIs list, and as any method here reads."""


@statistic("token_entropies")
class TokenEntropies(TokenNumbers):
    """Entropy of every next-token distribution, in nats. An interval where only the best tokens are known."""

    reads = frozenset({ENTROPY})

    def numbers(self, step: Step) -> tuple[FloatArray, FloatArray]:
        """[n] lower and upper bounds of the entropies, the same where the whole rows are known."""
        return step.entropies


@statistic("uniform_divergences")
class UniformDivergences(TokenNumbers):
    """Divergence of the uniform distribution from every next-token distribution, KL(U || p), in nats."""

    reads = frozenset({LOGITS})

    def numbers(self, step: Step) -> FloatArray:
        """The divergence of each of the n answers in this step, [n]."""
        return row_divergences(step.own_rows, step.log_normalizers, step.size)


@statistic("best_log_probs", Layout("float64", 2, "token", "arrays"))
class BestLogProbabilities(PerStep):
    """Log-probabilities of the best tokens of every step, best first: 20 of them, or as many as there are."""

    reads = frozenset({best(MOST)})

    def values(self, step: Step) -> list[FloatArray]:
        """The best log-probabilities of each answer in a step, in descending order."""
        return [np.sort(np.asarray(found, dtype=np.float64))[::-1] for _, found in step.best_of(MOST)]

    def of(self, answer: int) -> list[FloatArray]:
        """The best log-probabilities of each step of an answer, arrays [n] in descending order."""
        return self.recorded(answer)
