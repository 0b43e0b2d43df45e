"""Figures of decisions: risk against coverage, and how far probabilities are right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from semtoken.bench.report.drawing import COLORS, LEGEND, OTHERS, OURS, Plot, label_of, legend, panels
from semtoken.bench.report.measure import select, title_of
from semtoken.bench.report.probabilities import Probabilities, by_cell
from semtoken.bench.settings import folder_name
from semtoken.support.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

COLUMNS = 5
"""Panels of a reliability figure side by side."""
LINES = ("-", "--", ":")


def probability_plots(probabilities: Probabilities) -> Iterator[Plot]:
    """A figure of risk and coverage for each data set, and one of probabilities for each model on it."""
    for number, dataset in enumerate(dict.fromkeys(probabilities.methods.dataset), start=1):
        yield Plot(
            f"risk_coverage_{number}_{folder_name(dataset)[:60]}",
            f"Risk and coverage on {one_line(dataset)}",
            "Share of wrong answers among the given ones if only the surest are given; lower is better. Every curve "
            "ends at the share of wrong answers among all.",
            partial(risk_curves, probabilities, dataset),
        )
    for number, (cell, _) in enumerate(by_cell(probabilities.methods), start=1):
        groups = select(probabilities.groups, model=cell.model, dataset=cell.dataset)
        if len(groups):
            name = folder_name(f"{cell.model}-{cell.dataset}")[:60]
            yield Plot(
                f"reliability_{number}_{name}",
                f"Reliability: {one_line(cell.title)}",
                "Share of right answers against the cross-fitted probability, for groups of similar probability with "
                "95% intervals. Points on the line are right as often as they were said to be; the wider they are "
                "spread along it, the more the method knows.",
                partial(reliability_panels, groups, probabilities.reference),
            )


def risk_curves(probabilities: Probabilities, dataset: str) -> Figure:
    """Plot risk against coverage: a line for each method, a panel for each model that answered the data set."""
    methods = select(probabilities.methods, dataset=dataset)
    names, models = list(dict.fromkeys(methods.method)), list(dict.fromkeys(methods.model))
    figure, axes = panels(len(models), width=4.2, height=3.4)
    figure.set_figwidth(figure.get_figwidth() + LEGEND)
    handles: dict[str, Any] = {}
    for axis, model in zip(axes, models, strict=True):
        highest = 0.0
        for name in select(methods, model=model).method:
            curve = probabilities.curves[model, dataset, name]
            ours, number = name == probabilities.reference, names.index(name)
            (handles[name],) = axis.plot(
                curve.coverage,
                curve.risk,
                color=OURS if ours else COLORS[number % len(COLORS)],
                linestyle="-" if ours else LINES[number // len(COLORS) % len(LINES)],
                linewidth=2.2 if ours else 0.9,
                zorder=4 if ours else 3,
                drawstyle="steps-post",
            )
            highest = max(highest, float(curve.risk[curve.coverage >= 0.05].max()))
        axis.set(xlim=(0, 1), xlabel="coverage", ylabel="risk: share of wrong answers")
        axis.set_ylim(0, min(1.0, max(0.05, math.ceil(20 * highest) / 20)))
        axis.set_title(label_of(model))
        axis.grid(color="#e6e6e6", linewidth=0.6)
    legend(figure, {title_of(name): handles[name] for name in names})
    return figure


def reliability_panels(groups: DataFrame, reference: str) -> Figure:
    """Plot the share of right answers against the probability, in a small panel for each method.

    `groups` are those of one model and data set (see `Probabilities.groups`).
    """
    from matplotlib.figure import Figure

    methods = list(groups.groupby("method", sort=False))
    columns = min(COLUMNS, len(methods))
    rows = math.ceil(len(methods) / columns)
    width, height = 2.0 * columns + 0.7, 2.1 * rows + 0.7
    figure = Figure(figsize=(width, height))  # panels are all alike: no layout has to be searched for
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    figure.subplots_adjust(0.65 / width, 0.55 / height, 1 - 0.15 / width, 1 - 0.3 / height, 0.2, 0.28)
    for axis in axes[len(methods) :]:
        axis.remove()
    for axis, (name, own) in zip(axes, methods, strict=False):
        _reliability(axis, own, OURS if name == reference else "#333333")
        axis.set_title(label_of(title_of(name)), fontsize=9)
    figure.supxlabel("probability given", fontsize=9, y=0.08 / height)
    figure.supylabel("share of right answers", fontsize=9, x=0.08 / width)
    return figure


def _reliability(axis: Axes, groups: DataFrame, color: str) -> None:
    axis.plot([0, 1], [0, 1], color=OTHERS, linewidth=0.8)
    axis.errorbar(
        groups.probability_correct,
        groups.right,
        yerr=((groups.right - groups.low).clip(lower=0), (groups.high - groups.right).clip(lower=0)),
        fmt="o",
        markersize=3,
        color=color,
        elinewidth=0.8,
        capsize=1.5,
    )
    axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axis.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
