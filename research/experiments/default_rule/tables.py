"""AUROC of recorded scores, with paired intervals: every table of docs/results.md on what agrees.

    python research/experiments/default_rule/tables.py [SCORES.parquet ...] [--csv tables.csv]

For each file and judge: AUROC for wrong answers, and its difference to probability, to `paper`, to `paper` without clusters and to the mean of
the rule's own shuffled controls, with 95 % intervals of a bootstrap over questions (2,000 resamples, the same for every column).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

HERE = Path(__file__).parent
JUDGES = {"right": "exact", "close": "second", "close_no_echo": "second, no echoes"}
REFERENCES = ("probability", "paper", "paper without clusters")
RESAMPLES = 2000
Floats = npt.NDArray[np.float64]


def aurocs(scores: Floats, right: npt.NDArray[np.bool_], counts: Floats) -> Floats:
    """AUROC of one score for every row of `counts`, how often each answer is in a resample ([resamples, answers])."""
    good, bad = scores[right][:, None], scores[~right][None]
    ahead = (good < bad) + 0.5 * (good == bad)  # of each pair of a right and a wrong answer
    good_counts, bad_counts = counts[:, right], counts[:, ~right]
    wins = ((good_counts @ ahead) * bad_counts).sum(1)
    return np.asarray(wins / (good_counts.sum(1) * bad_counts.sum(1)))


def table(scores: pd.DataFrame, judge: str) -> pd.DataFrame:
    """A line for each rule; the first resample is the sample itself."""
    right, n = scores[judge].to_numpy(bool), len(scores)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    counts = np.concatenate([np.ones((1, n)), drawn])
    names = [name for name in scores.columns if name not in ("id", "tokens", *JUDGES)]
    found = {name: aurocs(scores[name].to_numpy(float), right, counts) for name in names}
    lines = []
    for name in (name for name in names if " ~ shuffle " not in name):
        shuffles = [values for other, values in found.items() if other.startswith(f"{name} ~ shuffle ")]
        references = {name.replace(" ", "_"): found.get(name) for name in REFERENCES}
        references["shuffled"] = np.mean(shuffles, axis=0) if shuffles else None
        line: dict[str, object] = {"rule": name, "auroc": found[name][0]}
        line |= dict(zip(("auroc_low", "auroc_high"), _interval(found[name]), strict=True))
        for reference, values in references.items():
            difference = None if values is None else found[name] - values
            line[f"minus_{reference}"] = None if difference is None else difference[0]
            low, high = (None, None) if difference is None else _interval(difference)
            line |= {f"minus_{reference}_low": low, f"minus_{reference}_high": high}
        lines.append(line)
    return pd.DataFrame(lines).assign(judge=JUDGES[judge], answers=n, right_answers=int(right.sum()))


def _interval(values: Floats) -> list[float]:
    return [float(value) for value in np.nanpercentile(values[1:], [2.5, 97.5])]


def shown(line: pd.Series, column: str) -> str:
    """A difference with its interval, as it stands in the docs."""
    if pd.isna(line[column]):
        return ""
    return f"{line[column]:+.3f} [{line[column + '_low']:+.3f}, {line[column + '_high']:+.3f}]"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path, nargs="*", default=sorted((HERE / "scores").glob("*.parquet")))
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    tables = []
    for path in options.scores:
        scores = pd.read_parquet(path)
        for judge in JUDGES:
            found = table(scores, judge).assign(set=path.stem)
            tables.append(found)
            print(f"\n{path.stem}, judge {JUDGES[judge]}: {len(scores):,} answers, {found.right_answers[0]} right\n")
            print(
                "| rule | AUROC | minus probability | minus paper | minus paper without clusters | minus its shuffle |"
            )
            print("| --- | --- | --- | --- | --- | --- |")
            for _, line in found.iterrows():
                columns = [f"minus_{name.replace(' ', '_')}" for name in (*REFERENCES, "shuffled")]
                differences = (shown(line, column) for column in columns)
                print(f"| {line.rule} | {line.auroc:.3f} | {' | '.join(differences)} |")
    if options.csv:
        pd.concat(tables).round(5).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
