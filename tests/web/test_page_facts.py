"""The numbers of a calibrator on the page, counted from its labels."""

from __future__ import annotations

import numpy as np
import pytest

import semtoken as st
from semtoken.guarantees.curves import LOWEST
from semtoken.web.page.facts import POINTS, calibrator_card


@pytest.fixture(scope="module")
def calibrator() -> st.Calibrator:
    generator = np.random.default_rng(0)
    scores = -generator.exponential(1, 300)
    correct = generator.random(300) < np.exp(scores / 2)
    return st.Calibrator.fit(scores, correct, alpha=0.3)


def test_the_expected_share_of_wrong_answers_is_that_of_the_surest(calibrator: st.Calibrator) -> None:
    points = calibrator_card(calibrator)["expected"]
    surest = [1 - float(calibrator.predict_proba(score)) for score in reversed(calibrator.scores)]
    assert len(points) == min(POINTS, len(surest)) and points[-1][0] == 1
    for share, wrong in points:
        n = round(share * len(surest))
        assert share == n / len(surest)
        assert wrong == pytest.approx(sum(surest[:n]) / n)


def test_the_curve_of_probabilities_is_that_of_the_calibrator(calibrator: st.Calibrator) -> None:
    points = calibrator_card(calibrator)["probabilities"]
    assert [point[0] for point in points] == pytest.approx([i / (POINTS - 1) for i in range(POINTS)])
    for uncertainty, probability, low, high in points:
        score = float(np.log1p(-uncertainty)) if uncertainty < 1 else LOWEST
        assert probability == calibrator.predict_proba(score)
        assert [low, high] == calibrator.predict_proba_interval([score])[0].tolist()


def test_the_threshold_is_the_share_of_labeled_answers_that_it_accepts(calibrator: st.Calibrator) -> None:
    card, threshold = calibrator_card(calibrator), calibrator.threshold
    assert threshold is not None and threshold.min_log_score is not None
    accepted = [score for score in calibrator.scores if score >= threshold.min_log_score]
    assert 0 < len(accepted) < len(calibrator.scores)
    assert card["threshold"] == {
        "probability_correct": calibrator.predict_proba(threshold.min_log_score),
        "accepted": len(accepted) / len(calibrator.scores),
        "alpha": 0.3,
    }
    assert [threshold.n * share for share, _ in card["tested"]] == pytest.approx(
        [test.accepted for test in threshold.tests if test.accepted]
    )
