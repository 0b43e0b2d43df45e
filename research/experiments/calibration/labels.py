"""How many labels a promise takes, and what breaks it: the world "good model" (81 % right, AUROC 0.85).

    python research/experiments/calibration/labels.py [SETS] > build/labels.csv

First table: share of questions answered and share of labeled sets from which no threshold came, by alpha and number of
labels. Second: thresholds from 1,000 labels at alpha 0.1, shown to answers of a changed world.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import semtoken as st

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.guarantees.worlds import WORLDS, World

BASE = WORLDS["good model"]
LABELS = (50, 100, 200, 500, 1000, 2000)
REFERENCE = 20_000


def shown(world: World, threshold: st.Threshold, seed: int) -> tuple[float, float]:
    """Coverage and true risk of a threshold in a world."""
    scores = world.log_confidence(np.random.default_rng(seed), REFERENCE)
    inside = threshold.accepts(scores)
    return float(inside.mean()), float(1 - world.predict_proba(scores[inside]).mean()) if inside.any() else 0.0


def fitted(generator: np.random.Generator, n: int, alpha: float) -> st.Threshold:
    """A threshold from n labels and 500 scores without."""
    scores, correct = BASE.draw(generator, n)
    return st.Threshold.fit(scores, correct, alpha=alpha, delta=0.1, unlabeled=BASE.log_confidence(generator, 500))


def changed() -> dict[str, World]:
    """The same model after something has changed."""

    def lowered(by: float) -> World:
        return replace(BASE, predict_proba=lambda s: 1 / (1 + np.exp(by) * (1 / BASE.predict_proba(s) - 1)))

    return {
        "nothing changed": BASE,
        "questions harder: odds of being right halved": lowered(np.log(2)),
        "questions much harder: odds a quarter": lowered(np.log(4)),
        "scores moved up by a fifth (other precision or template)": World(
            lambda g, n: 0.8 * BASE.log_confidence(g, n), lambda s: BASE.predict_proba(s / 0.8)
        ),
        "scores halved": World(lambda g, n: 0.5 * BASE.log_confidence(g, n), lambda s: BASE.predict_proba(2 * s)),
    }


def main(sets: int) -> None:
    """Write both tables."""
    out = csv.writer(sys.stdout)
    out.writerow(("table", "alpha", "labels", "change", "sets", "coverage", "no_threshold", "mean_risk", "exceeded"))
    for alpha in (0.2, 0.1, 0.05):
        for n in LABELS:
            generator = np.random.default_rng(n)
            found = [shown(BASE, fitted(generator, n, alpha), 7) for _ in range(sets)]
            coverage, risk = np.array(found).T
            given = risk[coverage > 0].mean() if (coverage > 0).any() else 0.0
            row = (coverage.mean(), (coverage == 0).mean(), given, (risk > alpha).mean())
            out.writerow(("labels", alpha, n, "", sets, *(f"{x:.3f}" for x in row)))
        sys.stdout.flush()
    generator = np.random.default_rng(0)
    thresholds = [fitted(generator, 1000, 0.1) for _ in range(sets)]
    for name, world in changed().items():
        coverage, risk = np.array([shown(world, threshold, 8) for threshold in thresholds]).T
        row = (coverage.mean(), (coverage == 0).mean(), risk[coverage > 0].mean(), (risk > 0.1).mean())
        out.writerow(("changes", 0.1, 1000, name, sets, *(f"{x:.3f}" for x in row)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
