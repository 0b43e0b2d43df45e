"""AUROC of every way to sum up a long answer, with paired intervals.

    python research/experiments/long_answers/tables.py [VIEWS.parquet] [--csv tables.csv]

Differences are to the product of probabilities; 95 % intervals of a bootstrap over questions (2,000 resamples).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
KNOWN = ("id", "right", "tokens", "cut", "text")
BASELINE = "product, probability"
RESAMPLES = 2000


def table(views: pd.DataFrame) -> pd.DataFrame:
    """A line for each view, the best first."""
    right, n = views["right"].to_numpy(bool), len(views)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    counts = np.concatenate([np.ones((1, n)), drawn])  # the first resample is the sample itself
    good, bad = counts[:, right], counts[:, ~right]
    found = {}
    for name in (name for name in views if name not in KNOWN):
        values = views[name].to_numpy(float)
        first, second = values[right][:, None], values[~right][None]
        ahead = (first > second) + 0.5 * (first == second)
        found[name] = ((good @ ahead) * bad).sum(1) / (good.sum(1) * bad.sum(1))
    lines = []
    for name, values in found.items():
        difference = values - found[BASELINE]
        low, high = np.percentile(values[1:], [2.5, 97.5])
        least, most = np.percentile(difference[1:], [2.5, 97.5])
        line = {"view": name, "auroc": values[0], "low": low, "high": high}
        lines.append(line | {"minus_product": difference[0], "minus_low": least, "minus_high": most})
    return pd.DataFrame(lines).sort_values("auroc", ascending=False)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("views", type=Path, nargs="?", default=HERE / "smollm2.parquet")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    views = pd.read_parquet(options.views)
    right, cut, length = views.right.sum(), views.cut.sum(), views.tokens.mean()
    print(f"{len(views):,} answers, {right} right, {cut} cut off, {length:.0f} tokens on average")
    found = table(views)
    print(found.round(3).to_string(index=False))
    if options.csv:
        found.round(5).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
