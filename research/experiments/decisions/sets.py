"""Coverage of the sets of options on the half that they were not fitted on, over all answers and for each right option.

python research/experiments/decisions/sets.py qwen.parquet smollm2.parquet > sets.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from figures import Setting, answers_of, items_of

from semtoken.decisions.options import PredictionSets

if __name__ == "__main__":
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(
        ["model", "kind", "reading", "alpha", "fitted_on", "checked_on", "coverage", "least_of_an_option", "options"]
    )
    for source in map(Path, sys.argv[1:]):
        for reading, items in items_of(source).items():
            for kind in ("choice", "predicate"):
                pairs = answers_of(Setting("", kind, reading, "1"), items)
                fit, check = (
                    [(answer.probabilities, item.label) for item, answer in pairs if item.split == split]
                    for split in ("fit", "check")
                )
                right = np.array([label for _, label in check])
                for alpha in (0.05, 0.1, 0.2):
                    sets = PredictionSets.fit([p for p, _ in fit], [label for _, label in fit], alpha)
                    chosen = [sets(p) for p, _ in check]
                    held = np.array([label in one for label, one in zip(right, chosen, strict=True)])
                    least = min(held[right == k].mean() for k in set(right.tolist()))
                    size = np.mean([len(one) for one in chosen])
                    counts = (len(fit), len(check))
                    table.writerow(
                        [
                            source.stem,
                            kind,
                            reading,
                            alpha,
                            *counts,
                            f"{held.mean():.3f}",
                            f"{least:.3f}",
                            f"{size:.2f}",
                        ]
                    )
