"""The method `learned` of a run: what its own labels add to the numbers of one pass, cross-fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from semtoken.bench.results import Cell, FloatArray, RunResults
from semtoken.calibration.labels import HEADLINE
from semtoken.calibration.learned import LEARNED, Readings
from semtoken.calibration.learning import learn
from semtoken.errors import InvalidInput
from semtoken.observers.inside import AnswerState

NUMBERS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "sequence_probability": lambda risk: -np.log1p(-np.clip(risk, 0.0, 1 - 1e-15)),
    "perplexity": lambda risk: risk,
    "weakest_token": lambda risk: risk,
    "max_token_entropy": lambda risk: risk,
    "mean_token_entropy": lambda risk: risk,
    HEADLINE: lambda risk: risk,
}
"""Methods of one pass that are learned from where a run has them, each as a number without an upper end."""


def with_learned(results: RunResults, judge: str | None = None) -> RunResults:
    """The results of a run with the method `learned` beside the others.

    Every answer's score comes from a fit that did not see its label (5 folds). It reads the hidden states and the
    headline of a run that kept states (`states: true`), and the run's numbers of one pass of any other.

    Parameters
    ----------
    results
        Of a run.
    judge
        Whose verdicts are the labels; default: the run's primary judge.

    Raises
    ------
    InvalidInput
        The run has a column of that name.
    """
    if any(LEARNED in cell.uncertainty for cell in results.cells):
        raise InvalidInput(f"This run has a column {LEARNED!r} already: leave --learn out, or rename the column.")
    made = [_with_learned(cell, judge or results.primary_judge) for cell in results.cells]
    notes = (*results.notes, *(note for _, note in made))
    return replace(results, cells=tuple(cell for cell, _ in made), notes=notes)


def _with_learned(cell: Cell, judge: str) -> tuple[Cell, str]:
    """A cell with the column, if its labels are enough, and what came of them."""
    title = f"{cell.model} on {cell.dataset}: `{LEARNED}`"
    names = [name for name in NUMBERS if name in cell.uncertainty]
    states = cell.states if HEADLINE in names else None
    if states is not None:
        names = [HEADLINE]
    labels = cell.judgements.get(judge)
    if labels is None or not names:
        return cell, f"{title} needs verdicts of {judge} and one of {', '.join(NUMBERS)}."
    numbers = np.column_stack([NUMBERS[name](cell.uncertainty[name]) for name in names])
    read = numbers if states is None else np.column_stack([numbers, states])
    usable = np.isfinite(read).all(axis=1) & np.isin(labels, (0.0, 1.0))
    place = names.index(HEADLINE) if HEADLINE in names else 0
    readings = Readings(numbers[usable], None if states is None else states[usable])
    found = learn(names, readings, numbers[usable, place], labels[usable])
    if not found.risk.size:
        return cell, f"{title}: {found.statement}."
    risk = np.full(labels.size, np.nan)
    risk[usable] = found.risk
    taken = max(cell.seconds.get(name, 0.0) for name in names)
    taken += 0.0 if states is None else cell.steps.get(AnswerState.field, 0.0)
    told = f"{title} reads {_told(names, states)}; cross-fitted on the verdicts of {judge}. A calibrator of them "
    return replace(
        cell, uncertainty={**cell.uncertainty, LEARNED: risk}, seconds=dict(cell.seconds) | {LEARNED: taken}
    ), f"{told}{found.statement}."


def _told(names: Sequence[str], states: FloatArray | None) -> str:
    """What is read, as the notes say it."""
    if states is not None:
        return f"the {names[0]} and {states.shape[1]:,} dimensions of hidden state"
    return f"{', '.join(names)} and no hidden states, which this run does not keep (`semtoken bench run --states`)"
