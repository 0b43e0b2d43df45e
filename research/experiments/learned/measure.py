"""What labels add on a set of answers: one line for each judge, kind of number, number of labels and split.

    python research/experiments/learned/measure.py NAME [RECORDINGS] [--sizes 150,200,400,800] [--splits 20]

writes scores/NAME.parquet (numbers and verdicts of every answer, and its learned number by 5-fold cross-fitting on all labels)
and runs/NAME.csv. PROTOCOL.md says what is measured.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from learning import cross_fitted, fit, learn
from sets import HERE, LabeledSet, the_set

from semtoken.methods.metrics import auroc

FIELDS = (
    *("set", "judge", "kind", "labels", "split", "shuffled", "right", "opened", "gain_on_labels", "low_on_labels"),
    *("auroc_headline", "auroc_probability", "auroc_learned"),
)


def run(found: LabeledSet, judge: str, kind: str, labels: int, split: int, *, shuffled: bool) -> dict[str, Any] | None:
    """One labeled set of one split, and what its learned number does on the half that nobody looked at."""
    correct, readings = found.correct[judge], found.readings[kind]
    n = correct.size
    order = np.random.default_rng(split).permutation(n)
    held, own = order[: n // 2], order[n // 2 :][:labels]
    if own.size < labels:
        return None
    told = correct[own]
    if shuffled:
        told = np.random.default_rng(1000 + split).permutation(told)
    learning = learn(readings.part(own), found.headline[own], told)
    learned = learning.learned or fit(readings.part(own), told)
    gain = learning.gain
    return {
        "set": found.name,
        "judge": judge,
        "kind": kind,
        "labels": labels,
        "split": split,
        "shuffled": int(shuffled),
        "right": int(told.sum()),
        "opened": int(learning.learned is not None),
        "gain_on_labels": "" if gain is None else round(gain.value, 5),
        "low_on_labels": "" if gain is None else round(gain.low, 5),
        "auroc_headline": round(auroc(found.headline[held], correct[held]), 5),
        "auroc_probability": round(auroc(found.probability[held], correct[held]), 5),
        "auroc_learned": round(auroc(learned.risk(readings.part(held)), correct[held]), 5),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("recordings", type=Path, nargs="?")
    parser.add_argument("--sizes", default="150,200,400,800")
    parser.add_argument("--splits", type=int, default=20)
    options = parser.parse_args()
    found = the_set(options.name, options.recordings)
    table = found.table
    for judge, correct in found.correct.items():
        for kind, readings in found.readings.items():
            table[f"{kind}_{judge}"] = cross_fitted(readings, correct).risk
    plain = {name: np.float32 for name in table if table[name].dtype == np.float64}
    out = HERE.parents[2] / "build" / "learned"
    for part in ("scores", "runs"):
        (out / part).mkdir(parents=True, exist_ok=True)
    table.astype(plain).to_parquet(out / "scores" / f"{options.name}.parquet", index=False, compression="zstd")
    with (out / "runs" / f"{options.name}.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, FIELDS, lineterminator="\n")
        lines.writeheader()
        for split in range(options.splits):
            for labels in map(int, options.sizes.split(",")):
                for judge in found.correct:
                    for kind in found.readings:
                        for shuffled in (False, True):
                            row = run(found, judge, kind, labels, split, shuffled=shuffled)
                            if row is not None:
                                lines.writerow(row)
            file.flush()
            print(f"split {split}", flush=True)


if __name__ == "__main__":
    main()
