"""How often does the gate open where there is nothing to learn? Labeled sets with made-up numbers.

    python research/experiments/learned/gate.py [SETS] > build/gate.csv

Five numbers of each answer, as the cheap ones are: the first is the headline, the others go with it (correlation .7). In the world
"labels drawn" the labels have to do with none of them, as if they were shuffled; in "headline only" they follow the headline and nothing
else. In both no number can rank better than the headline, and the gate may open in a tenth of the sets. With "states" there are 32
further numbers as a hidden state, which know nothing. No data set of this folder is read.
"""

from __future__ import annotations

import csv
import sys
from itertools import product

import numpy as np
from learning import Readings, learn
from scipy.stats import binomtest

SIZES = (150, 200, 400)
WORLDS = ("labels drawn", "headline only")
TAILS = ("normal", "heavy")
STATES = 32
RIGHT, SLOPE, CORRELATION, NUMBERS = 0.4, 1.3, 0.7, 5
FIELDS = ("numbers", "world", "tails", "labels", "sets", "opened", "share", "low", "high")


def draw(generator: np.random.Generator, n: int, world: str, tails: str, states: int) -> tuple[Readings, np.ndarray]:
    """Numbers of n answers, and labels that they cannot tell better than the first of them does."""
    shared = generator.normal(size=(n, 1))
    numbers = np.sqrt(CORRELATION) * shared + np.sqrt(1 - CORRELATION) * generator.normal(size=(n, NUMBERS))
    signal = numbers[:, 0]
    if tails == "heavy":
        numbers = np.exp(1.5 * numbers)  # the logarithm is what labels follow: order, and so AUROC, stay the same
    logit = np.log(RIGHT / (1 - RIGHT)) - SLOPE * signal * (world == "headline only")
    correct = (generator.random(n) < 1 / (1 + np.exp(-logit))).astype(float)
    return Readings(numbers, generator.normal(size=(n, states)) if states else None), correct


def opened(generator: np.random.Generator, n: int, world: str, tails: str, states: int) -> bool:
    """Whether the gate opens on one set; one with too few of either kind is drawn again."""
    while True:
        readings, correct = draw(generator, n, world, tails, states)
        headline = readings.numbers[:, 0]
        if states:
            readings = Readings(readings.numbers[:, :1], readings.states)
        found = learn(readings, headline, correct)
        if found.gain is not None:
            return found.learned is not None


def main() -> None:
    """One row a cell; a cell has a generator of its own, so that each can be repeated alone."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    writer = csv.DictWriter(sys.stdout, FIELDS)
    writer.writeheader()
    cells = [*product((0,), WORLDS, TAILS, SIZES), *product((STATES,), WORLDS, ("normal",), (200,))]
    for number, (states, world, tails, n) in enumerate(cells):
        generator = np.random.default_rng([number, sets])
        count = sum(opened(generator, n, world, tails, states) for _ in range(sets))
        ends = binomtest(count, sets).proportion_ci(0.95)
        kind = "headline and states" if states else "cheap"
        figures = (f"{count / sets:.3f}", f"{ends.low:.3f}", f"{ends.high:.3f}")
        writer.writerow(dict(zip(FIELDS, (kind, world, tails, n, sets, count, *figures), strict=True)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
