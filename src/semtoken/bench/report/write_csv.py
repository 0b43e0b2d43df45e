"""Every number of a report as CSV: full precision, empty where there is no value; no cell is a formula."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from semtoken.bench.report.against import ComparedFigure
from semtoken.bench.report.cell_figures import CellFigures
from semtoken.bench.report.figure_list import Comparison, Figure
from semtoken.bench.results import ClusteringRecord
from semtoken.files.record_files import no_formula

CLUSTERING_FIELDS = ("algorithm", "linkage", "metric", "embedding", "n_clusters")


def figures_csv(figures: Sequence[Figure]) -> str:
    """One figure a line; the first six columns are those of the paper's figures."""
    return _csv([field.name for field in fields(Figure)], map(asdict, figures))


def tests_csv(tests: Sequence[Comparison]) -> str:
    """One paired test a line."""
    return _csv([field.name for field in fields(Comparison)], map(asdict, tests))


def paper_csv(compared: Sequence[ComparedFigure]) -> str:
    """One figure a line with the published one; `within` says whether that lies in the 95 % interval."""
    names = [*(field.name for field in fields(Figure)), "paper", "difference", "within"]
    return _csv(
        names,
        (
            {**asdict(one.figure), "paper": one.published, "difference": one.difference, "within": one.within}
            for one in compared
        ),
    )


def cells_csv(cells: Sequence[CellFigures]) -> str:
    """What is counted rather than measured, a line for each method on a model and data set."""
    rows = [
        {
            "model": cell.model,
            "dataset": cell.dataset,
            "questions": cell.n,
            "correct": cell.counts.correct,
            "incorrect": cell.counts.incorrect,
            "no_verdict": cell.counts.missing,
            "greedy_seconds": cell.greedy_seconds,
            "method": name,
            "undefined": method.undefined,
        }
        for cell in cells
        for name, method in cell.methods.items()
    ]
    return _csv(list(rows[0]), rows)


def judges_csv(cells: Sequence[CellFigures]) -> str:
    """Two judges on one model and data set a line; one judge alone is a line without a second one."""
    names = ["model", "dataset", "first", "second", "both_correct", "only_first", "only_second", "both_incorrect"]
    names += ["first_missing", "second_missing", "agreement", "kappa"]
    rows: list[Mapping[str, Any]] = []
    for cell in cells:
        place = {"model": cell.model, "dataset": cell.dataset}
        rows += [place | asdict(pair) for pair in cell.agreements]
    return _csv(names, rows)


def clusterings_csv(clusterings: Sequence[ClusteringRecord]) -> str:
    """One clustering a line."""
    rows = [
        {"model": one.model, "clustering": one.variant, "tokens": one.n_tokens, "seconds": one.seconds}
        | {name: one.settings.get(name) for name in CLUSTERING_FIELDS}
        for one in clusterings
    ]
    return _csv(["model", "clustering", "tokens", "seconds", *CLUSTERING_FIELDS], rows)


def examples_csv(clusterings: Sequence[ClusteringRecord]) -> str:
    """One token of an example a line; clusters are numbered within a model."""
    rows = [
        {"model": one.model, "cluster": number, "token": token}
        for one in clusterings
        for number, cluster in enumerate(one.examples, start=1)
        for token in cluster
    ]
    return _csv(["model", "cluster", "token"], rows)


def rows_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows that all have the same fields; empty without rows."""
    found = list(rows)
    return _csv(list(found[0]), found) if found else ""


def _csv(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _value(value) for name, value in row.items()} for row in rows)
    return file.getvalue()


def _value(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return no_formula(value) if isinstance(value, str) else value  # names and tokens are other people's text
