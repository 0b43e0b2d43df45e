"""`semtoken bench report`: tables and figures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from semtoken.cli.console import counting, out, plain_table, say, tell
from semtoken.cli.parameters import JudgeNamed, OwnScores, TestedCalibrator, ToFolder
from semtoken.cli.settings import Count
from semtoken.errors import InvalidInputError
from semtoken.support.extras import only_errors

if TYPE_CHECKING:
    from semtoken.bench.report.content import BenchReport

NARROW = ("Right", "No verdict", "Greedy, s", "Place")
"""Columns of the overview that a terminal leaves out."""


def report(
    run: Path,
    /,
    *,
    output: ToFolder[Path | None] = None,
    judge: JudgeNamed[str | None] = None,
    n_resamples: Count = 1000,
    no_texts: bool = False,
    scores: OwnScores = None,
    reference: Annotated[str | None, Parameter(metavar="METHOD")] = None,
    calibrator: TestedCalibrator = None,
) -> None:
    """Make tables and figures of a run.

    How well each method tells wrong answers from right ones, and what it costs: AUROC and PRR with 95% intervals and
    paired tests, risk and coverage, calibration, overheads, ablations. Writes a page (index.html) that needs nothing
    else, and the same as Markdown, LaTeX, CSV, PNG and SVG. A former report is replaced when the new one is whole.

    Example: `semtoken bench report runs/almanac`

    Parameters
    ----------
    run
        The run's folder, or the answers.parquet of a report.
    output
        Folder of the report. Default: RUN/report.
    judge
        Whose verdicts count. Default: the run's primary judge.
    n_resamples
        Resamples of the bootstrap, and exchanges of the tests.
    no_texts
        Omit questions and answers.
    reference
        Method to report on, or a column of --scores. Default: confidence.
    """
    from semtoken.bench.further_scores import with_scores
    from semtoken.bench.read_results import collect
    from semtoken.bench.report.content import build_report
    from semtoken.bench.report.writing import check_replaceable, write_report
    from semtoken.guarantees import Calibrator
    from semtoken.methods.outside import is_outside
    from semtoken.support.files.outputs import check_not_inside

    if reference is not None and is_outside(reference):
        reference = reference.rpartition(":")[2]  # as `bench run --methods` was given it
    if run.is_file() and output is None:
        raise InvalidInputError("Name the folder of the new report with --output.")
    target = output or run / "report"
    check_replaceable(target)
    check_not_inside(target, [run, *filter(None, (scores, calibrator))])
    loaded = None if calibrator is None else Calibrator.load(calibrator)
    results = collect(run)
    if scores is not None:
        results = with_scores(results, scores)
    # the tables count what is undefined
    with only_errors("semtoken.metrics"), counting("measuring", None) as progress:
        made = build_report(
            results,
            judge=judge,
            n_resamples=n_resamples,
            reference=reference,
            texts=not no_texts,
            calibrator=loaded,
            progress=progress,
        )
    page = write_report(made, target)
    _show(made)
    tell(f"The report is in {page.parent}: open {page.name}.")


def _show(made: BenchReport) -> None:
    """The main result and the overview."""
    from rich.text import Text

    for finding in made.findings:
        say(f"- {finding}")
    overview = next(table for table in made.tables if table.name == "overview")
    wanted = [i for i, name in enumerate(overview.header) if name not in NARROW]
    numbers = overview.header[overview.left :]
    shown = plain_table(*(overview.header[i] for i in wanted), numbers=numbers, gap=1)
    for _, rows in overview.groups:
        for row in rows:
            shown.add_row(*(Text(row[i].text) for i in wanted))
    out().print(shown)
