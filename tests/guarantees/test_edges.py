"""Edges of the calibrators' rules: one case on each side."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest

import semtoken as st
from semtoken.errors import InvalidInputError
from semtoken.guarantees import curves, measures
from semtoken.guarantees.answer_records import answer_record
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.fitting import _round_up
from semtoken.guarantees.labels import identities
from semtoken.guarantees.threshold_sets import Bands, GroupThresholds
from tests.guarantees.test_calibrator import drawn, response


@pytest.mark.parametrize(("width", "both"), [(0.099, False), (0.101, True)])
def test_chances_at_both_ends_are_shown_of_wide_intervals(width: float, both: bool) -> None:
    calibrator = st.Calibrator.fit(*drawn(200))
    answer = response(math.log(0.5)).with_fields(log_confidence_interval=(math.log(0.45), math.log(0.45 + width)))
    assert ("probability_correct_at_ends" in CalibratorInUse(calibrator).block(answer)) == both


@pytest.mark.parametrize("low", [-math.inf, -1e9, -50.0])
def test_the_lower_end_of_a_score_that_may_be_as_low_as_any_has_a_chance(low: float) -> None:
    """It is no blank answer, which has none: NaN is no JSON."""
    calibrator = st.Calibrator.fit(*drawn(200))
    answer = response(math.log(0.5)).with_fields(log_confidence_interval=(low, math.log(0.9)))
    chances = CalibratorInUse(calibrator).block(answer)["probability_correct_at_ends"]
    assert chances == [calibrator.predict_proba(-50.0), calibrator.predict_proba(math.log(0.9))]


def test_names_of_another_kind_in_a_file_are_not_known() -> None:
    """As the model's: a calibrator says that it cannot tell, where it said that lists cannot be compared."""
    record = answer_record("line 1", {"log_confidence": -0.5, "signature": [1], "distribution": {"raw": 1}})
    assert record.signature is record.distribution is None
    assert CalibratorInUse(st.Calibrator.fit(*drawn(200))).block(record)["n_labels"] == 200  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "about"), [(99, "{tenths} of 10"), (100, "{percent:.0f}% of the")])
def test_a_chance_in_words(n: int, about: str) -> None:
    used = CalibratorInUse(st.Calibrator.fit(*drawn(n)))
    answer, blank = response(-0.7), response(-math.inf, text="")
    block = used.block(answer)
    low, high = (100 * end for end in block["probability_correct_interval"])
    probability_correct = 100 * block["probability_correct"]
    share = about.format(tenths=round(probability_correct / 10), percent=probability_correct)
    told = f"right in about {share} answers like this one ({low:.0f} to {high:.0f}%, {n} labels)"
    assert used.sentence(answer) == told and used.sentence(blank) == "an empty answer has no probability"
    threshold = st.Threshold.fit(*drawn(n), guarantee="miss_rate", alpha=0.3)
    deciding = CalibratorInUse(replace(used.calibrator, threshold=threshold))
    assert deciding.sentence(answer) == f"{told} · {threshold.decide(-0.7).action}"
    assert deciding.sentence(blank) == "an empty answer has no probability · abstain"


def test_how_a_calibrator_did_on_new_labels() -> None:
    calibrator = st.Calibrator.fit(*drawn(100, "good model"))
    scores, correct = drawn(150, "good model", 1)
    labels = np.where(np.arange(150) < 120, correct, math.nan)
    report = calibrator.report(scores[:120], correct[:120])
    told = CalibratorInUse(calibrator).check(scores, labels)
    assert f"log loss {report.log_loss.value:.3f}, {report.log_loss_gain.value:+.3f} [" in told
    assert told.endswith(f"ECE {report.calibration_error:.3f}.")
    for threshold in (0.5, 0.0):
        limit = replace(st.Threshold.fit(*drawn(100, "good model"), alpha=0.3), min_log_score=-threshold)
        judged = CalibratorInUse(replace(calibrator, threshold=limit)).check(scores, labels)
        inside = -scores[:120] <= threshold
        wrong = int((1 - correct[:120][inside]).sum())
        if inside.any():
            ends = binomtest(wrong, n := int(inside.sum())).proportion_ci(0.95)
            share = f"{100 * wrong / n:.4g}%, {100 * ends.low:.4g}% to {100 * ends.high:.4g}%"
            holds = binomtest(wrong, n, 0.3, "less").pvalue <= 0.1
            assert judged == (
                f"{told} It accepts {n} of 120 answers. Wrong among the accepted {wrong} of {n} ({share}); guaranteed: "
                f"at most 30%: {'holds' if holds else 'cannot be told'}."
            )
        else:
            assert judged == f"{told} It accepts none of the 120 answers."


@pytest.mark.parametrize(("moved", "theirs"), [(0.0, True), (0.019, True), (0.0225, False)])
def test_scores_within_two_hundredths_are_those_of_the_fit(moved: float, theirs: bool) -> None:
    scores, correct = drawn(80)
    calibrator = st.Calibrator.fit(scores, correct)
    assert calibrator.report(np.minimum(scores - moved, 0), correct).cross_validated == theirs
    assert not calibrator.report(scores[1:], correct[1:]).cross_validated


@pytest.mark.parametrize(("known", "same"), [(10, False), (11, True)])
def test_more_than_a_tenth_of_known_answers_are_those_of_the_fit(known: int, same: bool) -> None:
    calibrator = SimpleNamespace(labeled=tuple(f"old {i}" for i in range(50)))
    names = [f"old {i}" for i in range(known)] + [f"new {i}" for i in range(100 - known)]
    assert st.Calibrator._fitted_on(calibrator, None, names) == same  # type: ignore[arg-type]


def test_answers_are_known_by_question_and_text_whatever_their_scores() -> None:
    answers = [response(-0.1), response(-2.0), response(-math.inf)]
    first, second = identities(answers, ["Who?", "When?", "Why?"])  # a blank answer has none
    assert first != second and identities([response(-3.0)], ["Who?"]) == (first,)
    assert identities([-0.1, -2.0], ["Who?", "When?"]) == ()


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
def test_temperatures_far_from_one_are_found(temperature: float) -> None:
    """As many right ones as the temperature says, at each of some scores."""
    logs, labels = [], []
    for score in (-0.02, -0.1, -0.5, -2.0, -8.0):
        right = round(4000 * math.exp(score / temperature))
        logs += [score] * 4000
        labels += [1.0] * right + [0.0] * (4000 - right)
    assert curves.fit_temperature(np.array(logs), np.array(labels)).temperature == pytest.approx(temperature, rel=0.05)


@pytest.mark.parametrize(("score", "label", "temperature"), [(-0.01, 0.0, 0.02), (-9.0, 1.0, 50.0)])
def test_temperatures_lie_between_a_fiftieth_and_fifty(score: float, label: float, temperature: float) -> None:
    found = curves.fit_temperature(np.full(50, score), np.full(50, label)).temperature
    assert found == pytest.approx(temperature, rel=1e-4)


@pytest.mark.parametrize(("wrong", "alpha"), [(2, 0.1), (5, 0.2)])
def test_the_labels_that_would_do_are_hardly_more_than_needed(wrong: int, alpha: float) -> None:
    """So many of the 30 surest of 100 are wrong: what is said to suffice does, and two in seven fewer would not."""
    labels = np.ones(100)
    labels[:wrong] = 0
    told = st.Threshold.fit(-np.arange(1, 101) / 100, labels, alpha=alpha, start=0.3).statement
    found = re.search(r"about ([\d,]+) labels would do", told)
    assert found is not None
    accepted, share = 0.3 * int(found[1].replace(",", "")), wrong / 30
    assert binom.cdf(math.ceil(share * math.floor(accepted)), math.floor(accepted), alpha) <= 0.11
    fewer = math.floor(accepted / 1.4)
    assert binom.cdf(math.ceil(share * fewer), fewer, alpha) > 0.1


@pytest.mark.parametrize("start", [-0.1, 0.0, 1.01, 1.5])
def test_a_share_to_begin_with_is_a_share(start: float) -> None:
    with pytest.raises(InvalidInputError, match=r"start must be a share of answers in \(0, 1\]"):
        st.Threshold.fit(-np.arange(1, 101) / 100, np.ones(100), start=start)


def test_guarantees_are_ten_percent_with_ninety_percent_confidence_unless_told_otherwise() -> None:
    scores, correct = drawn(400)
    groups = ["a", "b"] * 200
    usual: dict[str, Any] = {"alpha": 0.1, "delta": 0.1}
    assert st.Threshold.fit(scores, correct) == st.Threshold.fit(scores, correct, **usual)
    assert Bands.fit(scores, correct) == Bands.fit(scores, correct, **usual)
    grouped = GroupThresholds.fit(scores, correct, groups=groups)
    assert grouped == GroupThresholds.fit(scores, correct, groups=groups, **usual)


def test_blank_answers_count_as_most_doubtful_wrong_ones_in_a_joint_guarantee() -> None:
    scores, correct = drawn(200)
    blank = st.Threshold.fit([*scores, *[-math.inf] * 30], [*correct, *[0] * 30], guarantee="joint_risk", alpha=0.2)
    doubtful = st.Threshold.fit([*scores, *[-1e6] * 30], [*correct, *[0] * 30], guarantee="joint_risk", alpha=0.2)
    assert blank.min_log_score == doubtful.min_log_score is not None
    assert blank.min_log_score != st.Threshold.fit(scores, correct, guarantee="joint_risk", alpha=0.2).min_log_score


@pytest.mark.parametrize(
    ("n", "right", "told"),
    [
        (21, 21, "needs at least 22 labeled answers. There are 21: 1 are missing."),
        (22, 0, "among 22 labeled ones, and of the 22 with the surest score 22 are wrong."),
        (22, 22, "at most 10% of all questions get a wrong answer (on 22 labeled answers: 22 accepted, 0 of them"),
    ],
)
def test_22_labels_are_the_fewest_for_a_joint_guarantee_of_ten_percent(n: int, right: int, told: str) -> None:
    found = st.Threshold.fit([-0.5] * n, [1] * right + [0] * (n - right), guarantee="joint_risk", alpha=0.1)
    assert told in found.statement and (found.n, found.n_wrong) == (n, n - right)


def test_numbers_are_rounded_up_to_two_digits() -> None:
    assert [_round_up(n) for n in (7, 99, 101, 1230, 1300, 15001)] == [7, 99, 110, 1300, 1300, 16000]


@pytest.mark.parametrize("blank", [0, 5])
def test_two_hundred_scores_without_labels_place_thresholds(blank: int) -> None:
    """Blank answers have no finite score and do not count."""
    scores, correct = drawn(300)
    unlabeled = np.r_[np.full(blank, -np.inf), np.linspace(-3, -0.01, 200)]
    found = st.Threshold.fit(scores, correct, alpha=0.3, unlabeled=unlabeled)
    assert found.tests[0].threshold in np.quantile(-unlabeled[blank:], np.linspace(found.start or 0, 1, 31))
    with pytest.raises(InvalidInputError, match="There are 199: 1 are missing"):
        st.Threshold.fit(scores, correct, alpha=0.3, unlabeled=unlabeled[:-1])


def test_twenty_groups_can_have_guarantees() -> None:
    scores, correct = drawn(210)
    assert len(GroupThresholds.fit(scores, correct, groups=[i % 20 for i in range(210)]).thresholds) == 20
    with pytest.raises(InvalidInputError, match="There are 21 groups, and at most 20"):
        GroupThresholds.fit(scores, correct, groups=[i % 21 for i in range(210)])


@pytest.mark.parametrize(("inside", "end", "outside"), [(-1.1e-6, -1e-6, 0.0), (-49.0, -50.0, -70.0)])
def test_chances_end_with_a_millionth_and_fifty_nats(inside: float, end: float, outside: float) -> None:
    for curve in (curves.fit_beta(*drawn(400)), curves.fit_platt(*drawn(400))):
        probabilities = [float(curve(np.array([score]))[0]) for score in (inside, end, outside)]
        assert probabilities[0] != probabilities[1] == probabilities[2]


def test_a_temperature_divides_the_log_score() -> None:
    assert curves.Temperature(2.0)(math.log(0.25)) == pytest.approx(0.5)


def test_intervals_of_means_leave_out_one_in_forty_on_each_side() -> None:
    """Resampled means of 20 zeros and 20 ones are binomial: one in forty is at most 13, 12 or fewer are one in 60."""
    losses = {"loss": np.repeat([0.0, 1.0], 20)}
    found = measures.mean_intervals(losses, n_resamples=10_000)["loss"]
    assert (found.low, found.high) == (binom.ppf(0.025, 40, 0.5) / 40, binom.ppf(0.975, 40, 0.5) / 40)


def test_questions_are_drawn_with_all_their_answers_however_many_each_has() -> None:
    groups, values = np.array([0, 0, 0, 1, 2, 2]), np.array([0.1, 0.4, 0.2, 5.0, 1.0, 3.0])
    found = measures.mean_intervals({"value": values}, groups, seed=3, n_resamples=500)["value"]
    draws = np.random.default_rng(3).integers(0, 3, (500, 3))
    means = [np.concatenate([values[groups == question] for question in draw]).mean() for draw in draws]
    low, high = np.quantile(means, [0.025, 0.975])
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
