"""How well each library's number ranks the same answers: AUROC for wrong answers, with paired intervals.

    python research/experiments/beside/tables.py [--page research/experiments/beside/README.md]

reads `scores/SET-LIBRARY.csv` and prints a table for each set, the best number first. The difference is to the plain
probability of the answer; 95 % intervals of a bootstrap over answers (2,000 resamples). With `--page`, the tables
between the marks of the page are written anew.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
BASELINE = "semtoken: probability"
RESAMPLES = 2000
SETS = {"almanac": "answers of the embedded model", "smollm2": "chat answers of SmolLM2-135M-Instruct"}
MARKS = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.DOTALL)


def scores_of(name: str) -> pd.DataFrame:
    """The columns of all libraries, side by side."""
    frames = [pd.read_csv(path).set_index("id") for path in sorted((HERE / "scores").glob(f"{name}-*.csv"))]
    if not frames:
        return pd.DataFrame()
    right = frames[0]["right"]
    if any(not frame["right"].equals(right) for frame in frames):
        raise SystemExit(f"The libraries did not score the same answers of {name}.")
    columns = pd.concat([frame.drop(columns="right") for frame in frames], axis=1)
    return columns.assign(right=right.astype(bool))


def table(scores: pd.DataFrame) -> pd.DataFrame:
    """A line for each number, the best first."""
    right, n = scores.pop("right").to_numpy(), len(scores)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    counts = np.concatenate([np.ones((1, n)), drawn])  # the first resample is the sample itself
    good, bad = counts[:, right], counts[:, ~right]
    found = {}
    for name in scores:
        values = scores[name].to_numpy(float)
        sure, doubtful = values[right][:, None], values[~right][None]
        ahead = (sure < doubtful) + 0.5 * (sure == doubtful)
        found[name] = ((good @ ahead) * bad).sum(1) / (good.sum(1) * bad.sum(1))
    lines = []
    for name, values in found.items():
        difference = values - found[BASELINE]
        least, most = np.percentile(difference[1:], [2.5, 97.5])
        lines.append({"number": name, "auroc": values[0], "difference": difference[0], "least": least, "most": most})
    return pd.DataFrame(lines).sort_values("auroc", ascending=False, ignore_index=True)


def text() -> str:
    """The tables in Markdown."""
    pages = []
    for name, what in SETS.items():
        scores = scores_of(name)
        if scores.empty:
            continue
        right, n = int(scores["right"].sum()), len(scores)
        lines = [
            f"**{n} {what}, {right} right:**",
            "",
            "| number | AUROC | minus probability |",
            "| --- | ---: | --- |",
        ]
        for row in table(scores).itertuples():
            difference = f"{row.difference:+.3f} [{row.least:+.3f}, {row.most:+.3f}]"
            lines.append(f"| {row.number} | {row.auroc:.3f} | {'' if row.number == BASELINE else difference} |")
        pages.append("\n".join(lines))
    return "\n\n".join(pages)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path)
    page = parser.parse_args().page
    tables = text()
    print(tables)
    if page:
        old = page.read_text("utf-8")
        page.write_text(MARKS.sub(lambda marks: f"{marks[1]}\n{tables}\n\n{marks[2]}", old), "utf-8")


if __name__ == "__main__":
    main()
