"""Single answers of a run: what a calibrator says of them, and where score and judge disagree most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semtoken.bench.plan import OfCell
from semtoken.bench.report.measure import STC, cell_titles, spoken
from semtoken.bench.report.numbers import MISSING
from semtoken.bench.report.probabilities import Probabilities
from semtoken.bench.report.table import Table, frame
from semtoken.bench.results import Cell, RunResults
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.calibrator import Calibrator
from semtoken.guarantees.fingerprint import Fingerprint
from semtoken.support.extras import require
from semtoken.support.text import one_line, shortened

if TYPE_CHECKING:
    from pandas import DataFrame

SHARED = 0.5
"""From this share of equal scores on, the answers count as those of the fit."""


@dataclass(frozen=True, eq=False)
class CellCalibrator(OfCell):
    """A calibrator that was tried on the answers of one model and data set."""

    applied: CalibratorInUse
    lines: tuple[str, ...]

    def of(self, log_confidence: float) -> tuple[float, str]:
        """The probability (NaN for an empty answer) and decision for an answer; no decision without a threshold."""
        calibrator = self.applied.calibrator
        decision = "" if calibrator.threshold is None else calibrator.threshold.decide(log_confidence).action
        return float(calibrator.predict_proba(log_confidence)), decision


def check_cells(results: RunResults, judge: str, calibrator: Calibrator) -> tuple[list[CellCalibrator], list[str]]:
    """Try the calibrator on every cell; returns the cells that it fits, and why it does not fit the others.

    `CalibratorMismatchError` if it fits none; `InvalidInputError` if there are no log scores of STC with verdicts of
    the judge.
    """
    cell_calibrators: list[CellCalibrator] = []
    refused: list[str] = []
    problem: CalibratorMismatchError | None = None
    for cell in results.cells:
        if cell.log_confidence is None or judge not in cell.judgments:
            continue
        known = _fingerprint_of(results, cell)
        try:
            calibrator.fingerprint.require_same(known)
        except CalibratorMismatchError as error:
            problem = error
            refused.append(f"{cell.title}: not shown, {str(error)[:1].lower()}{str(error)[1:]}")
            continue
        applied = CalibratorInUse(calibrator, known)
        cell_calibrators.append(CellCalibrator(cell.model, cell.dataset, applied, _lines(cell, judge, applied)))
    if cell_calibrators:
        return cell_calibrators, refused
    if problem is not None:
        raise problem
    raise InvalidInputError(
        f"{results.path} holds no log scores of STC with verdicts of {judge!r}, so a calibrator cannot be applied. Run "
        "it again with this release: `semtoken bench run` takes up where it was."
    )


def _fingerprint_of(results: RunResults, cell: Cell) -> Fingerprint:
    """The origin of a cell's scores, as far as the run knows it."""
    models = [choice for choice in results.settings.get("models", ()) if isinstance(choice, Mapping)]
    model: Mapping[str, Any] = next(
        (choice for choice in models if choice.get("label", choice.get("name")) == cell.model), {}
    )
    raw = "raw" if model.get("backend", "transformers") == "transformers" else None
    return Fingerprint(signature=cell.signature, distribution=raw, scores="exact", model=model.get("name"))


def _lines(cell: Cell, judge: str, applied: CalibratorInUse) -> tuple[str, ...]:
    assert cell.log_confidence is not None
    correct = cell.judgments[judge]
    lines = [applied.check(cell.log_confidence, correct)]
    judged = cell.log_confidence[~np.isnan(correct)].tolist()  # the same score to all digits: the same answer
    if (n := (Counter(applied.calibrator.scores) & Counter(judged)).total()) >= SHARED * applied.calibrator.n:
        lines.append(
            f"Beware: {n:,} of the {applied.calibrator.n:,} answers that it was fitted on are among these, so these "
            "figures do not show that the guarantee holds. Check it on other questions."
        )
    lines += [flag.message for flag in applied.calibrator.fingerprint.flags(applied.known)]
    return tuple(f"{cell.title}: {line}" for line in lines)


def guarantee_of(calibrators: Sequence[CellCalibrator]) -> str:
    """Say in one sentence what the calibrator in use guarantees; `calibrators` holds at least one."""
    threshold = calibrators[0].applied.calibrator.threshold
    return "The calibrator holds no guarantee." if threshold is None else threshold.statement


SHOWN = 5
"""Answers of each kind, for every model and data set."""
LONGEST = 120
"""Characters of a question or an answer."""
Kind = Literal["surest_wrong", "doubtful_right"]
TABLES: dict[Kind, tuple[str, str]] = {
    "surest_wrong": (
        "The surest wrong answers",
        "Read these first: some are right and the judge or the accepted answers are not; the others are errors of "
        "which the model was sure, and no threshold on this score stops them.",
    ),
    "doubtful_right": (
        "The most doubtful right answers",
        "What a threshold costs: these answers are right and would be among the first to be held back.",
    ),
}
"""The title of the table of each kind, and what there is to say of it."""


EXTREME = [
    *("model", "dataset", "kind", "id", "question", "answer"),
    *("method", "uncertainty", "probability_correct", "decision"),
]
"""The columns of `extreme_answers`."""


def extreme_answers(
    cells: Sequence[Cell], judge: str, probabilities: Probabilities, calibrators: Sequence[CellCalibrator] = ()
) -> DataFrame:
    """The answers on which uncertainty and judge disagree most, of every cell with texts and verdicts, a row each.

    `kind` is a key of `TABLES`; `method`, as sentences name it, is that of the report, or STC where a calibrator is in
    use, and `uncertainty` is in its own unit. `probability_correct` is cross-fitted or by the calibrator, NaN where
    there is none; `decision` is `answer` or `abstain`, and empty without a threshold.
    """
    applied = {(entry.model, entry.dataset): entry for entry in calibrators}
    rows = [
        row
        for cell in cells
        if cell.texts and judge in cell.judgments
        for row in _of_cell(cell, judge, probabilities, applied.get((cell.model, cell.dataset)))
    ]
    made: DataFrame = require("pandas", extra="bench").DataFrame(rows, columns=EXTREME)
    return made


def _of_cell(
    cell: Cell, judge: str, probabilities: Probabilities, calibrator: CellCalibrator | None
) -> Iterator[dict[str, Any]]:
    by = STC if calibrator is not None else probabilities.reference
    if by not in cell.uncertainty:
        return
    uncertainty, correct = cell.uncertainty[by], cell.judgments[judge]
    log_confidence = cell.log_confidence if by == STC else None
    order = uncertainty if log_confidence is None else -log_confidence  # which tells apart what is 1 to all digits
    given = probabilities.given.get((cell.model, cell.dataset, by))
    kinds: tuple[tuple[Kind, float, int], ...] = (("surest_wrong", 0.0, -1), ("doubtful_right", 1.0, 1))
    for kind, label, sign in kinds:
        inside = np.flatnonzero((correct == label) & ~np.isnan(uncertainty))
        for i in inside[np.argsort(-sign * order[inside], kind="stable")][:SHOWN].tolist():
            probability, decision = math.nan if given is None else float(given[i]), ""
            if calibrator is not None and log_confidence is not None:
                probability, decision = calibrator.of(float(log_confidence[i]))
            place = (cell.model, cell.dataset, kind, cell.question_ids[i], *cell.texts[i])
            yield dict(zip(EXTREME, (*place, spoken(by), float(uncertainty[i]), probability, decision), strict=True))


def answer_tables(extremes: DataFrame) -> tuple[Table, ...]:
    """One table for each kind, a group for each model and data set."""
    header = ["Question", "Answer", "Uncertainty", "Probability", "Decision"]
    header = header if extremes.decision.any() else header[:-1]
    tables = []
    for kind, (title, said) in TABLES.items():
        own = extremes[extremes.kind == kind]
        if len(own):
            rows = [_row(answer)[: len(header)] for answer in own.itertuples()]
            texts = frame(rows, header, cell_titles(own))
            note = f"By the uncertainty of {own.method.iloc[0]}. {said}"
            tables.append(Table(kind, title, texts, note=note, left=2))
    return tuple(tables)


def _row(extreme: Any) -> list[str]:
    probability_correct = (
        MISSING if math.isnan(extreme.probability_correct) else f"{100 * extreme.probability_correct:.0f}%"
    )
    asked, answered = (shortened(one_line(text.strip()), LONGEST) for text in (extreme.question, extreme.answer))
    return [asked, answered, f"{extreme.uncertainty:.3g}", probability_correct, extreme.decision]
