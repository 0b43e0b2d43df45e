"""A report: sentences, tables and figures of a run in reading order, and the folder that it is written to."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from semtoken.bench.judges import Agreement
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
from semtoken.bench.report.plots import Plot, plots
from semtoken.bench.report.probabilities import (
    CellProbabilities,
    cell_probabilities,
    curve_rows,
    probabilities_in_words,
    probability_rows,
    probability_table,
    reliability_rows,
    risk_in_words,
    risk_table,
)
from semtoken.bench.report.table import Table, as_html, latex_document, latex_table, markdown_escaped, markdown_table
from semtoken.bench.results import FILE, ClusteringRecord, RunResults, answers_table
from semtoken.errors import InvalidInputError
from semtoken.guarantees.calibrator import Calibrator
from semtoken.support.extras import require
from semtoken.support.files.record_files import no_formula
from semtoken.support.files.safe_files import replacing_folder
from semtoken.support.text import card, folded, heading, note

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
    """What came out, in one sentence for somebody who is new to it."""
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
        csv=dict(_csv_files(made, results.clusterings, probabilities, shown)),
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


def _csv_files(
    made: Measured,
    clusterings: Sequence[ClusteringRecord],
    probabilities: Sequence[CellProbabilities],
    shown: Sequence[ExtremeAnswer],
) -> Iterator[tuple[str, str]]:
    """The figures, tests and counts of a run as CSV texts, each with the name of its file without the ending."""
    yield "figures", csv_text(made.figures)
    yield "tests", csv_text(made.tests)
    counted = [
        {
            "model": cell.model,
            "dataset": cell.dataset,
            "questions": cell.n,
            "correct": cell.counts.correct,
            "incorrect": cell.counts.incorrect,
            "no_verdict": cell.counts.missing,
            "greedy_seconds": cell.greedy_seconds,
            "method": name,
            "undefined": undefined,
        }
        for cell in made.cells
        for name, undefined in cell.undefined.items()
    ]
    yield "cells", csv_text(counted)
    pairs = [
        {"model": cell.model, "dataset": cell.dataset, **asdict(pair)}
        for cell in made.cells
        for pair in cell.agreements
    ]
    yield "judges", csv_text(pairs, ["model", "dataset", *(field.name for field in fields(Agreement))])
    settings = ("algorithm", "linkage", "metric", "embedding", "n_clusters")
    further: dict[str, Iterable[Mapping[str, Any]]] = {
        "clusterings": (
            {"model": own.model, "clustering": own.variant, "tokens": own.n_tokens, "seconds": own.seconds}
            | {name: own.settings.get(name) for name in settings}
            for own in clusterings
        ),
        "clusters": (
            {"model": own.model, "cluster": number, "token": token}
            for own in clusterings
            for number, cluster in enumerate(own.examples, start=1)  # one token of an example a row
            for token in cluster
        ),
        "probabilities": probability_rows(probabilities),
        "reliability": reliability_rows(probabilities),
        "risk_coverage": curve_rows(probabilities),
        "extreme_answers": map(asdict, shown),
    }
    for name, rows in further.items():
        if listed := list(rows):
            yield name, csv_text(listed)


def csv_text(rows: DataFrame | Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Write rows as CSV: numbers in full precision, missing values empty, and no cell that is a formula."""
    pandas = require("pandas", extra="bench")
    # As objects: a column of whole numbers with a gap would become floats, and 3 be written as 3.0.
    made = pandas.DataFrame(rows, columns=columns, dtype=object)
    text: str = made.map(_value).to_csv(index=False, lineterminator="\n")
    return text


def _value(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return no_formula(value) if isinstance(value, str) else value  # names and tokens are other people's text


FORMAT = "semtoken.report"
INDEX, PAGE, MARKDOWN = "report.json", "index.html", "report.md"


def write_report(report: BenchReport, folder: str | Path) -> Path:
    """Write all files of a report into a folder, as far as `check_replaceable` allows; returns the page."""
    target = Path(folder).expanduser().resolve()
    check_replaceable(target)
    with replacing_folder(target) as new:
        files = dict(_files(report))
        for name, content in files.items():
            path = new / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        index = {"format": FORMAT, "title": report.title, "files": sorted(files)}
        (new / INDEX).write_text(_json(index) + "\n", encoding="utf-8")
    return target / PAGE


def check_replaceable(target: Path) -> None:
    """Raise `InvalidInputError` if a report there would take the place of anything but a former report."""
    if target.exists() and not target.is_dir():
        raise InvalidInputError(f"{target} is a file; give the name of a folder for the report.")
    # The index of a former report lists its files: whatever else is there, somebody put there.
    held = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    others = sorted(held - _former_files(target) - {INDEX})
    if others:
        raise InvalidInputError(
            f"{target} holds other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}), which would be "
            "lost. Choose a new or empty folder with --output."
        )


def _former_files(target: Path) -> set[str]:
    """Files of the report that a folder holds; none if it holds none."""
    try:
        index = json.loads((target / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return set()
    known = isinstance(index, dict) and index.get("format") == FORMAT and isinstance(index.get("files"), list)
    return {str(name) for name in index["files"]} if known else set()


def _files(report: BenchReport) -> Iterator[tuple[str, bytes]]:
    """Name and content of each."""
    yield PAGE, html_page(report).encode()
    yield MARKDOWN, markdown_text(report).encode()
    for name, content in report.csv.items():
        yield f"csv/{name}.csv", content.encode()
    if report.answers:
        yield FILE, report.answers
    for table in report.tables:
        yield f"latex/{table.name}.tex", latex_table(table).encode()
    yield "latex/all.tex", latex_document(report.tables, report.title).encode()
    for plot in report.plots:
        yield f"figures/{plot.name}.png", plot.png
        yield f"figures/{plot.name}.svg", plot.svg


def markdown_text(report: BenchReport) -> str:
    """The whole report as Markdown; figures are links to the files beside it."""
    parts = [
        f"# {markdown_escaped(report.title)}",
        f"**{markdown_escaped(report.opening)}**",
        markdown_escaped(report.subtitle),
    ]
    parts += [part for section in report.sections for part in _markdown_parts(section)]
    facts = (("Settings", report.settings), ("Manifest", report.manifest))
    parts += [f"## {name}\n\n{indent(_json(content), ' ' * 4)}" for name, content in facts]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _markdown_parts(section: Section) -> Iterator[str]:
    yield f"## {markdown_escaped(section.title)}"
    if section.lines:
        yield "\n".join(f"- {markdown_escaped(line)}" for line in section.lines)
    yield from map(markdown_table, section.tables)
    for plot in section.plots:
        yield f"![{markdown_escaped(plot.title)}](figures/{plot.name}.png)"
        yield markdown_escaped(plot.caption)
    yield from map(markdown_table, section.folded)


def html_page(report: BenchReport) -> str:
    """The whole report as one page that asks for nothing else: styles and figures are in it, all text is escaped."""
    jinja2 = require("jinja2", extra="bench")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("semtoken.bench.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # A misspelled name in the template raises, in place of an empty spot on the page.
        undefined=jinja2.StrictUndefined,
    )
    # Pictures are inside the page, so that it can be sent as one file.
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode("ascii")
    page: str = environment.get_template("page.html.j2").render(
        report=report, facts=(("Settings", _json(report.settings)), ("Manifest", _json(report.manifest)))
    )
    return page


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, default=str)
