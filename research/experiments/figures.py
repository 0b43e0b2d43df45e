"""The figures of docs/results.md, from the tables in this folder.

    python research/experiments/figures.py [--out build/figures]

Points are differences or AUROCs, lines their 95 % intervals; nothing is computed here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "svg.hashsalt": "semtoken",
    "svg.fonttype": "none",
}
GOOD, BAD, LEVEL = "#0072b2", "#d55e00", "#666666"  # Okabe and Ito's blue and vermilion
RULES = {
    "default": "preset default (same spelling)",
    "surface": "equality surface",
    "beginnings": "beginnings",
    "clusters, beginnings": "clusters and beginnings",
    "paper": "preset paper",
    "paper without clusters": "paper without clusters",
}
SETS = {
    "smollm2-nq": "SmolLM2, NQ",
    "smollm2-wq": "SmolLM2, WQ",
    "smollm2-tqa": "SmolLM2, TQA",
    "gemma3-nq": "Gemma, NQ",
    "gemma3-wq": "Gemma, WQ",
    "gemma3-tqa": "Gemma, TQA",
}
VIEWS = (
    "product, probability",
    "product, paper",
    "product, default",
    "weakest token, default",
    "geometric mean, default",
    "mean phrase, surface",
    "mean new word, probability",
    "mean new word, default",
)


def intervals(axes: Axes, found: pd.DataFrame, columns: tuple[str, str, str], reference: float) -> None:
    """One row for each line of a table; blue above the reference, orange below, grey where it is in the interval."""
    value, low, high = columns
    for place, (_, line) in enumerate(found.iterrows()):
        color = GOOD if line[low] > reference else BAD if line[high] < reference else LEVEL
        axes.plot([line[low], line[high]], [place, place], color=color, linewidth=1.6, solid_capstyle="butt")
        axes.plot(line[value], place, "o", color=color, markersize=4.5)
    axes.axvline(reference, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.tick_params(left=False)


def rules_figure(table: pd.DataFrame) -> Figure:
    """Rules minus sequence probability, a panel for each model and set that has scores."""
    exact = table[(table.judge == "exact") & table.rule.isin(RULES)]
    sets = [name for name in SETS if (exact.set == name).any()]
    figure = Figure(figsize=(9.0, 2.2 * -(-len(sets) // 3) + 0.5), layout="constrained")
    panels = figure.subplots(-(-len(sets) // 3), 3, sharex=True, sharey=True, squeeze=False).ravel()
    order = {rule: place for place, rule in enumerate(reversed(RULES))}
    for axes in panels[len(sets) :]:
        axes.set_visible(False)
    for axes, name in zip(panels, sets, strict=False):
        lines = exact[exact.set == name].set_index("rule").reindex(list(order))
        intervals(axes, lines, ("minus_probability", "minus_probability_low", "minus_probability_high"), 0.0)
        right = exact[exact.set == name].right_answers.iloc[0]
        axes.set_title(f"{SETS[name]} ({right} right)", loc="left")
        axes.set_yticks(range(len(order)), [RULES[rule] for rule in order])
        for place, rule in enumerate(order):
            if lines.loc[rule, "auroc"] != lines.loc[rule, "auroc"]:
                axes.text(0.02, place, "not measured", transform=axes.get_yaxis_transform(), va="center", color=LEVEL)
    figure.supxlabel("AUROC minus that of sequence probability, exact match", fontsize=9)
    return figure


def long_answers_figure(table: pd.DataFrame) -> Figure:
    """What is shown of a long answer, by AUROC."""
    found = table.set_index("view").loc[list(VIEWS)]
    figure = Figure(figsize=(6.4, 2.8), layout="constrained")
    axes = figure.subplots()
    intervals(axes, found, ("auroc", "low", "high"), 0.5)
    axes.set_yticks(range(len(found)), list(found.index))
    axes.set_xlabel("AUROC for wrong answers; 0.5 is chance")
    return figure


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "build" / "figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figures = {
            "rules": rules_figure(pd.read_csv(HERE / "default_rule" / "tables.csv")),
            "long-answers": long_answers_figure(pd.read_csv(HERE / "long_answers" / "tables.csv")),
        }
        for name, figure in figures.items():
            figure.savefig(options.out / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
