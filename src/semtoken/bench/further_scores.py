"""Scores beside those of the methods: columns of a file that somebody brings, and what the run's own labels teach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.bench.results import Cell, RunResults
from semtoken.calibration.labels import HEADLINE
from semtoken.calibration.learned_number import LEARNED, Readings
from semtoken.calibration.learning import learn
from semtoken.errors import InvalidInput
from semtoken.files.record_files import read_rows
from semtoken.observers.table import AnswerState
from semtoken.support.arrays import FloatArray

ID = "id"
OTHERS = frozenset({ID, "question", "model", "dataset", "answer", "response"})
"""Columns that are no scores."""


def with_scores(results: RunResults, path: Path) -> RunResults:
    """Add scores from a file to the results of a run, each column as a further method.

    The file is CSV, JSON lines or Parquet, a row for each question: `id`, and a column for each score, whose name
    tables show. Higher is riskier. With several models or data sets, the columns `model` and `dataset` say whose answer
    it is. `InvalidInput` if the file cannot be read, a value is no number, a column has the name of a method, or
    questions have no row; the message names them.
    """
    rows = [(where, record) for _, where, record in read_rows(path)]
    names = list(dict.fromkeys(name for _, record in rows for name in record if name not in OTHERS))
    if not names or not all(ID in record for _, record in rows):
        raise InvalidInput(f"{path} must have a column 'id' and at least one column of scores.")
    if taken := [name for name in names if any(name in cell.uncertainty for cell in results.cells)]:
        raise InvalidInput(f"{path} has a column {taken[0]!r}, which is a method of this run. Rename the column.")
    cells = tuple(_with_columns(cell, names, rows, path) for cell in results.cells)
    note = f"Scores that were brought from {path.name}: {', '.join(names)}. What they cost is not known."
    return replace(results, cells=cells, notes=(*results.notes, note))


def _with_columns(cell: Cell, names: Sequence[str], rows: Sequence[tuple[str, Mapping[str, Any]]], path: Path) -> Cell:
    own = {
        str(record[ID]): (where, record)
        for where, record in rows
        if record.get("model", cell.model) == cell.model and record.get("dataset", cell.dataset) == cell.dataset
    }
    if missing := [question_id for question_id in cell.question_ids if question_id not in own]:
        raise InvalidInput(
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
        raise InvalidInput(f"{where}: {name!r} must be a number, got {value!r:.40}.") from error


PROBABILITY = "sequence_probability"
NUMBERS = (PROBABILITY, "perplexity", "weakest_token", "max_token_entropy", "mean_token_entropy", HEADLINE)
"""Methods of one pass that are learned from where a run has them."""


def with_learned(results: RunResults, judge: str | None = None) -> RunResults:
    """Add the method `learned`, fitted to the judge's verdicts on other folds (5), to the results of a run.

    It reads the hidden states and the headline of a run that kept states (`states: true`), and the run's numbers of one
    pass of any other. Without `judge` the run's primary judge gives the labels. `InvalidInput` if the run has a column
    of that name.
    """
    if any(LEARNED in cell.uncertainty for cell in results.cells):
        raise InvalidInput(f"This run has a column {LEARNED!r} already: leave --learn out, or rename the column.")
    lacking = _why_no_states(results)
    made = [_with_learned(cell, judge or results.primary_judge, lacking) for cell in results.cells]
    notes = (*results.notes, *(note for _, note in made))
    return replace(results, cells=tuple(cell for cell, _ in made), notes=notes)


def _why_no_states(results: RunResults) -> str:
    """Why a cell may have none."""
    if not results.settings.get("states"):
        return "which this run does not keep (`semtoken bench run --states`)"
    if results.path.is_dir():
        return "which are not complete: run it again, and `semtoken bench run` takes up where it was"
    return "which are in the folder of the run and not in the table of its answers: name the run itself"


def _with_learned(cell: Cell, judge: str, lacking: str) -> tuple[Cell, str]:
    """A cell with the column, if its labels are enough, and what came of them."""
    title = f"{cell.title}: `{LEARNED}`"
    names = [name for name in NUMBERS if name in cell.uncertainty]
    states = cell.states if HEADLINE in names else None
    if states is not None:
        names = [HEADLINE]
    labels = cell.judgements.get(judge)
    if labels is None or not names:
        return cell, f"{title} needs verdicts of {judge} and one of {', '.join(NUMBERS)}."
    numbers = np.column_stack([_unbounded(name, cell.uncertainty[name]) for name in names])
    read = numbers if states is None else np.column_stack([numbers, states])
    usable = np.isfinite(read).all(axis=1) & np.isin(labels, (0.0, 1.0))
    place = names.index(HEADLINE) if HEADLINE in names else 0
    readings = Readings(numbers[usable], None if states is None else states[usable])
    learned = learn(names, readings, numbers[usable, place], labels[usable])
    if not learned.risk.size:
        return cell, f"{title}: {learned.statement}."
    risk = np.full(labels.size, np.nan)
    risk[usable] = learned.risk
    taken = max(cell.seconds.get(name, 0.0) for name in names)
    taken += 0.0 if states is None else cell.steps.get(AnswerState.field, 0.0)
    inputs = f"{', '.join(names)} and no hidden states, {lacking}"
    if states is not None:
        inputs = f"the {HEADLINE} and {states.shape[1]:,} dimensions of hidden state"
    note = f"{title} reads {inputs}; cross-fitted on the verdicts of {judge}. A calibrator of "
    return replace(
        cell, uncertainty={**cell.uncertainty, LEARNED: risk}, seconds=dict(cell.seconds) | {LEARNED: taken}
    ), f"{note}them {learned.statement}."


def _unbounded(name: str, uncertainty: FloatArray) -> FloatArray:
    """The uncertainty as a number without an upper end."""
    return -np.log1p(-np.clip(uncertainty, 0.0, 1 - 1e-15)) if name == PROBABILITY else uncertainty
