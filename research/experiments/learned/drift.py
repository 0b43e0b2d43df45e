"""What becomes of a learned number's promise when the world moves, and does anything show it without labels?

    python research/experiments/learned/drift.py [SETS] > build/drift.csv

Every set: 400 labeled answers of one world, a learned number, and a threshold with the promise that at most a tenth of what it accepts is
wrong. Then 400 answers of the same world or of one that has moved: their true error, and whether the distance of the scores and that of
the hidden states are above 0 with 95 % intervals. Sets in which nothing was learned or no threshold was found are not counted.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from learning import learn
from promise import ALPHA, DELTA, LABELS, scores
from state_worlds import StateWorld, draw

import semtoken as st
from semtoken.guarantees.drift import drift

Draw = Callable[[np.random.Generator, int], StateWorld]
DIMENSIONS, RECENT, REFERENCE = 24, 400, 10_000
FIELDS = ("world", "sets", "broken", "mean_error", "coverage", "scores_moved", "states_moved")
home: Draw = partial(draw, dimensions=DIMENSIONS, known=1.5, told=1.0, offset=-1.5)


def moved_states(generator: np.random.Generator, n: int, by: float) -> StateWorld:
    """The home world with all states moved in one direction that means nothing for the answers."""
    found = home(generator, n)
    assert found.readings.states is not None
    way = np.random.default_rng(99).normal(size=DIMENSIONS) * found.readings.states.std(axis=0)
    return replace(found, readings=replace(found.readings, states=found.readings.states + by * way))


WORLDS: dict[str, Draw] = {
    "the same": home,
    "states moved, half a deviation": partial(moved_states, by=0.5),
    "states moved, two deviations": partial(moved_states, by=2.0),
    "states mean less": partial(draw, dimensions=DIMENSIONS, known=0.3, told=1.0, offset=-1.5),
    "harder questions": partial(draw, dimensions=DIMENSIONS, known=1.5, told=1.0, offset=0.0),
}


def main() -> None:
    """The command."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    generator = np.random.default_rng(0)
    references = {name: world(generator, REFERENCE) for name, world in WORLDS.items()}
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in WORLDS}
    for _ in range(sets):
        labeled = home(generator, LABELS)
        learned = (learning := learn(labeled.readings, labeled.headline, labeled.correct)).learned
        if learned is None:
            continue
        own = scores(learning.risk)
        threshold = st.Threshold.fit(own, labeled.correct, alpha=ALPHA, delta=DELTA)
        for name, world in WORLDS.items():
            inside = threshold.accepts(scores(learned.risk(references[name].readings)))
            if not threshold.accepts(own).any():
                continue
            error = float((1 / (1 + np.exp(-references[name].log_odds)))[inside].mean()) if inside.any() else 0.0
            recent = world(generator, RECENT).readings
            moved = (
                drift(scores(learned.expected), scores(learned.risk(recent))),
                drift(learned.distances, learned.distance(recent)),
            )
            found[name].append((error > ALPHA, error, inside.mean(), *(one.low > 0 for one in moved)))
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(FIELDS)
    for name, rows in found.items():
        out.writerow([name, len(rows), *(f"{value:.4f}" for value in np.mean(rows, axis=0))])


if __name__ == "__main__":
    main()
