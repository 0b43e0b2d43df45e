"""From uncertainties to decisions: for every method how wrong answers thin out if fewer are given, and what chances of
being right its order yields.

Methods have units of their own, so they are compared by what their order is worth. The chances of a method come from
beta calibration of its ranks, cross-fitted: the answers are dealt into ten folds, and each gets its chance from a
calibrator that was fitted on the other nine. The ranks are those among all answers; labels play no part in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from semtoken.bench.report.cell_figures import ABLATIONS, FEWEST, REFERENCE, SEED, Tested, title_of
from semtoken.bench.results import Cell, FloatArray
from semtoken.calibration.calibrator import cross_validated
from semtoken.calibration.labels import FEWEST_LABELS, FEWEST_OF_EITHER, Labelled
from semtoken.calibration.measures import Report, calibration_error, reliability, report
from semtoken.methods import METHODS
from semtoken.metrics import (
    Estimate,
    Resampled,
    SelectiveRisk,
    holm,
    permutation_test,
    resample,
    risk_coverage,
)

SHARES = (0.2, 0.5, 0.8)
"""Coverages at which tables give the share of wrong answers."""

STATED: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "stc": lambda uncertainty: 1 - uncertainty,
    "sequence_probability": lambda uncertainty: 1 - uncertainty,
    "p_true": lambda uncertainty: np.asarray(np.exp(-uncertainty)),
    "ccp": lambda uncertainty: -uncertainty,
}
"""Methods whose uncertainty is made of a probability -> that probability."""


@dataclass(frozen=True, eq=False)
class MethodChances:
    """What the order of one method is worth on one data set."""

    name: str
    curve: SelectiveRisk
    """Risk at every coverage."""
    aurc: Estimate
    """Area under it; lower is better."""
    minus_stc: Tested | None
    """Its area minus that of STC; None for STC itself and without it."""
    chances: FloatArray | None
    """[N] cross-fitted chance of being right, NaN where there is no verdict; None with too few labels."""
    report: Report | None
    """How good these chances are."""
    stated_error: float
    """Calibration error (ECE) of the method's own probability, taken as a chance as it stands; NaN if it has none."""

    @property
    def title(self) -> str:
        """As tables print it."""
        return title_of(self.name)

    def risk_at(self, coverage: float) -> float:
        """Share of wrong answers if this share of the surest is given, and what is tied with the last of them."""
        return float(self.curve.risk[np.searchsorted(self.curve.coverage, coverage - 1e-12)])


@dataclass(frozen=True, eq=False)
class CellChances:
    """One model on one data set."""

    model: str
    dataset: str
    n: int
    """Judged answers."""
    n_correct: int
    methods: Mapping[str, MethodChances]
    """Compared methods, in the order of the cell."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.model} on {self.dataset}"

    @property
    def reason(self) -> str:
        """Why there are no chances; empty if there are."""
        if self.n < FEWEST_LABELS:
            return f"{self.n} judged answers are too few, {FEWEST_LABELS} are needed"
        kinds = (("right", self.n_correct), ("wrong", self.n - self.n_correct))
        few = [f"{count} {kind}" for kind, count in kinds if count < FEWEST_OF_EITHER]
        return f"{few[0]} answers are too few, {FEWEST_OF_EITHER} are needed" if few else ""

    @property
    def ranked(self) -> list[MethodChances]:
        """The least area under the curve first."""
        return sorted(self.methods.values(), key=lambda method: method.aurc.value)


def cell_chances(cells: Sequence[Cell], judge: str, n_resamples: int = 1000) -> tuple[CellChances, ...]:
    """Decisions and chances for every cell that has verdicts of the judge.

    Parameters
    ----------
    cells
        Of a run.
    judge
        From `chosen_judge`.
    n_resamples
        Of the bootstrap, and exchanges of the tests.
    """
    found = [_cell(cell, judge, n_resamples) for cell in cells if judge in cell.judgements and cell.uncertainty]
    return tuple(cell for cell in found if cell.n)


def _cell(cell: Cell, judge: str, n_resamples: int) -> CellChances:
    correct = cell.judgements[judge]
    judged = correct[~np.isnan(correct)]
    names = [name for name in METHODS if name in cell.uncertainty and name not in ABLATIONS]
    names += [name for name in cell.uncertainty if name not in METHODS]
    whole = CellChances(cell.model, cell.dataset, judged.size, int(judged.sum()), {})
    if not judged.size:
        return whole
    drawn = {
        name: resample("aurc", cell.uncertainty[name], correct, n_resamples=n_resamples, seed=SEED) for name in names
    }
    tested = _against_stc(cell, correct, drawn)
    methods = {
        name: _method(name, cell.uncertainty[name], correct, drawn[name], tested.get(name), not whole.reason)
        for name in names
    }
    return CellChances(whole.model, whole.dataset, whole.n, whole.n_correct, methods)


def _against_stc(cell: Cell, correct: FloatArray, drawn: Mapping[str, Resampled]) -> dict[str, Tested]:
    """The other methods' areas minus that of STC, tested on the same answers."""
    if REFERENCE not in drawn:
        return {}
    own = cell.uncertainty[REFERENCE]
    differences = {}
    for name in drawn.keys() - {REFERENCE}:
        n, values = drawn[name].n_resamples, cell.uncertainty[name]
        p = permutation_test("aurc", values, own, correct, n_permutations=n, seed=SEED)
        differences[name] = drawn[name].minus(drawn[REFERENCE], p_value=p)
    adjusted = holm([found.p_value for found in differences.values()])
    right, judged = np.nansum(correct), np.isfinite(correct).sum()
    enough = bool(min(right, judged - right) >= FEWEST)
    return {name: Tested(found, p, enough) for (name, found), p in zip(differences.items(), adjusted, strict=True)}


def _method(
    name: str, uncertainty: FloatArray, correct: FloatArray, drawn: Resampled, minus_stc: Tested | None, enough: bool
) -> MethodChances:
    chances, measured = None, None
    if enough:
        judged = ~np.isnan(correct)
        answers = Labelled(np.log(ranks(uncertainty)[judged]), correct[judged], 0)
        found, base = cross_validated(answers, "beta", seed=SEED)
        measured = report(found, base, answers.correct, cross_validated=True, seed=SEED, n_resamples=drawn.n_resamples)
        chances = np.full(correct.size, np.nan)
        chances[judged] = found
    return MethodChances(
        name=name,
        curve=risk_coverage(uncertainty, correct),
        aurc=drawn.estimate(),
        minus_stc=minus_stc,
        chances=chances,
        report=measured,
        stated_error=_stated_error(name, uncertainty, correct),
    )


def ranks(uncertainty: FloatArray) -> FloatArray:
    """Shares of answers that are less sure, in (0, 1), [n]; ties share their mean, undefined values the worst rank."""
    values = np.where(np.isnan(uncertainty), np.inf, uncertainty)
    _, where, counts = np.unique(-values, return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts
    return np.asarray((below + 0.5 * counts)[where] / values.size)


def _stated_error(name: str, uncertainty: FloatArray, correct: FloatArray) -> float:
    if name not in STATED:
        return float("nan")
    judged = ~np.isnan(correct)
    said = np.clip(np.nan_to_num(STATED[name](uncertainty[judged]), nan=0.0), 0, 1)
    return calibration_error(reliability(said, correct[judged]))
