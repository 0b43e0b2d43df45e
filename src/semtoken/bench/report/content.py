"""A report: sentences, tables and figures of a run in reading order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semtoken.bench.report.answers import (
    ExtremeAnswer,
    answer_tables,
    check_cells,
    extreme_answers,
    guarantee_of,
)
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
    CellProbabilities,
    cell_probabilities,
    probabilities_in_words,
    probability_table,
    risk_in_words,
    risk_table,
)
from semtoken.bench.report.table import Table, as_html
from semtoken.bench.results import RunResults, answers_table
from semtoken.guarantees.calibrator import Calibrator
from semtoken.support.html_elements import card, folded, heading, note

if TYPE_CHECKING:
    pass


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
    probabilities = cell_probabilities(results.cells, used, n_resamples, about)
    shown = extreme_answers(results.cells, used, probabilities, applied) if texts else []
    drawn = plots(made, probabilities)
    sections = [*_sections(results, made, used, drawn)]
    further = []
    if about != STC:  # beside STC they stand in the section on methods
        tables = tuple(method_tests(made, name, about) for name in METRICS.values())
        further.append(Section("reference", f"All methods next to {spoken(about)}", tables=tables))
    if applied:
        lines = (guarantee_of(applied), *(line for tried in applied for line in tried.lines), *refused)
        further.append(Section("calibrator", "The calibrator on these answers", lines))
    # Behind the section on methods.
    place = next(i for i, section in enumerate(sections, start=1) if section.name == "methods")
    sections[place:place] = [*further, *_decision_sections(probabilities, shown, drawn)]
    sections.append(Section("notes", "Notes and caveats", tuple(notes(results, made, used, n_resamples))))
    return BenchReport(
        title=f"Benchmark run {results.path.resolve().name}",
        subtitle=_subtitle(made, used),
        opening=opening(made),
        sections=tuple(sections),
        settings=results.settings,
        manifest=results.manifest,
        csv=dict(csv_files(made, results.clusterings, probabilities, shown)),
        measured=made,
        answers=answers_table(results, texts=texts),
    )


def _sections(results: RunResults, made: Measured, judge: str, drawn: Sequence[Plot]) -> Iterator[Section]:
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
    yield Section(
        "overhead",
        "Overhead",
        tables=(overhead(made, PERCENT), overhead(made, SECONDS)),
        plots=_plots_of("overhead", drawn),
    )
    if any(name in cell.seconds for cell in made.cells for name in ABLATIONS):
        tables = tuple(ablation(made, name) for name in metrics)
        yield Section("ablation", "Ablation", tables=tables, folded=(ablation_tests(made),))
    if (beside := controls(made)) is not None:
        yield Section("controls", "What each part of the score is worth", tuple(parts_in_words(made)), (beside,))
    varied, varied_tests = sensitivity(made, results.clusterings), sensitivity_tests(made)
    if varied is not None:
        folded = () if varied_tests is None else (varied_tests,)
        yield Section("sensitivity", "Sensitivity", (), (varied,), _plots_of("sensitivity", drawn), folded)
    clusters = tuple(t for t in (precomputation(results.clusterings), examples(results.clusterings)) if t is not None)
    if clusters:
        yield Section("clusters", "Clusters", tables=clusters)
    yield Section("judges", "Judges", tables=judges(made))


def _plots_of(kind: str, drawn: Sequence[Plot]) -> tuple[Plot, ...]:
    """The plots of a section: their names begin with its kind."""
    return tuple(plot for plot in drawn if plot.name.startswith(kind))


def _decision_sections(
    probabilities: Sequence[CellProbabilities], shown: Sequence[ExtremeAnswer], drawn: Sequence[Plot]
) -> Iterator[Section]:
    if not probabilities:
        return
    lines = tuple(risk_in_words(probabilities))
    yield Section(
        "decisions", "Risk and coverage", lines, (risk_table(probabilities),), _plots_of("risk_coverage", drawn)
    )
    table = probability_table(probabilities)
    tables = () if table is None else (table,)
    yield Section(
        "probabilities",
        "Calibration",
        tuple(probabilities_in_words(probabilities)),
        tables,
        _plots_of("reliability", drawn),
    )
    if shown:
        yield Section("answers", "Answers", tables=answer_tables(shown))


def _subtitle(made: Measured, judge: str) -> str:
    methods = {name for cell in made.cells for name in cell.seconds if name not in ABLATIONS}
    models = dict.fromkeys(cell.model for cell in made.cells)
    return (
        f"{', '.join(models)} on {', '.join(datasets_of(made))}: {sum(cell.n for cell in made.cells):,} answers, "
        f"{len(methods)} methods, judged by {judge}."
    )
