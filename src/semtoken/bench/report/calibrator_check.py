"""A calibrator (`--calibrator DIR`) beside the answers of a run: do its chances and its promise hold on them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken.bench.results import Cell, FloatArray, RunResults
from semtoken.calibration.apply import CalibratorInUse
from semtoken.calibration.calibrator import Calibrator
from semtoken.calibration.fingerprint import Fingerprint
from semtoken.errors import CalibratorMismatch, InvalidInput

SHARED = 0.5
"""From this share of equal scores on, the answers count as those of the fit."""


@dataclass(frozen=True, eq=False)
class CellCalibrator:
    """The calibrator on one model and data set."""

    model: str
    dataset: str
    applied: CalibratorInUse
    lines: tuple[str, ...]
    """What it says, and how it held, in sentences."""

    @property
    def title(self) -> str:
        """Model and data set, as people read them."""
        return f"{self.model} on {self.dataset}"

    def of(self, log_score: float) -> tuple[float, str]:
        """Chance (NaN for a blank answer) and decision of an answer; no decision without a threshold."""
        calibrator = self.applied.calibrator
        decision = "" if calibrator.threshold is None else calibrator.threshold.decide(log_score).action
        return float(calibrator.chance(log_score)), decision


def checked(results: RunResults, judge: str, calibrator: Calibrator) -> tuple[list[CellCalibrator], list[str]]:
    """The calibrator on every cell that it belongs to, and why it does not belong to others.

    Raises
    ------
    CalibratorMismatch
        It belongs to none of them.
    InvalidInput
        The run has no log scores of STC with verdicts of the judge.
    """
    found: list[CellCalibrator] = []
    refused: list[str] = []
    problem: CalibratorMismatch | None = None
    for cell in results.cells:
        if cell.log_score is None or judge not in cell.judgements:
            continue
        known = _known(results, cell)
        try:
            calibrator.fingerprint.require_same(known)
        except CalibratorMismatch as error:
            problem = error
            refused.append(f"{cell.model} on {cell.dataset}: not shown, {str(error)[:1].lower()}{str(error)[1:]}")
            continue
        applied = CalibratorInUse(calibrator, known)
        found.append(CellCalibrator(cell.model, cell.dataset, applied, _lines(cell, judge, applied)))
    if found:
        return found, refused
    if problem is not None:
        raise problem
    raise InvalidInput(
        f"{results.path} holds no log scores of STC with verdicts of {judge!r}, so a calibrator cannot be applied. Run "
        "it again with this release: `semtoken bench run` takes up where it was."
    )


def _known(results: RunResults, cell: Cell) -> Fingerprint:
    """What the run tells of where the scores of a cell come from."""
    models = [one for one in results.settings.get("models", ()) if isinstance(one, Mapping)]
    model: Mapping[str, Any] = next((one for one in models if one.get("label", one.get("name")) == cell.model), {})
    raw = "raw" if model.get("backend", "transformers") == "transformers" else None
    return Fingerprint(signature=cell.signature, distribution=raw, scores="exact", model=model.get("name"))


def _lines(cell: Cell, judge: str, applied: CalibratorInUse) -> tuple[str, ...]:
    assert cell.log_score is not None
    correct = cell.judgements[judge]
    lines = [applied.check(cell.log_score, correct)]
    if (n := _shared(applied.calibrator, cell.log_score[~np.isnan(correct)])) >= SHARED * applied.calibrator.n:
        lines.append(
            f"Beware: {n:,} of the {applied.calibrator.n:,} answers that it was fitted on are among these, so these "
            "figures do not show that the promise holds. Check it on other questions."
        )
    lines += [flag.message for flag in applied.calibrator.fingerprint.flags(applied.known)]
    return tuple(f"{cell.model} on {cell.dataset}: {line}" for line in lines)


def _shared(calibrator: Calibrator, log_score: FloatArray) -> int:
    """Labelled answers whose score is among these to all digits."""
    return (Counter(calibrator.scores) & Counter(log_score.tolist())).total()


def promise_of(found: Sequence[CellCalibrator]) -> str:
    """The promise in one sentence."""
    threshold = found[0].applied.calibrator.threshold
    return "The calibrator holds no promise." if threshold is None else threshold.statement
