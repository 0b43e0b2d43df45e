"""Metrics at the places where one more or one less would show: against sums by hand, SciPy and the code of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from semtoken import metrics
from semtoken.errors import InvalidInputError
from semtoken.methods.metrics import ResampledMetric, UndefinedMetric, resampling, significance
from semtoken.methods.metrics.significance import mean_ranks

ALL = (metrics.auroc, metrics.prr, metrics.aurc, metrics.expected_calibration_error)
graded = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 3.0]), st.sampled_from([0.0, 0.3, 1.0])), min_size=1)


def resampled(values: list[float], **fields: Any) -> ResampledMetric:
    usual: dict[str, Any] = {
        "value": 0.5,
        "n": 9,
        "n_left_out": 1,
        "n_non_finite": 2,
        "n_resamples": len(values),
        "reason": "",
    }
    return ResampledMetric(values=np.array(values), **(usual | fields))


def test_confidences_reach_from_0_to_1_and_bins_to_ten_thousand() -> None:
    assert metrics.expected_calibration_error([0.0, 1.0], [0, 1]) == 0.0
    for confidence in ([0.0, 1.0, 0.5, -0.5, 1.2], [0.0, 1.0, 0.5, -0.5]):
        with pytest.raises(InvalidInputError, match=r"got -0\.5;"):
            metrics.expected_calibration_error(confidence, [1] * len(confidence))
    with pytest.raises(InvalidInputError, match="'confidence' has 2 values and 'correct' has 1;"):
        metrics.expected_calibration_error([0.1, 0.2], [1])
    assert metrics.expected_calibration_error([0.5], [1], 10_000) == 0.5
    with pytest.raises(InvalidInputError, match="'n_bins'"):
        metrics.expected_calibration_error([0.5], [1], 10_001)


def test_ten_million_draws_are_the_most() -> None:
    assert metrics.resample("auroc", [0.1], [1], n_resamples=10**7).n_resamples == 10**7  # undefined: none are drawn
    assert math.isnan(metrics.permutation_test("auroc", [0.1], [0.2], [1], n_permutations=10**7))
    with pytest.raises(InvalidInputError, match="'n_resamples'"):
        metrics.resample("auroc", [0.1], [1], n_resamples=10**7 + 1)
    with pytest.raises(InvalidInputError, match="'n_permutations'"):
        metrics.permutation_test("auroc", [0.1], [0.2], [1], n_permutations=10**7 + 1)
    for refused in (metrics.resample, metrics.bootstrap):
        with pytest.raises(InvalidInputError, match="'seed'"):
            refused("auroc", [0.1], [1], seed=-1)
    with pytest.raises(InvalidInputError, match="'seed'"):
        metrics.permutation_test("auroc", [0.1], [0.2], [1], seed=-1)


@pytest.mark.parametrize("metric", ALL)
def test_a_warning_names_the_line_that_asked(metric: Callable[..., float]) -> None:
    with pytest.warns(UndefinedMetric) as seen:
        metric([], [])
    assert seen[0].filename == __file__


def test_the_compatible_policy_puts_ten_million_for_what_is_no_number() -> None:
    for u in ([-1e7, math.nan], [math.nan, -1e7], [-1e7, -math.inf], [1e7, math.inf], [math.inf, 1e7]):
        assert metrics.auroc(u, [1, 0], non_finite="lm_polygraph") == 0.5
    found = metrics.resample("auroc", [0.1, math.nan, math.inf, -math.inf], [1, 0, 0, 1], n_resamples=1)
    assert found.n_non_finite == 2


def random_area_of_lm_polygraph(quality: np.ndarray, max_rejection: float) -> float:
    """As its code has it: the same array is shuffled again and again, and its values are the uncertainties."""
    random = np.random.RandomState(42)
    uncertainty = np.arange(len(quality))
    rejected = int(max_rejection * len(quality))
    areas = []
    for _ in range(1000):
        random.shuffle(uncertainty)
        sums = np.cumsum(quality[np.argsort(uncertainty)])[-rejected:]
        scores = (sums / np.arange((len(quality) - rejected) + 1, len(quality) + 1))[::-1]
        areas.append(np.sum(scores) / rejected)
    return float(np.mean(areas))


@pytest.mark.parametrize("max_rejection", [1.0, 0.5])
def test_the_shuffled_area_is_that_of_lm_polygraph(max_rejection: float) -> None:
    u, quality = np.random.default_rng(0).random((2, 11))
    unit = (quality - quality.min()) / (quality.max() - quality.min())
    areas = metrics.rejection_areas(u, quality, max_rejection, random="monte_carlo")
    assert areas.random == pytest.approx(random_area_of_lm_polygraph(unit, max_rejection), abs=1e-12)
    ratio = metrics.prr(u, quality, max_rejection, random="monte_carlo")
    assert ratio == pytest.approx((areas.area - areas.random) / (areas.oracle - areas.random))


def test_two_points_of_the_curve_are_enough() -> None:
    """Half of four answers are rejected: means of the first three and of all; the best order has 2/3 and 1/2."""
    value = metrics.prr([1, 2, 3, 4], [1, 0, 0, 1], 0.5)
    assert value == pytest.approx(((1 / 3 + 1 / 2) / 2 - 1 / 2) / ((2 / 3 + 1 / 2) / 2 - 1 / 2))


@pytest.mark.parametrize("max_rejection", [0.0, -0.1, 1.0001])
def test_a_share_of_nothing_cannot_be_rejected(max_rejection: float) -> None:
    with pytest.raises(InvalidInputError, match=r"'max_rejection' must lie in \(0, 1\]"):
        metrics.prr([1, 2], [1, 0], max_rejection)
    with pytest.raises(InvalidInputError, match=r"'max_rejection' must lie in \(0, 1\]"):
        metrics.rejection_areas([1, 2], [1, 0], max_rejection)


@given(graded)
def test_each_threshold_has_the_risk_of_what_it_accepts(rows: list[tuple[float, float]]) -> None:
    u, quality = [u for u, _ in rows], [q for _, q in rows]
    found = metrics.risk_coverage(u, quality)
    assert found.threshold.tolist() == sorted(set(u))
    accepted = {t: [1 - q for v, q in rows if v <= t] for t in found.threshold.tolist()}
    assert found.coverage.tolist() == pytest.approx([len(some) / len(rows) for some in accepted.values()])
    assert found.risk.tolist() == pytest.approx([sum(some) / len(some) for some in accepted.values()])
    own = [sum(accepted[v]) / len(accepted[v]) for v in u]
    assert found.aurc == pytest.approx(sum(own) / len(own))
    for metric in (metrics.risk_coverage_curve, metrics.risk_coverage, metrics.aurc):
        with pytest.raises(InvalidInputError, match=r"'correct' must lie in \[0, 1\], got -0.5"):
            metric([0.1, 0.2, 0.3], [0.0, 1.0, -0.5])


def test_a_risk_needs_an_answer() -> None:
    with pytest.raises(InvalidInputError, match="no judged answer"):
        metrics.risk_coverage([0.1], [math.nan])


def test_an_interval_leaves_out_the_same_share_on_both_sides() -> None:
    estimate = resampled([float(value) for value in range(101)] + [math.nan] * 3).estimate()
    assert (estimate.low, estimate.high) == pytest.approx((2.5, 97.5))
    assert (estimate.n_undefined, estimate.n_left_out, estimate.n_non_finite) == (3, 1, 2)
    assert estimate.confidence_level == 0.95
    assert resampled([0.0, 1.0]).estimate(0.5).low == pytest.approx(0.25)
    for level in (0.0, 1.0, -0.1):
        with pytest.raises(InvalidInputError, match="confidence_level"):
            resampled([1.0]).estimate(level)


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [
        ([1.0] * 9, 0.2),  # twice (1 + 0) of 9 + 1
        ([-1.0] * 9, 0.2),
        ([1.0] * 7 + [-1.0] * 2, 0.6),
        ([1.0] * 7 + [-1.0] * 2 + [math.nan], 0.6),
        ([1.0] * 17 + [1e-13, -1e-13], 6 / 20),  # nothing but rounding is on both sides
        ([1.0] * 5 + [-1.0] * 4, 1.0),
    ],
)
def test_a_p_value_is_twice_the_smaller_side(differences: list[float], p_value: float) -> None:
    a, b = resampled(differences), resampled([0.0] * len(differences))
    assert a.minus(b).p_value == pytest.approx(p_value)
    assert a.minus(b, p_value=0.125).p_value == 0.125
    assert a.minus(b).n_non_finite == 4


@pytest.mark.parametrize("other", [{"n": 8}, {"n_resamples": 3}, {"drawn": "else"}])
def test_differences_are_of_the_same_answers(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="not of the same answers"):
        resampled([0.0, 1.0]).minus(resampled([0.0, 1.0], **other))


def test_what_is_drawn_where_nothing_is_said() -> None:
    u, correct = [0.1, 0.4, 0.35, 0.8, 0.7, 0.2], [1, 1, 0, 0, 0, 1]
    other = [0.4, 0.1, 0.3, 0.8, 0.2, 0.7]
    told: dict[str, Any] = {"n_resamples": 1000, "seed": 0}
    assert metrics.bootstrap("aurc", u, correct) == metrics.bootstrap("aurc", u, correct, confidence_level=0.95, **told)
    by_default = metrics.paired_difference("aurc", u, other, correct)
    assert by_default == metrics.paired_difference("aurc", u, other, correct, confidence_level=0.95, **told)
    assert by_default.n_resamples == 1000
    (one, two), kinds = np.random.default_rng(1).random((2, 30)), np.arange(30) % 2
    exchanged = metrics.permutation_test("auroc", one, two, kinds)
    assert exchanged == metrics.permutation_test("auroc", one, two, kinds, n_permutations=1000, seed=0)
    assert exchanged * 1001 == pytest.approx(round(exchanged * 1001))
    assert (
        metrics.resample("aurc", u, correct).values.tolist()
        == metrics.resample("aurc", u, correct, **told).values.tolist()
    )


@pytest.mark.parametrize("questions", [0.5, "abcd", {1: 2}, ["a", "b"]])
def test_questions_are_a_list_with_one_for_each_answer(questions: Any) -> None:
    with pytest.raises(InvalidInputError, match="questions"):
        metrics.bootstrap("auroc", [0.1, 0.2, 0.3, 0.4], [1, 0, 1, 0], questions=questions, n_resamples=2)


def test_the_size_of_a_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    u, correct = np.random.default_rng(5).random(9), np.array([1, 0, 1, 1, 0, 0, 1, 0, 1])
    other = np.random.default_rng(6).random(9)

    def found() -> list[float]:
        exact = metrics.permutation_test("auroc", u, other, correct, n_permutations=600)
        return [*metrics.resample("aurc", u, correct, n_resamples=50).values.tolist(), exact]

    expected = found()
    for cells in (1, 25, 100):
        monkeypatch.setattr(resampling, "_CELLS_PER_BLOCK", cells)
        monkeypatch.setattr(significance, "_CELLS_PER_BLOCK", cells)
        assert found() == expected


def test_all_exchanges_are_tried_where_there_are_no_more_than_asked_for() -> None:
    """Three answers differ, so there are eight exchanges; only the given one and its opposite are as large."""
    correct, a, b = [1, 0, 0, 0], [1, 2, 3, 4], [4, 2, 1, 3]
    assert metrics.permutation_test("auroc", a, b, correct, n_permutations=8) * 8 == pytest.approx(2)
    drawn = metrics.permutation_test("auroc", a, b, correct, n_permutations=7) * 8
    assert drawn == pytest.approx(round(drawn)) and drawn >= 1


@given(st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 7.0, math.inf, math.nan]), min_size=1, max_size=20))
def test_ranks_are_scipys_with_what_is_no_number_last(scores: list[float]) -> None:
    last = [math.inf if math.isnan(score) else score for score in scores]
    assert mean_ranks(np.array(scores)).tolist() == scipy.stats.rankdata(last).tolist()


@pytest.mark.parametrize(("p_values", "shown"), [([0.5, -0.1, 2.0], "-0.1"), ([0.0, 1.0, 1.5, -1.0], "1.5")])
def test_the_first_p_value_outside_is_named(p_values: list[float], shown: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"must lie in \[0, 1\], got {shown}\."):
        metrics.holm(p_values)
    with pytest.raises(InvalidInputError, match="one dimension"):
        metrics.holm([[0.1]])  # type: ignore[list-item]


def test_a_p_value_is_undefined_where_the_metric_is() -> None:
    """One of twenty may be rejected where none of ten is, and the test looks at every answer twice."""
    a, correct = np.arange(10.0), np.arange(10) % 2
    assert math.isnan(metrics.permutation_test("prr", a, -a, correct, max_rejection=0.1))
    found = metrics.paired_difference("prr", a, -a, correct, max_rejection=0.1)
    assert "rejects none of 10" in found.reason and math.isnan(found.value) and math.isnan(found.p_value)
    assert metrics.permutation_test("prr", a, -a, correct, max_rejection=0.2) <= 1.0


def test_answers_to_one_question_alone_have_no_interval() -> None:
    """All draws of one question are the same: the interval was the value, as if nothing were open."""
    u, correct = np.random.default_rng(2).random(8), [1, 0, 1, 0, 1, 1, 0, 0]
    for questions in (["why"] * 8, [None] * 8):
        with pytest.raises(InvalidInputError, match="All 8 answers are to one question"):
            metrics.bootstrap("aurc", u, correct, questions=questions)
    assert metrics.bootstrap("aurc", [0.5], [1], questions=["why"]).value == 0.0
    assert metrics.bootstrap("auroc", u, [1] * 8, questions=["why"] * 8).reason == "no answer is wrong"


def test_values_of_two_metrics_have_no_difference() -> None:
    u, correct = np.random.default_rng(2).random(8), [1, 0, 1, 0, 1, 1, 0, 0]
    half = metrics.resample("prr", u, correct, max_rejection=0.5)
    for other in (metrics.resample("auroc", u, correct), metrics.resample("prr", u, correct)):
        with pytest.raises(InvalidInputError, match="the same metric"):
            half.minus(other)
    for more in ({}, {"ties": "average"}):  # which is the default
        usual: dict[str, Any] = {"max_rejection": 0.5, **more}
        assert half.minus(metrics.resample(metrics.prr, u, correct, **usual)).value == 0.0


def test_questions_may_be_read_once_only() -> None:
    (one, two), correct = np.random.default_rng(2).random((2, 8)), [1, 0, 1, 0, 1, 1, 0, 0]
    questions = [f"q{i // 2}" for i in range(8)]
    read_once: Any = iter(questions)
    found = metrics.paired_difference("auroc", one, two, correct, questions=read_once)
    assert found == metrics.paired_difference("auroc", one, two, correct, questions=questions)


@pytest.mark.parametrize("ask", [metrics.bootstrap, metrics.resample, metrics.permutation_test])
def test_an_option_of_another_metric_is_named(ask: Callable[..., Any]) -> None:
    columns = ([0.1, 0.2], [0.2, 0.1])[: 2 if ask is metrics.permutation_test else 1]
    with pytest.raises(InvalidInputError, match="auroc has no option 'max_rejection'; it has non_finite"):
        ask("auroc", *columns, [1, 0], max_rejection=0.5)
