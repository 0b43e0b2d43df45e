"""A run -> one table of its figures, a row a figure, and one of the paired tests between them.

A report is about one method, its reference: the confidence where the run has it, else STC, or any other that is asked
for. Compared are the other methods with the reference and with STC, all methods with the best, the ablations with STC,
the clusterings of the sensitivity study with the one that the methods use, and the controls with STC and with sequence
probability, always as "this minus STC". P-values are corrected within each of these families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semtoken.bench.controls import CONTROLS, PREFIX
from semtoken.bench.judges import Agreement, Tally, agreement, tally
from semtoken.bench.plan import MAIN, OfCell
from semtoken.bench.report.paired import SEED, PairedTests
from semtoken.bench.results import Cell, ClusteringRecord, RunResults
from semtoken.bench.statistics import SHARED_PREFIX
from semtoken.errors import InvalidInputError
from semtoken.guarantees.labels import CONFIDENCE
from semtoken.methods import METHODS
from semtoken.methods.metrics import Estimate, ResampledMetric, resample
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require
from semtoken.support.text import did_you_mean

if TYPE_CHECKING:
    from pandas import DataFrame

ABLATIONS = ("stc_no_clustering", "stc_no_prefix")
"""STC without one of its parts each. These are not among the methods that it is compared with."""
METRICS = {"auroc": "AUROC", "prr": "PRR"}
"""The metrics of every method, and their names in tables."""
SECONDS, PERCENT = "seconds", "percent of generation time"
STC, BASELINE = "stc", "sequence_probability"
STUDIES: Mapping[str, str] = {
    "algorithm": "clustering algorithm",
    "metric": "distance",
    "n_clusters": "number of clusters",
    "embedding": "embedding",
    "linkage": "linkage",
}
"""Setting of a clustering -> the paper's table about it, in the order in which tables have them."""
PLACE = ("table", "dataset", "setting", "model", "metric")
FIGURE = (*PLACE, "value", "low", "high")
TEST = (*PLACE, "against", "difference", "low", "high", "p", "p_adjusted", "verdict")

Progress = Callable[[int, int], None]
"""Called with (uncertainties measured, of how many): those of methods, of other clusterings and of controls."""
Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class MeasuredCell(OfCell):
    """The counts of one model on one data set: answers, verdicts, agreements, and seconds."""

    n: int
    counts: Tally
    greedy_seconds: float
    seconds: Mapping[str, float]
    """Name of a method, ablations included, in the order of `METHODS` -> seconds beyond the greedy generation; NaN if
    not measured."""
    undefined: Mapping[str, int]
    """Name of a method -> answers whose uncertainty was NaN or +inf; they shared the worst rank."""
    reason: str
    """Why AUROC and PRR are undefined here; empty if they are not."""
    agreements: tuple[Agreement, ...]
    verdicts: Mapping[str, Tally]

    @property
    def fewest(self) -> int:
        """The number of right answers or of wrong answers, whichever is smaller."""
        return min(self.counts.correct, self.counts.incorrect)


@dataclass(frozen=True, eq=False)
class Measured:
    """The table of results of a run."""

    cells: tuple[MeasuredCell, ...]
    figures: DataFrame
    """A row a figure: table (the paper's "comparison", "ablation", "distance", ..., "pre-computation"; or "control",
    which is ours), dataset (empty for what depends on the model alone), setting (title of a method, or value of a
    setting), model, metric ("AUROC", "PRR", "seconds" or "percent of generation time"), value (NaN where it is
    undefined), low and high (the 95% interval; NaN without one)."""
    tests: DataFrame
    """A row a paired test: its place as in `figures`, against, and the fields of `PairedTest`."""
    reference: str
    """Name of the method that the report is about."""

    def of(self, cell: OfCell, **wanted: Any) -> DataFrame:
        """The figures of a model on a data set that have these values."""
        return select(self.figures, model=cell.model, dataset=cell.dataset, **wanted)

    def ranked(self, cell: OfCell, metric: str = "AUROC") -> DataFrame:
        """The compared methods that have a value, the best first; of equals, the reference."""
        rows = self.of(cell, table="comparison", metric=metric).dropna(subset="value")
        other = rows.setting != title_of(self.reference)
        return rows.assign(other=other).sort_values(["value", "other"], ascending=[False, True], kind="stable")

    def test(self, cell: OfCell, setting: str, against: str, metric: str = "AUROC") -> Any:
        """A row of the tests on a model and data set; None if there is none."""
        return self._tests.get((cell.model, cell.dataset, setting, metric, against))

    @cached_property
    def _tests(self) -> Mapping[tuple[str, ...], Any]:
        rows = list(self.tests.itertuples())
        return {(row.model, row.dataset, row.setting, row.metric, row.against): row for row in reversed(rows)}


def select(rows: DataFrame, **wanted: Any) -> DataFrame:
    """The rows whose columns have these values; a list or tuple stands for any of its values."""
    chosen = np.ones(len(rows), dtype=bool)
    for name, value in wanted.items():
        column = rows[name]
        chosen &= (column.isin(value) if isinstance(value, list | tuple) else column == value).to_numpy(dtype=bool)
    return rows[chosen]


def cell_titles(rows: DataFrame) -> list[str]:
    """The model and the data set of each row, as `OfCell.title` names them."""
    return [OfCell(model, dataset).title for model, dataset in zip(rows.model, rows.dataset, strict=True)]


TITLES = frozenset(method.title for method in METHODS.values())


def title_of(name: str) -> str:
    """The title of a method in tables; of one that is not in `METHODS` the name itself."""
    return METHODS[name].title if name in METHODS else f"{name} (own)" if name in TITLES else name


def spoken(name: str) -> str:
    """The name of a method as it reads inside a sentence."""
    return f"the {title_of(name).lower()}" if name == CONFIDENCE else title_of(name)


def in_order(names: Collection[str]) -> list[str]:
    """The names of methods, those of `METHODS` first and in its order."""
    return [name for name in METHODS if name in names] + [name for name in names if name not in METHODS]


def settings_of(model: str, clusterings: Sequence[ClusteringRecord]) -> Mapping[str, Any]:
    """The settings of the clustering that the methods use, as far as they are known."""
    return next((own.settings for own in clusterings if own.model == model and own.variant == MAIN), {})


def is_main(variant: str, model: str, clusterings: Sequence[ClusteringRecord]) -> bool:
    """True if a variant such as "linkage=complete" is the clustering that the methods use, under another name."""
    return variant in {f"{name}={value}" for name, value in settings_of(model, clusterings).items()}


def chosen_judge(results: RunResults, judge: str | None) -> str:
    """The judge whose verdicts the figures use: the one asked for, or the run's; `InvalidInputError` if it gave
    none.
    """
    names = list(dict.fromkeys(name for cell in results.cells for name in cell.judgments))
    wanted = judge or results.primary_judge
    if not names:
        raise _incomplete(results)
    if wanted not in names:
        raise InvalidInputError(
            f"{results.path} holds no complete verdicts of the judge {wanted!r}; there are those of "
            f"{', '.join(names)}: choose one with --judge. Or resume the run, which makes what is missing."
        )
    return wanted


def chosen_reference(results: RunResults, judge: str) -> str:
    """The default reference: the confidence, or STC where a cell lacks that; in a run without STC the first method."""
    cells = [cell for cell in results.cells if judge in cell.judgments and cell.uncertainty]
    if cells and all(CONFIDENCE in cell.uncertainty for cell in cells):
        return CONFIDENCE
    there = dict.fromkeys(name for cell in cells for name in cell.uncertainty)
    return STC if STC in there else next(iter(there), STC)


def _incomplete(results: RunResults) -> InvalidInputError:
    return InvalidInputError(
        f"{results.path} holds nothing complete to report on: no model has answered, been scored and been judged on a "
        "whole data set. Run it again: `semtoken bench run` takes up where it was."
    )


def measure(
    results: RunResults,
    judge: str,
    *,
    n_resamples: int = 1000,
    reference: str | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Compute the figures of every cell that has verdicts of the judge and at least one method.

    All methods of a cell are resampled with the same draws and tested against the reference, besides STC and the best.
    `progress` is called after every uncertainty. `InvalidInputError` if no cell is complete enough for a figure, or
    none has scores of the reference.
    """
    cells = [cell for cell in results.cells if judge in cell.judgments and cell.uncertainty]
    if not cells:
        raise _incomplete(results)
    if reference is not None and not any(reference in cell.uncertainty for cell in cells):
        known = dict.fromkeys(name for cell in cells for name in cell.uncertainty)
        hint = did_you_mean(reference, known)
        raise InvalidInputError(
            f"{results.path} holds no scores of {reference!r}{hint}; there are those of {', '.join(known)}."
        )
    reference = reference or chosen_reference(results, judge)
    main = {cell: settings_of(cell.model, results.clusterings) for cell in cells}
    sources = {cell: list(_sources(cell, main[cell])) for cell in cells}
    total, done = sum(map(len, sources.values())), 0
    measured: list[MeasuredCell] = []
    rows: Rows = []
    tests: Rows = []
    for cell in cells:
        columns: dict[str, _Column] = {}
        for source in sources[cell]:
            columns[source.name] = _measured(source, cell.judgments[judge], n_resamples)
            done += 1
            if progress is not None:
                progress(done, total)
        measured.append(_counted(cell, judge, columns))
        rows += _figures(cell, columns, main[cell])
        uncertainty = {name: own.uncertainty for name, own in columns.items()}
        tests += _tests(cell, columns, reference, PairedTests(uncertainty, cell.judgments[judge], n_resamples))
    rows.sort(key=lambda row: _ORDER.get(row["table"], len(_ORDER)))
    for own in results.clusterings:
        if own.variant == MAIN and own.seconds is not None:
            setting = f"{own.settings.get('algorithm', 'unknown')} clustering"
            rows.append(_figure(("pre-computation", "", setting, own.model, SECONDS), own.seconds))
    frame = require("pandas", extra="bench").DataFrame
    return Measured(
        cells=tuple(measured),
        figures=frame(rows, columns=list(FIGURE)),
        tests=frame(tests, columns=list(TEST)),
        reference=reference,
    )


_ORDER = {"comparison": 0, "ablation": 1, "control": 2}
"""The order of tables among the figures; those of the studies come after these."""


@dataclass(frozen=True)
class _Source:
    """A column of uncertainties that a cell holds: of a method, of STC by another clustering, or of a control."""

    name: str
    """The name of a method, or `variant:` or `control:` with a name."""
    table: str
    setting: str
    repeats: Sequence[FloatArray]
    """[R, N] the uncertainties; only controls are repeated."""
    metrics: Collection[str]


@dataclass(frozen=True)
class _Column:
    """A column of uncertainties that has been measured."""

    table: str
    setting: str
    uncertainty: FloatArray
    """[N]; of several repetitions the one in the middle, whose p-values stand for those of all."""
    drawn: Mapping[str, ResampledMetric]
    """The metrics by their names, the mean over all repetitions."""


def _sources(cell: Cell, main: Mapping[str, Any]) -> Iterator[_Source]:
    """The columns of a cell in the order in which they are measured; `main` is its clustering."""
    for name in in_order(cell.uncertainty):
        table = "ablation" if name in ABLATIONS else "comparison"
        yield _Source(name, table, title_of(name), [cell.uncertainty[name]], METRICS)
    # A variant with the main clustering's own value is that clustering: it would be tested against itself.
    same = {f"{name}={value}" for name, value in main.items()}
    for name, values in cell.variants.items():
        if name not in same:
            setting, _, value = name.partition("=")
            yield _Source(f"variant:{name}", STUDIES[setting], value, [values], ("auroc",))
    for name, control in CONTROLS.items() if {STC, BASELINE} <= cell.uncertainty.keys() else ():
        if name in cell.controls:
            yield _Source(f"{PREFIX}{name}", "control", control.title, list(cell.controls[name]), ("auroc",))


def _measured(source: _Source, correct: FloatArray, n_resamples: int) -> _Column:
    drawn = {
        metric: [resample(metric, one, correct, n_resamples=n_resamples, seed=SEED) for one in source.repeats]
        for metric in source.metrics
    }
    order = np.argsort([repeat.value for repeat in drawn["auroc"]], kind="stable")
    median = order[(len(order) - 1) // 2]  # the lower one of two
    means = {metric: _mean(repeats) for metric, repeats in drawn.items()}
    return _Column(source.table, source.setting, source.repeats[median], means)


def _mean(repeats: Sequence[ResampledMetric]) -> ResampledMetric:
    """The mean of a metric over repetitions on the same resamples."""
    first = repeats[0]
    if first.reason:
        return first
    return replace(
        first,
        value=float(np.mean([repeat.value for repeat in repeats])),
        values=np.mean([repeat.values for repeat in repeats], axis=0),
        n_non_finite=sum(repeat.n_non_finite for repeat in repeats),
    )


def _figure(place: tuple[str, ...], value: Estimate | float) -> dict[str, Any]:
    """A row of the table of figures; `place` as in `PLACE`."""
    numbers = (value.value, value.low, value.high) if isinstance(value, Estimate) else (value, math.nan, math.nan)
    return dict(zip(FIGURE, (*place, *numbers), strict=True))


def _figures(cell: Cell, columns: Mapping[str, _Column], main: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The figures of a cell; `main` are the settings of its clustering."""

    def row(table: str, setting: str, metric: str, value: Estimate | float) -> dict[str, Any]:
        return _figure((table, cell.dataset, setting, cell.model, metric), value)

    for name, own in columns.items():
        if own.table in ("comparison", "control"):
            for metric, drawn in own.drawn.items():
                yield row(own.table, own.setting, METRICS[metric], drawn.estimate())
        if own.table == "comparison":
            seconds = cell.seconds.get(name, math.nan)
            yield row(own.table, own.setting, SECONDS, seconds)
            yield row(own.table, own.setting, PERCENT, _percent(cell, seconds))
    ablated = [columns[name] for name in (STC, *ABLATIONS, BASELINE) if name in columns]
    for own in ablated if len(ablated) > 1 else ():
        for metric, drawn in own.drawn.items():
            yield row("ablation", own.setting, METRICS[metric], drawn.estimate())
    for setting, table in STUDIES.items():
        points = {own.setting: own for own in columns.values() if own.table == table}
        if points and STC in columns and setting in main:
            points[str(main[setting])] = columns[STC]
        for value in sorted(points, key=by_value):
            yield row(table, value, METRICS["auroc"], points[value].drawn["auroc"].estimate())


def _percent(cell: Cell, seconds: float) -> float:
    """Each method's seconds in percent of the greedy generation.

    NaN also where the beginning of all prompts was read apart and is not in those seconds.
    """
    comparable = cell.greedy_seconds > 0 and SHARED_PREFIX not in cell.steps
    return 100 * seconds / cell.greedy_seconds if comparable else math.nan


def _tests(cell: Cell, columns: Mapping[str, _Column], reference: str, paired: PairedTests) -> list[dict[str, Any]]:
    """The tests of a cell: column by column, and those of a column metric by metric."""
    order = [(name, metric) for name in columns for metric in METRICS]
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {place: [] for place in order}
    for metric, against, family, other in _families(columns, reference):
        drawn = {name: own.drawn[metric] for name, own in columns.items() if metric in own.drawn}
        for name, tested in paired.against(metric, drawn, family, other).items():
            own = columns[name]
            place = (own.table, cell.dataset, own.setting, cell.model, METRICS[metric], against)
            rows[name, metric].append(dict(zip(TEST, place, strict=False)) | asdict(tested))
    return [row for place in order for row in rows[place]]


def _families(columns: Mapping[str, _Column], reference: str) -> Iterator[tuple[str, str, list[str], str]]:
    """The families of tests: the metric, the reference as the table names it, the members, and the reference itself."""

    def of(*tables: str) -> list[str]:
        return [name for name, own in columns.items() if own.table in tables]

    compared = of("comparison")
    for metric in METRICS:
        values = {name: columns[name].drawn[metric].value for name in compared}
        defined = [name for name in compared if not math.isnan(values[name])]
        best = max(defined, key=lambda name: (values[name], name == reference), default=None)
        yield metric, "STC", compared, STC
        yield metric, "STC", of("ablation"), STC
        if best is not None:
            yield metric, f"best: {title_of(best)}", compared, best
        if reference != STC:
            yield metric, title_of(reference), compared, reference
    yield "auroc", "STC", of(*STUDIES.values()), STC
    yield "auroc", "STC", of("control"), STC
    yield "auroc", title_of(BASELINE), of("control"), BASELINE


def _counted(cell: Cell, judge: str, columns: Mapping[str, _Column]) -> MeasuredCell:
    """The counts of a cell whose columns have been measured."""
    names = in_order(cell.uncertainty)
    undefined = {name: np.isnan(values) | (values == np.inf) for name, values in cell.uncertainty.items()}
    return MeasuredCell(
        model=cell.model,
        dataset=cell.dataset,
        n=len(cell.question_ids),
        counts=tally(cell.judgments[judge]),
        greedy_seconds=cell.greedy_seconds,
        seconds={name: cell.seconds.get(name, math.nan) for name in names},
        undefined={name: int(undefined[name].sum()) for name in names},
        reason=next((reason for name in names if (reason := columns[name].drawn["auroc"].reason)), ""),
        agreements=tuple(agreement(cell.judgments)),
        verdicts={name: tally(values) for name, values in cell.judgments.items()},
    )


def by_value(value: str) -> tuple[float, str]:
    """The key by which values of a setting are sorted: numbers ascending, then words by the alphabet."""
    return (float(value), "") if value.isdigit() else (math.inf, value)
