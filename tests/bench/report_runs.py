"""Runs for the tests of the report: uncertainties drawn with known quality, held in memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.bench.report.content import BenchReport
from semtoken.bench.report.measure import Measured, MeasuredCell, measure, title_of
from semtoken.bench.report.table import Table
from semtoken.bench.results import Cell, ClusteringRecord, RunResults
from semtoken.methods import METHODS

SEPARATION = {name: 2.2 - 0.1 * place for place, name in enumerate(METHODS)}
"""Distance of wrong answers from right ones in standard deviations: STC is the best, the last the worst."""
MAIN = {
    "algorithm": "agglomerative",
    "linkage": "complete",
    "metric": "cosine",
    "embedding": "concatenated",
    "n_clusters": 16_000,
}


def cell(
    model: str = "Qwen2.5-7B",
    dataset: str = "NQ",
    n: int = 120,
    methods: Sequence[str] = tuple(METHODS),
    variants: Sequence[str] = (),
    seed: int = 0,
    **changes: Any,
) -> Cell:
    """One model on one data set; about 60% of its answers are right."""
    rng = np.random.default_rng(seed)
    correct = (rng.random(n) < 0.6).astype(float)
    second = np.where(rng.random(n) < 0.9, correct, 1 - correct)
    second[::10] = np.nan
    shared = rng.normal(size=n)

    def uncertainty(separation: float) -> np.ndarray:
        return shared + 0.5 * rng.normal(size=n) + separation * (1 - correct)

    content: dict[str, Any] = {
        "model": model,
        "dataset": dataset,
        "question_ids": tuple(f"q{i}" for i in range(n)),
        "uncertainty": {name: uncertainty(SEPARATION[name]) for name in methods},
        "judgments": {"exact": correct, "llm": second},
        "variants": {name: uncertainty(1.5 + 0.1 * i) for i, name in enumerate(variants)},
        "greedy_seconds": 200.0,
        "seconds": {name: 0.5 * 1.6**place for place, name in enumerate(methods)},
        "steps": {"greedy": 200.0},
    }
    return Cell(**(content | changes))


def clustering(
    model: str = "Qwen2.5-7B", variant: str = "main", seconds: float | None = 80.0, **settings: Any
) -> ClusteringRecord:
    return ClusteringRecord(
        model=model,
        variant=variant,
        settings=MAIN | settings,
        seconds=seconds,
        n_tokens=151_665,
        examples=(("TV", " tv", " Television"), ("Cold", " chilly")) if variant == "main" else (),
    )


def results(
    *cells: Cell,
    clusterings: Sequence[ClusteringRecord] = (),
    settings: Mapping[str, Any] | None = None,
    **changes: Any,
) -> RunResults:
    content: dict[str, Any] = {
        "path": Path("runs/example"),
        "settings": settings or {},
        "manifest": {"versions": {"semtoken": "0.1"}, "hardware": {"cpu": "a processor"}},
        "primary_judge": "exact",
        "cells": cells,
        "clusterings": tuple(clusterings),
    }
    return RunResults(**(content | changes))


def measured(
    *cells: Cell, judge: str = "exact", n_resamples: int = 20, reference: str | None = None, **changes: Any
) -> Measured:
    """The figures of a run of these cells."""
    return measure(results(*cells, **changes), judge, n_resamples=n_resamples, reference=reference)


def rows_of(made: BenchReport, file: str) -> list[dict[str, str]]:
    """The rows of a CSV file of a report."""
    return list(csv.DictReader(io.StringIO(made.csv[file])))


def tables_of(made: BenchReport) -> dict[str, Table]:
    """The tables of a report by their names."""
    return {table.name: table for table in made.tables}


def texts(table: Table | None) -> dict[str, dict[str, list[str]]]:
    """The texts of a table by the heading of their group and by their first column."""
    assert table is not None
    found: dict[str, dict[str, list[str]]] = {}
    for group, (first, *others) in zip(table.frame.index, table.frame.to_numpy().tolist(), strict=True):
        found.setdefault(group, {})[first] = others
    return found


def figure(made: Measured, name: str, metric: str = "AUROC", cell: MeasuredCell | None = None) -> Any:
    """The row of a method's figure: on the first cell, unless another is named."""
    rows = made.of(cell or made.cells[0], setting=title_of(name), metric=metric)
    return next(rows.itertuples())


def paired(made: Measured, name: str, against: str = "stc", metric: str = "AUROC") -> Any:
    """The row of a test on the first cell; None if there is none."""
    return made.test(made.cells[0], title_of(name), title_of(against), metric)


def equals(row: Any, difference: Any) -> bool:
    """Whether a row of the tests is a difference that was made with `semtoken.methods.metrics`."""
    expected = [difference.value, difference.low, difference.high, difference.p_value]
    return [row.difference, row.low, row.high, row.p] == expected
