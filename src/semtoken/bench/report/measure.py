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
from semtoken.bench.report.paired import SEED, PairedTest, PairedTests
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
    """Whether a variant such as "linkage=complete" is the clustering that the methods use, under another name."""
    return variant in {f"{name}={value}" for name, value in settings_of(model, clusterings).items()}


def chosen_judge(results: RunResults, judge: str | None) -> str:
    """The judge whose verdicts the figures use: the one asked for, or the run's; `InvalidInputError` if it gave
    none.
    """
    names = list(dict.fromkeys(name for cell in results.cells for name in cell.judgements))
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
    cells = [cell for cell in results.cells if judge in cell.judgements and cell.uncertainty]
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
    cells = [cell for cell in results.cells if judge in cell.judgements and cell.uncertainty]
    if not cells:
        raise _incomplete(results)
    if reference is not None and not any(reference in cell.uncertainty for cell in cells):
        known = dict.fromkeys(name for cell in cells for name in cell.uncertainty)
        hint = did_you_mean(reference, known)
        raise InvalidInputError(
            f"{results.path} holds no scores of {reference!r}{hint}; there are those of {', '.join(known)}."
        )
    reference = reference or chosen_reference(results, judge)
    main = {cell.model: settings_of(cell.model, results.clusterings) for cell in cells}
    measuring = [_Measuring(cell, judge, n_resamples, reference, main[cell.model]) for cell in cells]
    total, done = sum(one.total for one in measuring), 0
    for one in measuring:
        for _ in one.steps():
            done += 1
            if progress is not None:
                progress(done, total)
    rows = [
        row for part in ("methods", "ablations", "controls", "studies") for one in measuring for row in one.rows[part]
    ]
    for own in results.clusterings:
        if own.variant == MAIN and own.seconds is not None:
            setting = f"{own.settings.get('algorithm', 'unknown')} clustering"
            rows.append(_figure(("pre-computation", "", setting, own.model, SECONDS), own.seconds))
    frame = require("pandas", extra="bench").DataFrame
    return Measured(
        cells=tuple(one.counted() for one in measuring),
        figures=frame(rows, columns=list(FIGURE)),
        tests=frame([row for one in measuring for row in one.tests], columns=list(TEST)),
        reference=reference,
    )


def _figure(place: tuple[str, ...], value: Estimate | float) -> dict[str, Any]:
    """A row of the table of figures; `place` as in `PLACE`."""
    numbers = (value.value, value.low, value.high) if isinstance(value, Estimate) else (value, math.nan, math.nan)
    return dict(zip(FIGURE, (*place, *numbers), strict=True))


class _Measuring:
    """The rows of one model on one data set, made step by step."""

    def __init__(self, cell: Cell, judge: str, n_resamples: int, reference: str, main: Mapping[str, Any]) -> None:
        self.cell, self.reference, self.main = cell, reference, main
        self.correct, self.n_resamples = cell.judgements[judge], n_resamples
        self.paired = PairedTests(self.correct, n_resamples)
        # A variant with the main clustering's own value is that clustering: it would be tested against itself.
        own = {f"{name}={value}" for name, value in main.items()}
        self.variants = {name: values for name, values in cell.variants.items() if name not in own}
        self.names = in_order(cell.uncertainty)
        self.drawn: dict[str, dict[str, ResampledMetric]] = {metric: {} for metric in METRICS}
        self.rows: dict[str, Rows] = {"methods": [], "ablations": [], "controls": [], "studies": []}
        self.tests: Rows = []
        with_controls = {STC, BASELINE} <= cell.uncertainty.keys()
        self.controls = [name for name in CONTROLS if name in cell.controls] if with_controls else []

    @property
    def total(self) -> int:
        """How many uncertainties there are to measure."""
        return len(self.names) + len(self.variants) + len(self.controls)

    def steps(self) -> Iterator[None]:
        """Measure one uncertainty after another."""
        for name in self.names:
            for metric in METRICS:
                self.drawn[metric][name] = self._resample(metric, self.cell.uncertainty[name])
            yield
        self._methods()
        yield from self._variants()
        yield from self._controls()

    def _resample(self, metric: str, uncertainty: FloatArray) -> ResampledMetric:
        return resample(metric, uncertainty, self.correct, n_resamples=self.n_resamples, seed=SEED)

    def _figure(self, part: str, table: str, setting: str, metric: str, value: Estimate | float) -> None:
        self.rows[part].append(_figure((table, self.cell.dataset, setting, self.cell.model, metric), value))

    def _test(self, table: str, setting: str, metric: str, against: str, tested: PairedTest) -> None:
        place = (table, self.cell.dataset, setting, self.cell.model, metric, against)
        self.tests.append(dict(zip(TEST, place, strict=False)) | asdict(tested))

    def _methods(self) -> None:
        """The figures of methods and ablations, and their tests."""
        found = self._tests_of_methods()
        ablated = [name for name in (STC, *ABLATIONS, BASELINE) if name in self.names]
        for name in self.names:
            table = "ablation" if name in ABLATIONS else "comparison"
            for metric, shown in METRICS.items():
                if table == "comparison":
                    self._figure("methods", table, title_of(name), shown, self.drawn[metric][name].estimate())
                for against, tested in found[name, metric]:
                    self._test(table, title_of(name), shown, against, tested)
            if table == "comparison":
                seconds = self.cell.seconds.get(name, math.nan)
                self._figure("methods", table, title_of(name), SECONDS, seconds)
                self._figure("methods", table, title_of(name), PERCENT, self._percent(seconds))
        for name in ablated if len(ablated) > 1 else ():
            for metric, shown in METRICS.items():
                self._figure("ablations", "ablation", title_of(name), shown, self.drawn[metric][name].estimate())

    def _percent(self, seconds: float) -> float:
        """Each method's seconds in percent of the greedy generation.

        NaN also where the beginning of all prompts was read apart and is not in those seconds.
        """
        comparable = self.cell.greedy_seconds > 0 and SHARED_PREFIX not in self.cell.steps
        return 100 * seconds / self.cell.greedy_seconds if comparable else math.nan

    def _tests_of_methods(self) -> dict[tuple[str, str], list[tuple[str, PairedTest]]]:
        """Name and metric -> what it was tested against, and what came of it."""
        found: dict[tuple[str, str], list[tuple[str, PairedTest]]] = {
            (name, metric): [] for name in self.names for metric in METRICS
        }
        compared = [name for name in self.names if name not in ABLATIONS]
        ablated = [name for name in self.names if name in ABLATIONS]
        for metric, drawn in self.drawn.items():
            defined = [name for name in compared if not math.isnan(drawn[name].value)]
            best = max(defined, key=lambda name: (drawn[name].value, name == self.reference), default=None)
            families = [("STC", compared, STC), ("STC", ablated, STC)]
            families += [] if best is None else [(f"best: {title_of(best)}", compared, best)]
            families += [] if self.reference == STC else [(title_of(self.reference), compared, self.reference)]
            for against, family, other in families:
                tested = self.paired.against(metric, drawn, self.cell.uncertainty, family, other)
                for name, one in tested.items():
                    found[name, metric].append((against, one))
        return found

    def _variants(self) -> Iterator[None]:
        """The sensitivity study: every setting that was varied has the main clustering among its values."""
        drawn = {}
        for name, values in self.variants.items():
            drawn[name] = self._resample("auroc", values)
            yield
        stc = self.drawn["auroc"].get(STC)
        everything = drawn if stc is None else {**drawn, STC: stc}
        uncertainty = {**self.cell.uncertainty, **self.variants}
        for name, tested in self.paired.against("auroc", everything, uncertainty, list(drawn), STC).items():
            setting, _, value = name.partition("=")
            self._test(STUDIES.get(setting, setting), value, "AUROC", "STC", tested)
        for setting, table in STUDIES.items():
            points = {name.partition("=")[2]: one for name, one in drawn.items() if name.partition("=")[0] == setting}
            if points and stc is not None and setting in self.main:
                points[str(self.main[setting])] = stc
            for value in sorted(points, key=by_value):
                self._figure("studies", table, value, "AUROC", points[value].estimate())

    def _controls(self) -> Iterator[None]:
        """Every control beside STC and beside sequence probability."""
        means, minus_stc, minus_baseline = {}, {}, {}
        auroc = self.drawn["auroc"]
        for name in self.controls:
            repeats = [self._resample("auroc", repeat) for repeat in self.cell.controls[name]]
            own = f"{PREFIX}{name}"
            order = np.argsort([repeat.value for repeat in repeats], kind="stable")
            median = order[(len(repeats) - 1) // 2]  # the lower one; its p stands for those of all
            values = {**self.cell.uncertainty, own: self.cell.controls[name][median]}
            means[name] = _mean(repeats)
            minus_stc[name] = means[name].minus(auroc[STC], p_value=self.paired.p("auroc", own, STC, values))
            p = self.paired.p("auroc", own, BASELINE, values)
            minus_baseline[name] = means[name].minus(auroc[BASELINE], p_value=p)
            yield
        to_stc, to_baseline = self.paired.family(minus_stc), self.paired.family(minus_baseline)
        for name, mean in means.items():
            title = CONTROLS[name].title
            self._figure("controls", "control", title, "AUROC", mean.estimate())
            self._test("control", title, "AUROC", "STC", to_stc[name])
            self._test("control", title, "AUROC", title_of(BASELINE), to_baseline[name])

    def counted(self) -> MeasuredCell:
        """The counts of the cell, to be asked for after the steps."""
        cell = self.cell
        return MeasuredCell(
            model=cell.model,
            dataset=cell.dataset,
            n=len(cell.question_ids),
            counts=tally(self.correct),
            greedy_seconds=cell.greedy_seconds,
            seconds={name: cell.seconds.get(name, math.nan) for name in self.names},
            undefined={
                name: int((np.isnan(values := cell.uncertainty[name]) | (values == np.inf)).sum())
                for name in self.names
            },
            reason=next((one.reason for one in self.drawn["auroc"].values() if one.reason), ""),
            agreements=tuple(agreement(cell.judgements)),
            verdicts={name: tally(values) for name, values in cell.judgements.items()},
        )


def by_value(value: str) -> tuple[float, str]:
    """The key by which values of a setting are sorted: numbers ascending, then words by the alphabet."""
    return (float(value), "") if value.isdigit() else (math.inf, value)


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
