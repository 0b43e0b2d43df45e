"""Is promise A kept? Labeled sets of six worlds with known chances: how often the true error exceeds alpha.

    python research/experiments/calibration/promise.py [SETS] > build/promise.csv

For every world: thresholds by `Threshold.fit` with scores without labels, without them (the grid from the labeled
scores), and the loosest threshold whose error on the labels themselves is at most alpha, which promises nothing.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.stats import binom

import semtoken as st
from semtoken.guarantees.threshold import other_sign

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.guarantees.worlds import WORLDS, FloatArray, World

ALPHA, DELTA, LABELS, UNLABELED, REFERENCE = 0.1, 0.1, 500, 500, 200_000
FIELDS = ("world", "rule", "sets", "exceeded", "exceeded_upper_95", "no_threshold", "coverage")


class Truth:
    """Risk and coverage of every threshold of a world, from very many answers with known chances."""

    def __init__(self, world: World) -> None:
        scores = world.log_confidence(np.random.default_rng(123), REFERENCE)
        order = np.argsort(-scores)
        self.uncertainty = -scores[order]
        self.wrong = np.cumsum(1 - world.predict_proba(scores[order]))

    def risk(self, threshold: float | None, *, strict: bool = False) -> tuple[float, float]:
        """True risk and coverage of a threshold; (0, 0) if nothing is accepted."""
        if threshold is None:
            return 0.0, 0.0
        m = int(np.searchsorted(self.uncertainty, threshold, side="left" if strict else "right"))
        return (float(self.wrong[m - 1] / m), m / REFERENCE) if m else (0.0, 0.0)


def naive(scores: FloatArray, correct: FloatArray) -> float | None:
    """The loosest threshold whose error on the labels is at most alpha."""
    order = np.argsort(-scores)
    risk = np.cumsum(1 - correct[order]) / np.arange(1, scores.size + 1)
    good = np.flatnonzero(risk <= ALPHA)
    return float(-scores[order][good[-1]]) if good.size else None


def thresholds(world: World, generator: np.random.Generator) -> dict[str, tuple[float | None, bool]]:
    """One labeled set, three rules: threshold, and whether it accepts strictly below."""
    scores, correct = world.draw(generator, LABELS)
    given = st.Threshold.fit(
        scores, correct, alpha=ALPHA, delta=DELTA, unlabeled=world.log_confidence(generator, UNLABELED)
    )
    own = st.Threshold.fit(scores, correct, alpha=ALPHA, delta=DELTA)
    return {
        "promise, scores without labels": (other_sign(given.min_log_score), given.strict),
        "promise, labelled scores only": (other_sign(own.min_log_score), own.strict),
        "best on the labels": (naive(scores, correct), False),
    }


def main(sets: int) -> None:
    """Write one line for each world and rule."""
    out = csv.writer(sys.stdout)
    out.writerow(FIELDS)
    for seed, (name, world) in enumerate(WORLDS.items()):
        truth, generator = Truth(world), np.random.default_rng(seed)
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(sets):
            for rule, (threshold, strict) in thresholds(world, generator).items():
                found.setdefault(rule, []).append(truth.risk(threshold, strict=strict))
        for rule, pairs in found.items():
            risk, coverage = np.array(pairs).T
            broken = int((risk > ALPHA).sum())
            upper = next(p for p in np.linspace(0, 1, 10_001) if p == 1 or binom.cdf(broken, sets, p) <= 0.05)
            out.writerow(
                [
                    name,
                    rule,
                    sets,
                    f"{broken / sets:.4f}",
                    f"{upper:.4f}",
                    f"{(coverage == 0).mean():.4f}",
                    f"{coverage.mean():.4f}",
                ]
            )
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
