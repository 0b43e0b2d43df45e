"""The short report of one model on one set of questions, which `semtoken bench compare` shows and writes."""

from __future__ import annotations

import json
from dataclasses import replace

from semtoken.bench.report.content import BenchReport
from semtoken.bench.report.markdown import markdown_table
from semtoken.bench.report.measure import PERCENT, SECONDS, MeasuredCell, title_of
from semtoken.bench.report.numbers import amount
from semtoken.bench.report.table import Table
from semtoken.support.files.strict_json import finite


def summary(cell: MeasuredCell) -> str:
    """Say in one sentence how many questions were asked and how long that took."""
    return (
        f"{cell.n:,} questions, {cell.counts.correct:,} answered right ({cell.counts.accuracy:.1%}); the greedy "
        f"generation took {cell.greedy_seconds:.1f} s, seconds are beyond it."
    )


def with_seconds(made: BenchReport) -> Table:
    """The tests of the report by AUROC as a table, with the seconds of each method."""
    (cell,) = made.measured.cells
    tests = next(table for table in made.tables if table.name == "reference_auroc")
    seconds = {title_of(name): amount(value) for name, value in cell.seconds.items()}
    return replace(tests, frame=tests.frame.assign(seconds=tests.frame["Method"].map(seconds)))


def markdown(made: BenchReport) -> str:
    """Write the main result in sentences, and the tables of the report, as Markdown."""
    (cell,) = made.measured.cells
    lines = [
        f"- {line}"
        for section in made.sections
        if section.name in ("main_result", "calibrator")
        for line in section.lines
    ]
    return "\n\n".join([summary(cell), "\n".join(lines), *map(markdown_table, made.tables)]).rstrip() + "\n"


def as_json(made: BenchReport) -> str:
    """Everything, as JSON. A second run repeats what is under "figures" and "tests", and not the "seconds"."""
    (cell,) = made.measured.cells
    content = {
        "settings": dict(made.settings),
        "n": cell.n,
        "n_correct": cell.counts.correct,
        "n_incorrect": cell.counts.incorrect,
        "figures": made.measured.figures[~made.measured.figures.metric.isin((SECONDS, PERCENT))].to_dict("records"),
        "tests": made.measured.tests.to_dict("records"),
        "seconds": {
            "greedy": cell.greedy_seconds,
            "methods": dict(cell.seconds),
        },
    }
    return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"
