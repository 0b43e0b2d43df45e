"""A report: sentences, tables and figures of a run in reading order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semtoken.bench.report.answers import CellCalibrator, answer_tables, check_cells, extreme_answers, guarantee_of
from semtoken.bench.report.comparison import (
    ablation,
    ablation_tests,
    comparison,
    controls,
    datasets_of,
    examples,
    method_tests,
    overhead,
    parts_in_words,
    precomputation,
    sensitivity,
    sensitivity_tests,
)
from semtoken.bench.report.csv_files import csv_files
from semtoken.bench.report.drawing import Plot
from semtoken.bench.report.measure import (
    ABLATIONS,
    METRICS,
    PERCENT,
    SECONDS,
    STC,
    Measured,
    Progress,
    chosen_judge,
    chosen_reference,
    measure,
    spoken,
)
from semtoken.bench.report.overview import judges, main_result, notes, opening, overview, properties
from semtoken.bench.report.plots import plots
from semtoken.bench.report.probabilities import (
    Probabilities,
    probabilities_in_words,
    probabilities_of,
    probability_table,
    risk_in_words,
    risk_table,
)
from semtoken.bench.report.probability_plots import probability_plots
from semtoken.bench.report.table import Table, as_html
from semtoken.bench.results import ClusteringRecord, RunResults, answers_table
from semtoken.guarantees.calibrator import Calibrator
from semtoken.support.extras import require
from semtoken.support.html_elements import card, folded, heading, note

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Section:
    """One part of the report, with its heading, sentences, tables and plots."""

    name: str
    """The name of its anchor on the page."""
    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    folded: tuple[Table, ...] = ()
    """Long tables that the page shows when asked to."""


@dataclass(frozen=True, repr=False)
class BenchReport:
    """The whole report of a run, before it is written into files."""

    title: str
    subtitle: str
    opening: str
    """The result in one sentence, for somebody who is new to it."""
    sections: tuple[Section, ...]
    settings: Mapping[str, Any]
    manifest: Mapping[str, Any]
    csv: Mapping[str, str]
    """Name of a file without its suffix -> content."""
    measured: Measured
    """The figures and tests that everything is made of."""
    answers: bytes = b""
    """All answers as a Parquet file; `semtoken.bench.results` says what its columns are."""

    def __repr__(self) -> str:
        return f"BenchReport({self.title}: {self.subtitle})"

    def _repr_html_(self) -> str:
        opening, *others = [section for section in self.sections if section.lines or section.tables]
        return card(
            heading(self.title),
            note(self.subtitle),
            *map(note, opening.lines),
            *map(as_html, opening.tables),
            *(folded(other.title, *map(note, other.lines), *map(as_html, other.tables)) for other in others),
        )

    @property
    def tables(self) -> list[Table]:
        """The tables of all sections, in order."""
        return [table for section in self.sections for table in (*section.tables, *section.folded)]

    @property
    def findings(self) -> list[str]:
        """The sentences that say what came of a run: its main result, the calibrator, the controls."""
        named = ("main_result", "calibrator", "controls")
        return [line for section in self.sections if section.name in named for line in section.lines]

    @property
    def plots(self) -> list[Plot]:
        """The plots of all sections, in order."""
        return [plot for section in self.sections for plot in section.plots]


def build_report(
    results: RunResults,
    *,
    judge: str | None = None,
    n_resamples: int = 1000,
    reference: str | None = None,
    texts: bool = True,
    calibrator: Calibrator | None = None,
    progress: Progress | None = None,
) -> BenchReport:
    """Measure a run and put it into tables, figures and sentences.

    The reference is the method that the report is about, which all others are set against; by default the confidence
    where the run has it, else STC. Without `texts` no questions and answers are shown or kept in the table of all
    answers; with a calibrator the report says how its probabilities and its guarantee hold on these answers. `progress`
    is called with (uncertainties measured, of how many).

    `InvalidInputError` if nothing of the run is complete, or it holds no verdicts of the judge or no scores of the
    reference; `CalibratorMismatchError` if the calibrator was fitted on scores of other clusters, rules or kinds of
    probabilities.
    """
    used = chosen_judge(results, judge)
    applied, refused = ([], []) if calibrator is None else check_cells(results, used, calibrator)
    about = reference or chosen_reference(results, used)
    made = measure(results, used, n_resamples=n_resamples, reference=about, progress=progress)
    probabilities = probabilities_of(results.cells, used, n_resamples, about)
    extremes = extreme_answers(results.cells if texts else (), used, probabilities, applied)
    require("matplotlib", extra="bench")
    drawn = [*plots(made), *probability_plots(probabilities)]
    sections = [
        *_on_methods(made, used, drawn),
        *_on_calibrator(applied, refused),
        *_on_decisions(probabilities, extremes, drawn),
        *_on_parts(made, results.clusterings, drawn),
        Section("judges", "Judges", tables=judges(made)),
        Section("notes", "Notes and caveats", tuple(notes(results, made, used, n_resamples))),
    ]
    return BenchReport(
        title=f"Benchmark run {results.path.resolve().name}",
        subtitle=_subtitle(made, used),
        opening=opening(made),
        sections=tuple(sections),
        settings=results.settings,
        manifest=results.manifest,
        csv=dict(csv_files(made, results.clusterings, probabilities, extremes)),
        measured=made,
        answers=answers_table(results, texts=texts),
    )


def _on_methods(made: Measured, judge: str, drawn: Sequence[Plot]) -> Iterator[Section]:
    """The result, and all methods by each metric."""
    metrics = METRICS.values()
    yield Section(
        "main_result",
        "Main result",
        tuple(main_result(made)),
        (overview(made, judge),),
        _plots_of("best_methods", drawn),
    )
    yield Section(
        "methods",
        "Methods",
        tables=tuple(comparison(made, name) for name in metrics),
        folded=(*(method_tests(made, name) for name in metrics), properties(made)),
    )
    if made.reference != STC:  # beside STC they stand in the section on methods
        tables = tuple(method_tests(made, name, made.reference) for name in metrics)
        yield Section("reference", f"All methods next to {spoken(made.reference)}", tables=tables)


def _on_calibrator(applied: Sequence[CellCalibrator], refused: Sequence[str]) -> Iterator[Section]:
    """The probabilities and the guarantee of the calibrator in use, if there is one."""
    if applied:
        lines = (guarantee_of(applied), *(line for tried in applied for line in tried.lines), *refused)
        yield Section("calibrator", "The calibrator on these answers", lines)


def _on_decisions(probabilities: Probabilities, extremes: DataFrame, drawn: Sequence[Plot]) -> Iterator[Section]:
    """The risks of answering, probabilities of being right, and the answers that are furthest from them."""
    if probabilities.methods.empty:
        return
    yield Section(
        "decisions",
        "Risk and coverage",
        tuple(risk_in_words(probabilities)),
        (risk_table(probabilities),),
        _plots_of("risk_coverage", drawn),
    )
    yield Section(
        "probabilities",
        "Calibration",
        tuple(probabilities_in_words(probabilities)),
        _there(probability_table(probabilities)),
        _plots_of("reliability", drawn),
    )
    if len(extremes):
        yield Section("answers", "Answers", tables=answer_tables(extremes))


def _on_parts(made: Measured, clusterings: Sequence[ClusteringRecord], drawn: Sequence[Plot]) -> Iterator[Section]:
    """The cost of the methods, and the worth of each part and each clustering of STC, as far as the run has them."""
    yield Section(
        "overhead",
        "Overhead",
        tables=(overhead(made, PERCENT), overhead(made, SECONDS)),
        plots=_plots_of("overhead", drawn),
    )
    if any(name in cell.seconds for cell in made.cells for name in ABLATIONS):
        tables = tuple(ablation(made, name) for name in METRICS.values())
        yield Section("ablation", "Ablation", tables=tables, folded=(ablation_tests(made),))
    if tables := _there(controls(made)):
        yield Section("controls", "What each part of the score is worth", tuple(parts_in_words(made)), tables)
    if tables := _there(sensitivity(made, clusterings)):
        folded = _there(sensitivity_tests(made))
        yield Section("sensitivity", "Sensitivity", (), tables, _plots_of("sensitivity", drawn), folded)
    if tables := _there(precomputation(clusterings), examples(clusterings)):
        yield Section("clusters", "Clusters", tables=tables)


def _there(*tables: Table | None) -> tuple[Table, ...]:
    """The tables for which the run has figures."""
    return tuple(table for table in tables if table is not None)


def _plots_of(kind: str, drawn: Sequence[Plot]) -> tuple[Plot, ...]:
    """The plots of a section: their names begin with its kind."""
    return tuple(plot for plot in drawn if plot.name.startswith(kind))


def _subtitle(made: Measured, judge: str) -> str:
    methods = {name for cell in made.cells for name in cell.seconds if name not in ABLATIONS}
    models = dict.fromkeys(cell.model for cell in made.cells)
    return (
        f"{', '.join(models)} on {', '.join(datasets_of(made))}: {sum(cell.n for cell in made.cells):,} answers, "
        f"{len(methods)} methods, judged by {judge}."
    )
