"""Figures of a run: best methods as bars, AUROC against overhead, sensitivity to clusterings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from semtoken.bench.report.comparison import datasets_of, shown
from semtoken.bench.report.drawing import COLORS, LEGEND, OTHERS, OURS, Plot, label_of, legend, panels
from semtoken.bench.report.measure import (
    PERCENT,
    STUDIES,
    Measured,
    MeasuredCell,
    by_value,
    in_order,
    select,
    spoken,
    title_of,
)
from semtoken.bench.report.numbers import metric
from semtoken.bench.settings import folder_name
from semtoken.support.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

BEST = 7
"""Bars of each panel."""
CHANCE = 0.5
"""The AUROC of guessing, drawn as a line."""
MARKERS = "osD^v<>PX"


def plots(made: Measured) -> Iterator[Plot]:
    """All plots of the methods and clusterings for which the run has figures."""
    for number, dataset in enumerate(datasets_of(made), start=1):
        own = [cell for cell in made.cells if cell.dataset == dataset]
        name, shown_name = f"{number}_{folder_name(dataset)[:60]}", one_line(dataset)
        if ranked := [cell for cell in own if len(made.ranked(cell))]:
            yield Plot(
                f"best_methods_{name}",
                f"The best {BEST} methods on {shown_name}",
                "AUROC with 95% intervals, the best at the top; bars begin at chance level, 0.5. Blue is "
                f"{spoken(made.reference)}; where it is not among them it is added below with its place.",
                partial(bars, made, ranked),
            )
        if timed := [cell for cell in own if len(_timed(made, cell))]:
            yield Plot(
                f"overhead_{name}",
                f"AUROC against overhead on {shown_name}",
                "Overhead in percent of the greedy generation, on a logarithmic scale: up and to the left is better. "
                "Methods without any overhead stand at the left edge.",
                partial(against_overhead, made, timed),
            )
    if made.figures.table.isin(STUDIES.values()).any():
        yield Plot(
            "sensitivity",
            "AUROC of STC by clustering",
            "One setting is changed at a time; 95% intervals.",
            partial(sensitivity_panels, made),
        )


def bars(made: Measured, cells: Sequence[MeasuredCell]) -> Figure:
    """Plot the best methods and the reference by AUROC, a panel for each model and data set; bars begin at chance."""
    figure, axes = panels(len(cells), width=4.2, height=2.9, sharex=True)
    reference = title_of(made.reference)
    for axis, cell in zip(axes, cells, strict=True):
        ranked = made.ranked(cell).assign(place=lambda rows: range(1, len(rows) + 1))
        chosen = ranked[(ranked.place <= BEST) | (ranked.setting == reference)]
        rows, lengths = range(len(chosen)), _lengths(chosen)
        axis.barh(
            rows,
            chosen.value - CHANCE,
            left=CHANCE,
            xerr=lengths,
            color=[OURS if name == reference else OTHERS for name in chosen.setting],
            error_kw={"elinewidth": 1, "capsize": 2.5, "ecolor": "#333333"},
        )
        for row, value, length in zip(rows, chosen.value, lengths[1], strict=True):
            axis.annotate(
                metric(value), (value + length, row), (4, 0), textcoords="offset points", va="center", fontsize=8
            )
        places = zip(chosen.setting, chosen.place, strict=True)
        names = [label_of(name) + (f" (place {place})" if place > BEST else "") for name, place in places]
        axis.set_yticks(rows, names)
        axis.invert_yaxis()
        axis.axvline(CHANCE, color="#333333", linewidth=0.8)
        axis.set_title(label_of(cell.model))
        axis.set_xlabel("AUROC")
    left, right = axes[0].get_xlim()
    axes[0].set_xlim(left, right + 0.15 * (right - left))  # room for the numbers
    axes[0].set_xticks([tick for tick in axes[0].get_xticks() if tick <= 1])
    return figure


def _timed(made: Measured, cell: MeasuredCell) -> DataFrame:
    """Methods that have an AUROC and a measured overhead, `percent`."""
    percent = made.of(cell, table="comparison", metric=PERCENT).set_index("setting").value
    ranked = made.ranked(cell)
    return ranked.assign(percent=percent.reindex(ranked.setting).to_numpy()).dropna(subset="percent")


def against_overhead(made: Measured, cells: Sequence[MeasuredCell]) -> Figure:
    """Plot AUROC against overhead: a point for each method, a panel for each model."""
    figure, axes = panels(len(cells), width=4.2, height=3.4)
    figure.set_figwidth(figure.get_figwidth() + LEGEND)
    timed = [_timed(made, cell) for cell in cells]
    held = {name for own in timed for name in own.setting}
    names = [title_of(name) for name in in_order(dict.fromkeys(name for cell in cells for name in cell.seconds))]
    names = [name for name in names if name in held]
    handles: dict[str, Any] = {}
    for axis, cell, own in zip(axes, cells, timed, strict=True):
        smallest = own.percent[own.percent > 0].min() if (own.percent > 0).any() else 1.0
        for i, row in enumerate(own.itertuples()):
            ours = row.setting == title_of(made.reference)
            number = names.index(row.setting)
            handles[row.setting] = axis.errorbar(
                max(row.percent, smallest / 3),
                row.value,
                yerr=_lengths(own.iloc[i : i + 1]),
                fmt="*" if ours else MARKERS[number % len(MARKERS)],
                markersize=13 if ours else 7,
                color=OURS if ours else COLORS[number % len(COLORS)],
                ecolor="#bbbbbb",
                elinewidth=0.8,
                markeredgecolor="white",
                markeredgewidth=0.6,
                zorder=4 if ours else 3,
            )
        axis.set_xscale("log")
        _plain_ticks(axis)
        axis.grid(color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.set_title(label_of(cell.model))
        axis.set_xlabel("overhead, % of the greedy generation")
        axis.set_ylabel("AUROC")
    legend(figure, {name: handles[name] for name in names})
    return figure


def sensitivity_panels(made: Measured) -> Figure:
    """Plot the sensitivity study: rows are data sets, columns settings, colors models."""
    from matplotlib.figure import Figure

    figures = select(made.figures, table=list(STUDIES.values()))
    studies = [study for study in STUDIES.values() if study in set(figures.table)]
    datasets, models = list(dict.fromkeys(figures.dataset)), list(dict.fromkeys(cell.model for cell in made.cells))
    figure = Figure(figsize=(2.6 * len(studies) + LEGEND, 2.4 * len(datasets) + 0.4), layout="constrained")
    grid = figure.subplots(len(datasets), len(studies), squeeze=False, sharey="row")
    handles: dict[str, Any] = {}
    for row, dataset in enumerate(datasets):
        for axis, study in zip(grid[row], studies, strict=True):
            handles |= _study_panel(axis, select(figures, dataset=dataset, table=study), models)
            axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
            axis.set_title(f"{label_of(dataset)}: {study}")
        grid[row][0].set_ylabel("AUROC of STC")
    legend(figure, handles)
    return figure


def _study_panel(axis: Axes, figures: DataFrame, models: Sequence[str]) -> dict[str, Any]:
    """The values of one setting side by side, models beside each other; numbers are joined by lines."""
    values = sorted(set(figures.setting), key=by_value)
    handles = {}
    for number, model in enumerate(models):
        shift = 0.6 * ((number + 0.5) / len(models) - 0.5)
        if len(own := select(figures, model=model)):
            handles[model] = axis.errorbar(
                [values.index(value) + shift for value in own.setting],
                own.value,
                yerr=_lengths(own),
                fmt=MARKERS[number % len(MARKERS)] + ("-" if own.setting.str.isdigit().all() else ""),
                color=COLORS[number % len(COLORS)],
                markersize=5,
                linewidth=0.8,
                elinewidth=0.8,
                capsize=2,
            )
    axis.set_xticks(range(len(values)), [label_of(shown(value)) for value in values])
    axis.set_xlim(-0.6, len(values) - 0.4)
    return handles


def _lengths(rows: DataFrame) -> tuple[list[float], list[float]]:
    """The lengths of the error bars below and above the values; 0 where an interval is undefined."""
    below, above = (rows.value - rows.low).fillna(0).clip(lower=0), (rows.high - rows.value).fillna(0).clip(lower=0)
    return below.tolist(), above.tolist()


def _plain_ticks(axis: Axes) -> None:
    """0.1, 1, 10 rather than powers; more of them where the axis spans little."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1,) if high / low > 30 else (1, 2, 5)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
