"""Six worlds in which the probability of being right is known for every score, to draw labeled answers from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.support.arrays import FloatArray


@dataclass(frozen=True)
class World:
    """Scores, and how often an answer of each score is right."""

    log_confidence: Callable[[np.random.Generator, int], FloatArray]
    predict_proba: Callable[[FloatArray], FloatArray]

    def draw(self, generator: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        scores = self.log_confidence(generator, n)
        return scores, (generator.random(n) < self.predict_proba(scores)).astype(float)


def _sigmoid(z: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-z))


def _spread(mean: float, sd: float) -> Callable[[np.random.Generator, int], FloatArray]:
    """c = sigmoid of a normal variable."""
    return lambda generator, n: -np.logaddexp(0.0, -generator.normal(mean, sd, n))


def _logit(scores: FloatArray) -> FloatArray:
    return np.array(scores - np.log(-np.expm1(np.minimum(scores, -1e-12))))


WORLDS = {
    "score is a probability": World(_spread(1.4, 2.0), np.exp),
    "overconfident": World(_spread(3.0, 2.0), lambda scores: _sigmoid(0.8 * _logit(scores) - 1.5)),
    "long answers": World(lambda g, n: -g.gamma(3.0, 8.0, n), lambda scores: _sigmoid(5.0 + scores / 5)),
    "knows or guesses": World(_spread(1.0, 2.5), lambda scores: np.where(np.exp(scores) > 0.6, 0.97, 0.25)),
    "good model": World(_spread(2.0, 2.0), lambda scores: _sigmoid(2.2 + 0.9 * (_logit(scores) - 2.0))),
    "surest are often wrong": World(
        _spread(1.4, 2.0), lambda scores: np.where(scores > -0.02, 0.88, 0.98 * np.exp(scores / 2))
    ),
}
"""The last one breaks the rule that surer answers are more often right."""


def true_risk(world: World, accepted: npt.NDArray[np.bool_], scores: FloatArray) -> float:
    """Share of wrong answers among the accepted, by the known probabilities of very many answers; 0 if none is
    accepted."""
    return float(1 - world.predict_proba(scores[accepted]).mean()) if accepted.any() else 0.0
