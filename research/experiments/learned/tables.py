"""build/learned/tables.csv from the lines of runs/: what labels added, by set, judge, kind of number and number of labels.

python research/experiments/learned/tables.py
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
BY = ["set", "judge", "kind", "labels", "shuffled"]


def tables(runs: pd.DataFrame) -> pd.DataFrame:
    """One line for each set, judge, kind, number of labels, and shuffled or not; gains are those on the held-out half.

    `gated` is what a user gets: 0 where the gate is shut.
    """
    runs = runs.assign(
        gain=runs["auroc_learned"] - runs["auroc_headline"],
        over_probability=runs["auroc_learned"] - runs["auroc_probability"],
    )
    runs = runs.assign(gated=runs["gain"].where(runs["opened"] == 1, 0.0))
    runs = runs.assign(opened_and_worse=(runs["gated"] < 0).astype(int), too_few=runs["gain_on_labels"].isna())
    found = runs.groupby(BY, sort=True).agg(
        splits=("split", "size"),
        too_few=("too_few", "sum"),
        opened=("opened", "sum"),
        opened_and_worse=("opened_and_worse", "sum"),
        gated_mean=("gated", "mean"),
        gated_worst=("gated", "min"),
        ungated_mean=("gain", "mean"),
        ungated_worst=("gain", "min"),
        over_probability_mean=("over_probability", "mean"),
        headline=("auroc_headline", "mean"),
    )
    return found.round(4).reset_index()


def read_runs() -> pd.DataFrame:
    """All lines of runs/."""
    return pd.concat([pd.read_csv(path) for path in sorted((HERE / "runs").glob("*.csv"))], ignore_index=True)


if __name__ == "__main__":
    target = HERE.parents[2] / "build" / "learned" / "tables.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    tables(read_runs()).to_csv(target, index=False, lineterminator="\n")
