"""Figures: best methods as bars, AUROC against overhead, risk and coverage, probabilities. The same run, the same
bytes.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from semtoken.bench.report.comparison import datasets_of, shown
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
from semtoken.bench.report.probabilities import CellProbabilities
from semtoken.bench.report.table import metric
from semtoken.bench.settings import folder_name
from semtoken.guarantees.report_page import STYLE as PLAIN_STYLE
from semtoken.support.extras import require
from semtoken.support.text import one_line, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

BEST = 7
"""Bars of each panel."""
CHANCE = 0.5
"""The AUROC of guessing, drawn as a line."""
PANELS = 3
"""How many panels stand side by side."""
LONGEST = 32
"""Characters of a name on an axis; longer ones are cut."""
LEGEND = 1.9
"""Width of the legend in inches."""
OURS, OTHERS = "#0072b2", "#b3b3b3"
COLOURS = ("#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000", "#999999", "#0072b2")
"""Okabe and Ito's, which most color-blind people tell apart."""
MARKERS = "osD^v<>PX*hpd"
STYLE = PLAIN_STYLE | {"axes.titlesize": 10.0, "figure.facecolor": "white", "savefig.dpi": 150}


@dataclass(frozen=True)
class Plot:
    """A figure with its caption; it is drawn when its files are asked for, which takes about a second."""

    name: str
    """The name of its files, without suffix."""
    title: str
    caption: str
    draw: Callable[[], Figure]

    @property
    def png(self) -> bytes:
        """The figure as pixels."""
        return self._files[0]

    @property
    def svg(self) -> bytes:
        """The figure as lines and text."""
        return self._files[1]

    @cached_property
    def _files(self) -> tuple[bytes, bytes]:
        """As PNG and SVG, without dates and versions, so that the same figure has the same bytes."""
        import matplotlib

        png, svg = io.BytesIO(), io.BytesIO()
        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # PNG has boxes there, SVG the text
            figure = self.draw()
            if figure.get_layout_engine() is not None:
                figure.draw_without_rendering()
                # What was laid out just now stays for both files; with "none" each of them would be drawn once more.
                figure.set_layout_engine(None)
            figure.savefig(png, format="png", metadata={"Software": None})
            figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        return png.getvalue(), svg.getvalue()


def plots(made: Measured, probabilities: Sequence[CellProbabilities] = ()) -> list[Plot]:
    """All plots for which the run has figures: of the methods, and of risks and probabilities where there are
    labels.
    """
    require("matplotlib", extra="bench")
    return [*_plots_of_run(made), *_probability_plots(probabilities)]


def _plots_of_run(made: Measured) -> Iterator[Plot]:
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
                fmt="*" if ours else MARKERS[number % 9],
                markersize=13 if ours else 7,
                color=OURS if ours else COLOURS[number % 7],
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
    _legend(figure, {name: handles[name] for name in names})
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
    _legend(figure, handles)
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
                fmt=MARKERS[number % 9] + ("-" if own.setting.str.isdigit().all() else ""),
                color=COLOURS[number % len(COLOURS)],
                markersize=5,
                linewidth=0.8,
                elinewidth=0.8,
                capsize=2,
            )
    axis.set_xticks(range(len(values)), [label_of(shown(value)) for value in values])
    axis.set_xlim(-0.6, len(values) - 0.4)
    return handles


def _legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    figure.legend(handles.values(), map(label_of, handles), loc="outside right upper", frameon=False)


def label_of(text: str) -> str:
    """A shortened name that fits the axis of a plot."""
    return shortened(one_line(text), LONGEST)


def _lengths(rows: DataFrame) -> tuple[list[float], list[float]]:
    """How long the error bars below and above the values are; 0 where an interval is undefined."""
    below, above = (rows.value - rows.low).fillna(0).clip(lower=0), (rows.high - rows.value).fillna(0).clip(lower=0)
    return below.tolist(), above.tolist()


def _plain_ticks(axis: Axes) -> None:
    """0.1, 1, 10 rather than powers; more of them where the axis spans little."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1,) if high / low > 30 else (1, 2, 5)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def panels(count: int, *, width: float, height: float, sharex: bool = False) -> tuple[Figure, list[Axes]]:
    """A new figure with this many panels, `PANELS` of them in a row."""
    from matplotlib.figure import Figure

    columns = min(count, PANELS)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width * columns, height * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex)
    axes = list(grid.flat)
    for axis in axes[count:]:
        axis.remove()
    for axis in axes[:count]:
        axis.tick_params(labelbottom=True)
    return figure, axes[:count]


COLUMNS = 5
"""Panels of a reliability figure side by side."""
LINES = ("-", "--", ":")


def _probability_plots(cells: Sequence[CellProbabilities]) -> Iterator[Plot]:
    for number, dataset in enumerate(dict.fromkeys(cell.dataset for cell in cells), start=1):
        own = [cell for cell in cells if cell.dataset == dataset]
        yield Plot(
            f"risk_coverage_{number}_{folder_name(dataset)[:60]}",
            f"Risk and coverage on {one_line(dataset)}",
            "Share of wrong answers among the given ones if only the surest are given; lower is better. Every curve "
            "ends at the share of wrong answers among all.",
            partial(risk_curves, own),
        )
    for number, cell in enumerate(cells, start=1):
        if any(method.report is not None for method in cell.methods.values()):
            name = folder_name(f"{cell.model}-{cell.dataset}")[:60]
            yield Plot(
                f"reliability_{number}_{name}",
                f"Reliability: {one_line(cell.title)}",
                "Share of right answers against the cross-fitted probability, for groups of similar probability with "
                "95% "
                "intervals. Points on the line are right as often as they were said to be; the wider they are spread "
                "along it, the more the method knows.",
                partial(reliability_panels, cell),
            )


def risk_curves(cells: Sequence[CellProbabilities]) -> Figure:
    """Plot risk against coverage: a line for each method, a panel for each model and data set."""
    figure, axes = panels(len(cells), width=4.2, height=3.4)
    figure.set_figwidth(figure.get_figwidth() + LEGEND)
    names = list(dict.fromkeys(name for cell in cells for name in cell.methods))
    handles: dict[str, Any] = {}
    for axis, cell in zip(axes, cells, strict=True):
        for name, method in cell.methods.items():
            ours, number = name == cell.reference, names.index(name)
            (handles[name],) = axis.plot(
                method.curve.coverage,
                method.curve.risk,
                color=OURS if ours else COLOURS[number % 7],
                linestyle="-" if ours else LINES[number // 7 % len(LINES)],
                linewidth=2.2 if ours else 0.9,
                zorder=4 if ours else 3,
                drawstyle="steps-post",
            )
        axis.set(xlim=(0, 1), xlabel="coverage", ylabel="risk: share of wrong answers")
        highest = max(float(m.curve.risk[m.curve.coverage >= 0.05].max()) for m in cell.methods.values())
        axis.set_ylim(0, min(1.0, max(0.05, math.ceil(20 * highest) / 20)))
        axis.set_title(label_of(cell.model))
        axis.grid(color="#e6e6e6", linewidth=0.6)
    _legend(figure, {title_of(name): handles[name] for name in names if name in handles})
    return figure


def reliability_panels(cell: CellProbabilities) -> Figure:
    """Plot the share of right answers against the probability, in a small panel for each method."""
    from matplotlib.figure import Figure

    methods = [method for method in cell.methods.values() if method.report is not None]
    columns = min(COLUMNS, len(methods))
    rows = math.ceil(len(methods) / columns)
    width, height = 2.0 * columns + 0.7, 2.1 * rows + 0.7
    figure = Figure(figsize=(width, height))  # panels are all alike: no layout has to be searched for
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    figure.subplots_adjust(0.65 / width, 0.55 / height, 1 - 0.15 / width, 1 - 0.3 / height, 0.2, 0.28)
    for axis in axes[len(methods) :]:
        axis.remove()
    for axis, method in zip(axes, methods, strict=False):
        assert method.report is not None
        _reliability(axis, method.report.bins, OURS if method.name == cell.reference else "#333333")
        axis.set_title(label_of(method.title), fontsize=9)
    figure.supxlabel("probability given", fontsize=9, y=0.08 / height)
    figure.supylabel("share of right answers", fontsize=9, x=0.08 / width)
    return figure


def _reliability(axis: Axes, bins: Sequence[Any], colour: str) -> None:
    axis.plot([0, 1], [0, 1], color=OTHERS, linewidth=0.8)
    axis.errorbar(
        [b.probability_correct for b in bins],
        [b.right for b in bins],
        yerr=([max(0.0, b.right - b.low) for b in bins], [max(0.0, b.high - b.right) for b in bins]),
        fmt="o",
        markersize=3,
        color=colour,
        elinewidth=0.8,
        capsize=1.5,
    )
    axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axis.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
