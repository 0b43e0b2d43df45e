"""Selective answering: what share of the answered questions is wrong, at every threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInput
from semtoken.metrics.inputs import FloatArray, judged_answers, require_within_unit
from semtoken.metrics.ranking import NO_ANSWER, tied_groups


@dataclass(frozen=True)
class SelectiveRisk:
    """One point for each distinct uncertainty: answer everything up to it, abstain from the rest."""

    threshold: FloatArray
    """[m] the distinct uncertainties, ascending."""
    coverage: FloatArray
    """[m] share of questions that are answered; the last is 1."""
    risk: FloatArray
    """[m] share of wrong answers among these."""
    aurc: float
    """Mean over answers of the risk at their own threshold, in [0, 1]; lower is better."""


def risk_coverage(uncertainty: npt.ArrayLike, correct: npt.ArrayLike, *, non_finite: str = "worst") -> SelectiveRisk:
    """Coverage and risk of every threshold that accepts answers of equal uncertainty together.

    `risk_coverage_curve` has a point for every answer instead, with the expected risk inside a tie. Without ties the
    two agree.

    Parameters
    ----------
    uncertainty, correct, non_finite
        As in `auroc`; `correct` may also be a graded quality in [0, 1].

    Raises
    ------
    InvalidInput
        There is no judged answer, or the arrays cannot be used.

    Examples
    --------
    >>> curve = risk_coverage([0.2, 0.1, 0.2, 0.9], [0, 1, 1, 0])
    >>> curve.coverage.tolist(), round(curve.aurc, 4)
    ([0.25, 0.75, 1.0], 0.2917)
    """
    answers = judged_answers(uncertainty, correct, target_name="correct", non_finite=non_finite)
    require_within_unit(answers.target, "correct")
    n = answers.target.size
    if n == 0:
        raise InvalidInput(f"A risk-coverage curve needs answers: {NO_ANSWER}.")
    order, starts = tied_groups(answers.score)
    sizes = np.diff(np.append(starts, n))
    accepted = np.cumsum(sizes)
    risk = np.cumsum(np.add.reduceat((1.0 - answers.target)[order], starts)) / accepted
    return SelectiveRisk(answers.score[order][starts], accepted / n, risk, float((risk * sizes).sum() / n))
