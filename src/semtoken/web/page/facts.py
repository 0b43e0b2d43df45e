"""The facts that the page shows about a model and its calibrator, as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from semtoken.core.scorer import Scorer
from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import AnswerRecord
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.calibrator import Calibrator
from semtoken.guarantees.curves import LOWEST
from semtoken.guarantees.fingerprint import known_values
from semtoken.guarantees.labels import CONFIDENCE, PRODUCT
from semtoken.methods import METHODS

POINTS = 41
FEWEST_LABELS = 20
"""Fewest labeled answers that get a plot of their own."""


def page_facts(
    scorer: Scorer,
    applied: CalibratorInUse | None,
    *,
    review: bool,
    model: str | None = None,
    upstream: str | None = None,
    disputes: bool = False,
    methods: Sequence[str] = (),
) -> dict[str, Any]:
    """The facts of a server that `/semtoken/info` answers with.

    `review` says whether there is a journal whose answers people label, `disputes` whether the model can be asked what
    else it could have meant. `model` is None where the page has to ask the `upstream`, a server behind, for its models;
    `methods` are numbers that a question may ask for in place of the confidence.
    """
    return {
        "model": model,
        "clusters": None if scorer.clusters is None else scorer.clusters.signature,
        "parts": True,
        "disputes": disputes,
        "methods": {name: METHODS[name].title for name in methods if name != CONFIDENCE},
        **({} if upstream is None else {"upstream": upstream}),
        "review": review,
        **({} if applied is None else {"calibrator": calibrator_card(applied.calibrator)}),
    }


def calibrator_card(calibrator: Calibrator) -> dict[str, Any]:
    """A calibrator for the page: numbers of labels, the guarantee, its threshold as a probability, and points of two
    plots.

    `probabilities` holds (uncertainty, probability, lower, upper), each in [0, 1]; `expected` holds (share answered,
    expected share of wrong answers among them) by the probabilities of the labeled answers; `tested` holds the same
    pair as counted on the labeled answers, for every threshold that the guarantee was tested at.
    """
    threshold = calibrator.threshold
    card: dict[str, Any] = {
        "n_labels": calibrator.n,
        "n_correct": calibrator.n_correct,
        "method": calibrator.method,
        "by": calibrator.fingerprint.method or PRODUCT,
        "created": calibrator.created,
        "facts": {name: str(value) for name, value in known_values(calibrator.fingerprint).items()},
        "probabilities": _probabilities(calibrator),
        "expected": _expected(calibrator),
    }
    if threshold is not None:
        card["guarantee"] = threshold.statement
        card["tested"] = [
            [test.accepted / threshold.n, test.wrong / test.accepted] for test in threshold.tests if test.accepted
        ]
        if threshold.min_log_score is not None:
            score = max(threshold.min_log_score, LOWEST)
            scores = np.array(calibrator.scores)
            card["threshold"] = {
                "probability_correct": float(calibrator.predict_proba(score)),
                "accepted": float(np.mean(scores >= score)),
                "alpha": threshold.alpha,
            }
    return card


def _probabilities(calibrator: Calibrator) -> list[list[float]]:
    uncertainty = np.linspace(0.0, 1.0, POINTS)
    with np.errstate(divide="ignore"):
        scores = np.maximum(np.log1p(-uncertainty), LOWEST).tolist()
    bounds = calibrator.predict_proba_interval(scores)
    columns = (uncertainty, calibrator.predict_proba(scores), bounds[:, 0], bounds[:, 1])
    return [[float(value) for value in row] for row in zip(*columns, strict=True)]


def _expected(calibrator: Calibrator) -> list[list[float]]:
    """Share answered and expected share of wrong answers, the surest answers first; at most `POINTS` of them."""
    probabilities = np.asarray(calibrator.predict_proba(list(calibrator.scores)))[::-1]
    wrong = np.cumsum(1.0 - probabilities) / np.arange(1, probabilities.size + 1)
    shown = np.unique(np.linspace(0, probabilities.size - 1, min(POINTS, probabilities.size)).round().astype(int))
    return [[(i + 1) / probabilities.size, float(wrong[i])] for i in shown.tolist()]


def reliability_card(calibrator: Calibrator, answers: Sequence[AnswerRecord]) -> dict[str, Any]:
    """The shares of right answers at similar probabilities, as fields of the card; empty for too few answers.

    `reliability` holds (probability, share right, lower, upper) of each group, cross-validated on the answers of the
    fit.
    """
    seen = [
        answer for answer in answers if answer.correct is not None and answer.log_confidence not in (None, -math.inf)
    ]
    if len(seen) < FEWEST_LABELS:
        return {}
    try:
        report = calibrator.report(seen, [answer.correct for answer in seen])
    except InvalidInputError:  # those of the fit among them, and too few of either kind to cross-validate
        return {}
    points = [[group.probability_correct, group.right, group.low, group.high] for group in report.bins]
    return {"reliability": points, "cross_validated": report.cross_validated}
