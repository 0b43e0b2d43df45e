"""Is the promise kept with a learned number? Labeled sets of worlds with states and known chances.

    python research/experiments/learned/promise.py [SETS] > build/promise.csv

For every world: labeled answers, the learned number or the headline as the gate says, a threshold by `Threshold.fit` on numbers that did
not see their label, and the true error of what the number fitted on all labels lets through.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from learning import learn
from scipy.stats import binom

import semtoken as st

sys.path.insert(0, str(Path(__file__).parents[3]))
from state_worlds import StateWorld, draw

ALPHA, DELTA, LABELS, UNLABELED, REFERENCE = 0.1, 0.1, 400, 400, 50_000
FIELDS = ("world", "rule", "sets", "gate_open", "exceeded", "exceeded_upper_95", "no_threshold", "coverage")
Draw = Callable[[np.random.Generator, int], StateWorld]
WORLDS: dict[str, Draw] = {
    "states know much": partial(draw, dimensions=24, known=1.5, told=1.0, offset=-1.5),
    "states know little": partial(draw, dimensions=24, known=0.6, told=1.5, offset=-1.5),
    "states know nothing": partial(draw, dimensions=24, known=0.0, told=1.5, offset=-1.5),
    "more dimensions than labels": partial(draw, dimensions=600, hidden=100, known=1.5, told=1.0, offset=-1.5),
}


def scores(risk: np.ndarray) -> np.ndarray:
    """A learned number as calibrators take it."""
    return -np.logaddexp(0.0, risk)


def one_set(world: Draw, generator: np.random.Generator, reference: StateWorld) -> list[tuple[str, bool, float, float]]:
    """One labeled set: rule, whether the gate opened, true error and coverage."""
    labeled, more = world(generator, LABELS), world(generator, UNLABELED)
    found = learn(labeled.readings, labeled.headline, labeled.correct)
    if found.learned is None:
        own, others, later = (scores(one.headline) for one in (labeled, more, reference))
    else:
        own = scores(found.risk)
        others, later = (scores(found.learned.risk(one.readings)) for one in (more, reference))
    chance = 1 / (1 + np.exp(reference.log_odds))
    rows = []
    for rule, unlabeled in (("scores without labels", others), ("labelled scores only", None)):
        threshold = st.Threshold.fit(own, labeled.correct, alpha=ALPHA, delta=DELTA, unlabeled=unlabeled)
        inside = threshold.accepts(later)
        error = float(1 - chance[inside].mean()) if inside.any() else 0.0
        rows.append((rule, found.learned is not None, error, float(inside.mean())))
    return rows


def main(sets: int) -> None:
    """Write one line for each world and rule."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(FIELDS)
    for seed, (name, world) in enumerate(WORLDS.items()):
        generator, reference = np.random.default_rng(seed), world(np.random.default_rng(123), REFERENCE)
        rows = [row for _ in range(sets) for row in one_set(world, generator, reference)]
        for rule in dict.fromkeys(row[0] for row in rows):
            opened, error, coverage = np.array([row[1:] for row in rows if row[0] == rule], dtype=float).T
            broken = int((error > ALPHA).sum())
            upper = next(p for p in np.linspace(0, 1, 10_001) if p == 1 or binom.cdf(broken, sets, p) <= 0.05)
            counts = (opened.mean(), broken / sets, upper, (coverage == 0).mean(), coverage.mean())
            out.writerow([name, rule, sets, *(f"{value:.4f}" for value in counts)])
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
