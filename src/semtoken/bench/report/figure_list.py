"""Every number of a report as flat rows, in the words of the paper's tables, and rows as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from semtoken.bench.judges import Agreement
from semtoken.bench.plan import MAIN
from semtoken.bench.report.cell_figures import (
    ABLATIONS,
    BASELINE,
    STC,
    CellFigures,
    ControlFigures,
    MethodFigures,
    TestedDifference,
    title_of,
)
from semtoken.bench.report.comparison import NAMES, STUDIES, points
from semtoken.bench.results import ClusteringRecord
from semtoken.files.record_files import no_formula
from semtoken.metrics import Estimate

PAPER_TABLES = {setting: name.lower() for setting, name in STUDIES.items()} | {"algorithm": "clustering algorithm"}
"""Setting of a clustering -> the paper's table about it."""


@dataclass(frozen=True)
class Figure:
    """One measured number. Its first five fields say which one, as in the list of the paper's figures."""

    table: str
    """The paper's table: "comparison", "ablation", "distance", ..., "pre-computation"; or "control", which is ours."""
    dataset: str
    """Empty for what depends on the model alone."""
    setting: str
    """Title of a method, or value of a setting."""
    model: str
    metric: str
    """"AUROC", "PRR", "seconds" or "percent of generation time"."""
    value: float
    """What was measured; NaN where it is undefined."""
    low: float = math.nan
    """Lower end of the 95 % interval; NaN without one."""
    high: float = math.nan


@dataclass(frozen=True)
class Comparison:
    """A paired test of two methods on the same answers."""

    table: str
    dataset: str
    setting: str
    model: str
    metric: str
    against: str
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float
    verdict: str
    """"higher" or "lower" than what it is compared with, "not shown" or "too few answers"."""


Place = tuple[str, str, str, str, str]
"""The first five fields of a `Figure` and of a `Comparison`."""


def measured_figures(cells: Sequence[CellFigures], clusterings: Sequence[ClusteringRecord]) -> list[Figure]:
    """All figures of a run: of methods, ablations, controls, other clusterings, and the time of clustering."""
    figures = [figure for cell in cells for figure in _of_methods(cell)]
    figures += [figure for cell in cells for figure in _of_ablations(cell)]
    for cell in cells:
        figures += [_figure(_place_of_control(cell, control), control.estimate) for control in cell.controls.values()]
    for cell in cells:
        for point in points(cell, clusterings):
            place = (PAPER_TABLES[point.setting], cell.dataset, point.value, cell.model, "AUROC")
            figures.append(_figure(place, point.quality.estimate))
    for clustering in clusterings:
        if clustering.variant == MAIN and clustering.seconds is not None:
            setting = f"{clustering.settings.get('algorithm', 'unknown')} clustering"
            figures.append(Figure("pre-computation", "", setting, clustering.model, "seconds", clustering.seconds))
    return figures


def _of_methods(cell: CellFigures) -> Iterator[Figure]:
    for method in cell.compared:
        for metric, quality in method.quality.items():
            yield _figure(_place(cell, "comparison", method, metric), quality.estimate)
        for unit, value in (("seconds", method.seconds), ("percent of generation time", method.percent)):
            yield Figure("comparison", cell.dataset, method.title, cell.model, unit, value)


def _of_ablations(cell: CellFigures) -> Iterator[Figure]:
    names = [name for name in (STC, *ABLATIONS, BASELINE) if name in cell.methods]
    for name in names if len(names) > 1 else ():
        for metric, quality in cell.methods[name].quality.items():
            yield _figure(_place(cell, "ablation", cell.methods[name], metric), quality.estimate)


def _place(cell: CellFigures, table: str, method: MethodFigures, metric: str) -> Place:
    return table, cell.dataset, method.title, cell.model, NAMES[metric]


def _place_of_control(cell: CellFigures, control: ControlFigures) -> Place:
    return "control", cell.dataset, control.control.title, cell.model, "AUROC"


def _figure(place: Place, estimate: Estimate) -> Figure:
    return Figure(*place, estimate.value, estimate.low, estimate.high)


def paired_tests(cells: Sequence[CellFigures]) -> list[Comparison]:
    """All paired tests of a report."""
    made = []
    for cell in cells:
        for place, against, tested in _tests(cell):
            if tested is not None:
                difference = tested.difference
                numbers = (difference.value, difference.low, difference.high, difference.p_value, tested.p_adjusted)
                made.append(Comparison(*place, against, *numbers, tested.verdict))
    return made


def _tests(cell: CellFigures) -> Iterator[tuple[Place, str, TestedDifference | None]]:
    """What was compared in a cell, and with what: methods, other clusterings, controls."""
    for name, method in cell.methods.items():
        for metric, quality in method.quality.items():
            place = _place(cell, "ablation" if name in ABLATIONS else "comparison", method, metric)
            yield place, "STC", quality.to_stc
            if quality.to_best is not None:
                yield place, f"best: {cell.ranked(metric)[0].title}", quality.to_best
            if cell.reference != STC:
                yield place, title_of(cell.reference), quality.to_reference
    for name, quality in cell.variants.items():
        setting, _, value = name.partition("=")
        yield (PAPER_TABLES.get(setting, setting), cell.dataset, value, cell.model, "AUROC"), "STC", quality.to_stc
    for control in cell.controls.values():
        yield _place_of_control(cell, control), "STC", control.to_stc
        yield _place_of_control(cell, control), "Sequence probability", control.minus_baseline


def csv_files(
    cells: Sequence[CellFigures],
    figures: Sequence[Figure],
    tests: Sequence[Comparison],
    clusterings: Sequence[ClusteringRecord],
) -> dict[str, str]:
    """The figures, tests and counts of a run as CSV texts, by the name of the file without its ending."""
    files = {
        "figures": csv_text(map(asdict, figures)),
        "tests": csv_text(map(asdict, tests), [field.name for field in fields(Comparison)]),
        "cells": csv_text(_counts(cells)),
        "judges": csv_text(
            (
                {"model": cell.model, "dataset": cell.dataset, **asdict(pair)}
                for cell in cells
                for pair in cell.agreements
            ),
            ["model", "dataset", *(field.name for field in fields(Agreement))],
        ),
    }
    if clusterings:
        files["clusterings"] = csv_text(map(_of_clustering, clusterings))
        files["clusters"] = csv_text(_examples(clusterings), ["model", "cluster", "token"])
    return files


def _counts(cells: Sequence[CellFigures]) -> Iterator[dict[str, Any]]:
    """What is counted rather than measured, a row for each method on a model and data set."""
    for cell in cells:
        for name, method in cell.methods.items():
            yield {
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


def _of_clustering(record: ClusteringRecord) -> dict[str, Any]:
    facts = {"model": record.model, "clustering": record.variant, "tokens": record.n_tokens, "seconds": record.seconds}
    return facts | {
        name: record.settings.get(name) for name in ("algorithm", "linkage", "metric", "embedding", "n_clusters")
    }


def _examples(clusterings: Sequence[ClusteringRecord]) -> Iterator[dict[str, Any]]:
    """One token of an example a row; clusters are numbered within a model."""
    for clustering in clusterings:
        for number, cluster in enumerate(clustering.examples, start=1):
            yield from ({"model": clustering.model, "cluster": number, "token": token} for token in cluster)


def csv_text(rows: Iterable[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """Write rows as CSV: numbers in full precision, missing values empty, and no cell that is a formula.

    By default the columns are the fields of the first row. Without rows and names the text is empty.
    """
    listed = list(rows)
    if not (columns := list(names) or list(listed[0] if listed else ())):
        return ""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _value(value) for name, value in row.items()} for row in listed)
    return file.getvalue()


def _value(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return no_formula(value) if isinstance(value, str) else value  # names and tokens are other people's text
