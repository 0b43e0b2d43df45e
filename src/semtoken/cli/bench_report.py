"""`semtoken bench report`: the tables and figures of a run, as a folder and a page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from semtoken.cli.calibration_options import CalibratorOption, calibrator_from
from semtoken.cli.console import counting, out, tell
from semtoken.errors import InvalidInput

if TYPE_CHECKING:
    from semtoken.bench.report.content import BenchReport

OVERVIEW = ("Model", "Data set", "Questions", "Accuracy", "Best AUROC", "AUROC of STC", "Overhead, %")
"""Columns that fit a terminal."""


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, or the answers.parquet of a report.")],
    out_folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the report goes. Default: RUN/report.", file_okay=False)
    ] = None,
    against: Annotated[
        Literal["paper"] | None, typer.Option(help="'paper': its published figures beside the measured ones.")
    ] = None,
    judge: Annotated[
        str | None, typer.Option("--judge", "-j", help="Whose verdicts count. Default: the run's primary judge.")
    ] = None,
    n_resamples: Annotated[
        int, typer.Option(min=1, help="Resamples of the bootstrap, and exchanges of the tests.")
    ] = 1000,
    texts: Annotated[
        bool,
        typer.Option(help="Show questions and answers, and keep them in answers.parquet beside every answer's scores."),
    ] = True,
    calibrator: CalibratorOption = None,
) -> None:
    """Make tables and figures of a run: how well each method tells wrong answers from right ones, and what it costs.

    Writes a page (index.html) that needs nothing else, and the same as Markdown, LaTeX, CSV, PNG and SVG: AUROC and
    PRR with 95 % intervals and paired tests, risk and coverage, calibration, the surest wrong answers, overheads,
    ablations, the sensitivity study, clusters, judges. With --calibrator it says how its chances and its promise hold
    on these answers. A run that is not finished gives a report of what is complete. A former report is replaced when
    the new one is whole.
    The scores of every answer are kept in answers.parquet, from which the same report can be made again.

    For example:

    - `semtoken bench report runs/almanac`
    - `semtoken bench report runs/qwen --against paper --judge llm`
    - `semtoken bench report runs/qwen --calibrator my-calibrator`
    - `semtoken bench report runs/qwen/report/answers.parquet --out again`
    """
    from semtoken.bench.read_results import collect
    from semtoken.bench.report.content import build_report
    from semtoken.bench.report.writing import check_replaceable, write_report

    if run.is_file() and out_folder is None:
        raise InvalidInput("Name the folder of the new report with --out.")
    target = out_folder or run / "report"
    check_replaceable(target)
    loaded = calibrator_from(calibrator)
    results = collect(run)
    with quiet_metrics(), ExitStack() as stack:
        shown: list[Callable[[int], None]] = []

        def progress(done: int, total: int) -> None:
            if not shown:
                shown.append(stack.enter_context(counting("measuring", total)))
            shown[0](done)

        made = build_report(
            results,
            judge=judge,
            paper=against == "paper",
            n_resamples=n_resamples,
            texts=texts,
            calibrator=loaded,
            progress=progress,
        )
    page = write_report(made, target)
    _show(made)
    tell(f"The report is in {page.parent}: open {page.name}.")


@contextmanager
def quiet_metrics() -> Iterator[None]:
    """Without a warning for every method with undefined values: the tables count them."""
    logger = logging.getLogger("semtoken.metrics")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _show(made: BenchReport) -> None:
    """Headline and overview, and with the paper beside it what came of that."""
    from rich.table import Table
    from rich.text import Text

    for section in made.sections:
        if section.name in ("headline", "calibrator", "controls", "paper"):
            for line in section.lines:
                out.print(Text(f"- {line}"), soft_wrap=True)
    overview = next(table for table in made.tables if table.name == "overview")
    shown = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    for name in OVERVIEW:
        shown.add_column(name, overflow="fold", justify=overview.alignments[overview.header.index(name)])
    for row in overview.groups[0].rows:
        shown.add_row(*(Text(row[overview.header.index(name)].text) for name in OVERVIEW))
    out.print(shown)
