"""What a learned number does on another question set than its own, and how far the states of the two lie apart.

python research/experiments/learned/transfer.py RECORDINGS NAME OTHER [ANOTHER ...] > build/transfer.csv
"""

from __future__ import annotations

import csv
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
from learning import Readings, fit
from sets import the_set

from semtoken.guarantees.drift import drift
from semtoken.methods.metrics import paired_difference

FIELDS = ("fitted", "applied", "judge", "labels", "answers", "gain", "low", "high", "distance", "distance_low")


def main(recordings: Path, names: list[str]) -> None:
    """One line for each ordered pair of sets and judge; then the halves of each set, whose states are alike."""
    sets = {name: the_set(name, recordings) for name in names}
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(FIELDS)
    for own, other in permutations(names, 2):
        fitted, applied = sets[own], sets[other]
        for judge, correct in fitted.correct.items():
            learned = fit(fitted.readings["states"], correct)
            away = applied.readings["states"]
            gain = paired_difference("auroc", learned.risk(away), applied.headline, applied.correct[judge])
            moved = drift(learned.distances, learned.distance(away))
            figures = (gain.value, gain.low, gain.high, moved.distance, moved.low)
            counts = (correct.size, applied.headline.size)
            out.writerow([own, other, judge, *counts, *(f"{value:.4f}" for value in figures)])
    for name, found in sets.items():
        readings: Readings = found.readings["states"]
        order = np.random.default_rng(0).permutation(len(readings))
        first, second = order[: order.size // 2], order[order.size // 2 :]
        judge, correct = next(iter(found.correct.items()))
        learned = fit(readings.part(first), correct[first])
        moved = drift(learned.distances, learned.distance(readings.part(second)))
        figures = ("", "", "", f"{moved.distance:.4f}", f"{moved.low:.4f}")
        out.writerow([f"{name}, half", f"{name}, other half", judge, first.size, second.size, *figures])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
