"""Made-up answers with hidden states: what the states know of each answer, and its chance, are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from learning import FloatArray, Readings


@dataclass(frozen=True)
class StateWorld:
    """n answers."""

    readings: Readings
    headline: FloatArray
    correct: FloatArray
    log_odds: FloatArray
    """[n] of being wrong: the best that any number could tell."""


def draw(
    generator: np.random.Generator,
    n: int,
    *,
    dimensions: int = 60,
    hidden: int = 10,
    known: float = 1.5,
    told: float = 1.0,
    offset: float = -0.3,
) -> StateWorld:
    """Answers whose log-odds of being wrong are told in part by the headline and known in part by the states.

    The states are a fixed linear picture of `hidden` independent variables, the first of which counts, and noise.
    """
    inside, headline = generator.normal(size=(n, hidden)), generator.normal(size=n)
    picture = np.random.default_rng(12345).normal(size=(hidden, dimensions))
    states = 5 + inside @ picture + 0.3 * generator.normal(size=(n, dimensions))
    log_odds = told * headline + known * inside[:, 0] + offset
    correct = (generator.random(n) >= 1 / (1 + np.exp(-log_odds))).astype(float)
    return StateWorld(Readings(headline[:, None], states), headline, correct, log_odds)
