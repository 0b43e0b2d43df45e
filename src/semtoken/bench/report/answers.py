"""Single answers of a run: what a calibrator says of them, and where score and judge disagree most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from semtoken.bench.plan import OfCell
from semtoken.bench.report.measure import STC, spoken
from semtoken.bench.report.probabilities import CellProbabilities
from semtoken.bench.report.table import MISSING, Table, frame
from semtoken.bench.results import Cell, RunResults
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.calibrator import Calibrator
from semtoken.guarantees.fingerprint import Fingerprint
from semtoken.support.text import one_line, shortened

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
        if cell.log_confidence is None or judge not in cell.judgements:
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
    correct = cell.judgements[judge]
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


@dataclass(frozen=True)
class ExtremeAnswer(OfCell):
    """One of the answers on which the uncertainty and the judge disagree most."""

    kind: Kind
    id: str
    question: str
    answer: str
    method: str
    """The method as sentences name it: that of the report, or STC where a calibrator is in use."""
    uncertainty: float
    """The uncertainty by that method, in its own unit."""
    probability_correct: float
    """The probability of being right, cross-fitted or by the calibrator in use; NaN where there is none."""
    decision: str
    """`answer` or `abstain`; empty without a threshold."""


def extreme_answers(
    cells: Sequence[Cell],
    judge: str,
    probabilities: Sequence[CellProbabilities],
    calibrators: Sequence[CellCalibrator] = (),
) -> list[ExtremeAnswer]:
    """The surest wrong and most doubtful right answers of every cell with texts, verdicts and the report's method."""
    own = {(entry.model, entry.dataset): entry for entry in probabilities}
    applied = {(entry.model, entry.dataset): entry for entry in calibrators}
    answers: list[ExtremeAnswer] = []
    for cell in cells:
        place = cell.model, cell.dataset
        if cell.texts and judge in cell.judgements:
            answers += _of_cell(cell, judge, own.get(place), applied.get(place))
    return answers


def _of_cell(
    cell: Cell, judge: str, probabilities: CellProbabilities | None, calibrator: CellCalibrator | None
) -> Iterator[ExtremeAnswer]:
    by = STC if calibrator is not None or probabilities is None else probabilities.reference
    if by not in cell.uncertainty:
        return
    uncertainty, correct = cell.uncertainty[by], cell.judgements[judge]
    log_confidence = cell.log_confidence if by == STC else None
    order = uncertainty if log_confidence is None else -log_confidence  # which tells apart what is 1 to all digits
    method = None if probabilities is None else probabilities.methods.get(by)
    own = None if method is None else method.probabilities
    kinds: tuple[tuple[Kind, float, int], ...] = (("surest_wrong", 0.0, -1), ("doubtful_right", 1.0, 1))
    for kind, label, sign in kinds:
        inside = np.flatnonzero((correct == label) & ~np.isnan(uncertainty))
        for i in inside[np.argsort(-sign * order[inside], kind="stable")][:SHOWN].tolist():
            question, answer = cell.texts[i]
            probability_correct = math.nan if own is None else float(own[i])
            decision = ""
            if calibrator is not None and log_confidence is not None:
                probability_correct, decision = calibrator.of(float(log_confidence[i]))
            yield ExtremeAnswer(
                model=cell.model,
                dataset=cell.dataset,
                kind=kind,
                id=cell.question_ids[i],
                question=question,
                answer=answer,
                method=spoken(by),
                uncertainty=float(uncertainty[i]),
                probability_correct=probability_correct,
                decision=decision,
            )


def answer_tables(extremes: Sequence[ExtremeAnswer]) -> tuple[Table, ...]:
    """One table for each kind, a group for each model and data set."""
    header = ["Question", "Answer", "Uncertainty", "Probability", "Decision"]
    header = header if any(answer.decision for answer in extremes) else header[:-1]
    tables = []
    for kind, (title, said) in TABLES.items():
        if own := [answer for answer in extremes if answer.kind == kind]:
            rows = [_row(answer)[: len(header)] for answer in own]
            texts = frame(rows, header, [answer.title for answer in own])
            note = f"By the uncertainty of {own[0].method}. {said}"
            tables.append(Table(kind, title, texts, note=note, left=2))
    return tuple(tables)


def _row(extreme: ExtremeAnswer) -> list[str]:
    probability_correct = (
        MISSING if math.isnan(extreme.probability_correct) else f"{100 * extreme.probability_correct:.0f}%"
    )
    asked, answered = (shortened(one_line(text.strip()), LONGEST) for text in (extreme.question, extreme.answer))
    return [asked, answered, f"{extreme.uncertainty:.3g}", probability_correct, extreme.decision]
