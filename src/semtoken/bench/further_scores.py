"""Scores beside those of the methods: columns of a file that somebody brings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.bench.results import Cell, RunResults
from semtoken.errors import InvalidInputError
from semtoken.support.files.record_files import read_rows

ID = "id"
OTHERS = frozenset({ID, "question", "model", "dataset", "answer", "response"})
"""Columns that are no scores."""


def with_scores(results: RunResults, path: Path) -> RunResults:
    """Add scores from a file to the results of a run, each column as a further method.

    The file is CSV, JSON lines or Parquet, a row for each question: `id`, and a column for each score, whose name
    tables show. Higher is riskier. With several models or data sets, the columns `model` and `dataset` say whose answer
    it is. Columns without a name, such as the index that pandas writes, are left out. `InvalidInputError` if the file
    cannot be read, a value is no number, a column has the name of a method, or questions have no row or two; the
    message names them.
    """
    rows = [(where, record) for _, where, record in read_rows(path)]
    names = list(dict.fromkeys(name for _, record in rows for name in record if name.strip() and name not in OTHERS))
    if not names or not all(ID in record for _, record in rows):
        raise InvalidInputError(f"{path} must have a column 'id' and at least one column of scores.")
    if taken := [name for name in names if any(name in cell.uncertainty for cell in results.cells)]:
        raise InvalidInputError(f"{path} has a column {taken[0]!r}, which is a method of this run. Rename the column.")
    cells = tuple(_with_columns(cell, names, rows, path) for cell in results.cells)
    note = f"Scores that were brought from {path.name}: {', '.join(names)}. What they cost is not known."
    return replace(results, cells=cells, notes=(*results.notes, note))


def _with_columns(cell: Cell, names: Sequence[str], rows: Sequence[tuple[str, Mapping[str, Any]]], path: Path) -> Cell:
    own: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for where, record in rows:
        if record.get("model", cell.model) == cell.model and record.get("dataset", cell.dataset) == cell.dataset:
            before, _ = own.setdefault(str(record[ID]), (where, record))
            if before != where:
                raise InvalidInputError(f"{where}: the id {record[ID]!r} has a row already, {before}. Leave one out.")
    if missing := [question_id for question_id in cell.question_ids if question_id not in own]:
        raise InvalidInputError(
            f"{path} has no row for {len(missing):,} of {len(cell.question_ids):,} questions of {cell.title}; the "
            f"first is {missing[0]!r}."
        )
    columns = {
        name: np.array([_number(*own[question_id], name) for question_id in cell.question_ids]) for name in names
    }
    seconds = dict.fromkeys(names, math.nan)
    return replace(cell, uncertainty={**cell.uncertainty, **columns}, seconds={**cell.seconds, **seconds})


def _number(where: str, record: Mapping[str, Any], name: str) -> float:
    """The value of a column; one that is missing is undefined for that question."""
    value = record.get(name)
    if value is None or value == "":
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{where}: {name!r} must be a number, got {value!r:.40}.") from error
