"""Metrics against scikit-learn, all orders of ties, sums by hand, and known distributions."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap as scipy_bootstrap
from scipy.stats import norm, rankdata
from sklearn.metrics import roc_auc_score

from semtoken import metrics
from semtoken.errors import InvalidInputError
from semtoken.methods.metrics import UndefinedMetric
from semtoken.methods.metrics.calibration import prepare_calibration_error
from semtoken.methods.metrics.ranking import prepare_aurc, prepare_auroc, prepare_prr
from tests.rows import each

VIEW: Any = {"a": 0.1}.values()
# Few distinct values: ties are the rule.
answers = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0, 7.0]), st.booleans()), min_size=2, max_size=40
).filter(lambda rows: len({right for _, right in rows}) == 2)
few_answers = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 7.0]), st.booleans()), min_size=4, max_size=6).filter(
    lambda rows: len({right for _, right in rows}) == 2
)


def split(rows: list[tuple[float, bool]]) -> tuple[list[float], list[int]]:
    return [u for u, _ in rows], [int(right) for _, right in rows]


def simulated(seed: int, n: int, separation: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Normal uncertainties, wrong answers shifted up: the true AUROC is Phi(separation / sqrt(2))."""
    rng = np.random.default_rng(seed)
    correct = rng.random(n) < 0.6
    return rng.normal(size=n) + separation * ~correct, correct.astype(int)


# --- AUROC ---------------------------------------------------------------------------------------------------


@given(answers)
def test_auroc_is_scikit_learns(rows: list[tuple[float, bool]]) -> None:
    u, correct = split(rows)
    assert metrics.auroc(u, correct) == pytest.approx(roc_auc_score(1 - np.array(correct), u), abs=1e-12)


@given(answers)
def test_auroc_knows_nothing_but_order(rows: list[tuple[float, bool]]) -> None:
    u, correct = split(rows)
    assert metrics.auroc(np.exp(u), correct) == metrics.auroc(u, correct)
    assert metrics.auroc(-np.array(u), correct) == pytest.approx(1 - metrics.auroc(u, correct), abs=1e-12)


# --- PRR and the risk-coverage curve -------------------------------------------------------------------------


def area_of_order(quality: list[float], max_rejection: float) -> float:
    n = len(quality)
    heights = [sum(quality[:m]) / m for m in range(1, n + 1)]
    kept = math.floor(max_rejection * n)
    return sum(heights[n - kept :]) / kept


def area_over_all_orders_of_ties(u: list[float], quality: list[int], max_rejection: float) -> float:
    groups = [[q for v, q in zip(u, quality, strict=True) if v == value] for value in sorted(set(u))]
    orders = itertools.product(*(itertools.permutations(group) for group in groups))
    areas = [area_of_order([q for group in order for q in group], max_rejection) for order in orders]
    return sum(areas) / len(areas)


@given(few_answers, st.sampled_from([1.0, 0.6, 0.5]))
def test_prr_averages_over_every_order_of_the_ties(rows: list[tuple[float, bool]], max_rejection: float) -> None:
    u, quality = split(rows)
    area = area_over_all_orders_of_ties(u, quality, max_rejection)
    oracle = area_of_order(sorted(quality, reverse=True), max_rejection)
    random = sum(quality) / len(quality)
    areas = metrics.rejection_areas(u, quality, max_rejection)
    assert (areas.area, areas.oracle, areas.random) == pytest.approx((area, oracle, random), abs=1e-9)
    expected = (area - random) / (oracle - random)
    assert metrics.prr(u, quality, max_rejection) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.integers(-300, 300), min_size=3, max_size=20, unique=True), st.integers(0, 2**32 - 1))
def test_prr_does_not_depend_on_the_unit_of_quality(hundredths: list[int], seed: int) -> None:
    quality = [value / 100 for value in hundredths]  # steps that survive the change of unit
    u = np.random.default_rng(seed).random(len(quality))
    scaled = 10 * np.array(quality) - 4
    assert metrics.prr(u, scaled) == pytest.approx(metrics.prr(u, quality), abs=1e-6)
    assert metrics.prr(-np.array(quality), quality) == pytest.approx(1.0, abs=1e-9)
    assert metrics.prr(u, quality) <= 1.0


@given(answers)
def test_risk_coverage_and_its_area(rows: list[tuple[float, bool]]) -> None:
    u, correct = split(rows)
    curve = metrics.risk_coverage_curve(u, correct)
    n = len(u)
    np.testing.assert_allclose(curve.coverage, np.arange(1, n + 1) / n)
    assert curve.risk[-1] == pytest.approx(1 - np.mean(correct))
    for threshold in set(u):  # at the end of a tie the risk is a plain share
        answered = [c for v, c in zip(u, correct, strict=True) if v <= threshold]
        assert curve.risk[len(answered) - 1] == pytest.approx(1 - np.mean(answered))
    assert metrics.aurc(u, correct) == pytest.approx(curve.risk.mean(), abs=1e-12)
    assert metrics.aurc(u, correct) == pytest.approx(1 - metrics.rejection_areas(u, correct).area, abs=1e-12)


# --- Calibration ---------------------------------------------------------------------------------------------


@given(answers, st.integers(1, 12))
def test_calibration_error_bin_by_bin(rows: list[tuple[float, bool]], n_bins: int) -> None:
    confidence = [u / 7 for u, _ in rows]
    correct = [int(right) for _, right in rows]
    error = 0.0
    for b in range(n_bins):
        members = [m for m, c in enumerate(confidence) if b / n_bins < c <= (b + 1) / n_bins or (b == 0 and c == 0.0)]
        if members:
            gap = np.mean([correct[m] for m in members]) - np.mean([confidence[m] for m in members])
            error += len(members) / len(rows) * abs(float(gap))
    assert metrics.expected_calibration_error(confidence, correct, n_bins) == pytest.approx(error, abs=1e-9)
    fifteen = metrics.expected_calibration_error(confidence, correct, 15)
    estimate = metrics.bootstrap("expected_calibration_error", confidence, correct, n_resamples=1)
    assert metrics.expected_calibration_error(confidence, correct) == estimate.value == fifteen
    assert (estimate.n, estimate.n_left_out, estimate.n_non_finite) == (len(rows), 0, 0)


# --- Awkward input -------------------------------------------------------------------------------------------


def test_nan_and_infinity_share_the_worst_rank() -> None:
    correct = [1, 0, 0, 1]
    assert metrics.auroc([0.1, math.nan, math.inf, 0.2], correct) == 1.0
    assert metrics.auroc([0.1, math.nan, 0.3, math.inf], correct) == metrics.auroc([0.1, 9.0, 0.3, 9.0], correct)
    assert metrics.auroc([-math.inf, 0.1, 0.2, 0.0], correct) == 1.0
    assert metrics.prr([0.1, math.nan, math.inf, 0.2], correct) == pytest.approx(1.0)


def test_the_compatible_policy_ranks_nan_as_most_certain() -> None:
    u, correct = [0.1, math.nan, math.inf, -math.inf], [1, 0, 0, 1]
    assert metrics.auroc(u, correct, non_finite="lm_polygraph") == metrics.auroc([0.1, -1e7, 1e7, -1e7], correct)
    assert metrics.prr(u, correct, non_finite="lm_polygraph") < metrics.prr(u, correct)


def test_unjudged_answers_are_left_out_and_counted() -> None:
    u = [0.1, 0.9, 0.5, 0.7]
    correct: Any = [1, 0, math.nan, None]
    estimate = metrics.bootstrap("auroc", u, correct, n_resamples=10)
    assert (estimate.value, estimate.n, estimate.n_left_out) == (1.0, 2, 2)
    assert metrics.prr(u, correct) == pytest.approx(1.0)
    assert metrics.expected_calibration_error([0.9, 0.1, 0.5, 0.3], correct) == pytest.approx(0.1)


def test_non_finite_uncertainties_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    estimate = metrics.bootstrap("auroc", [0.1, math.nan, math.inf], [1, 0, 0], n_resamples=10)
    assert estimate.n_non_finite == 2
    assert "2 of 3 uncertainties are NaN or +inf" in caplog.text


@each(
    ("metric", "u", "labels", "reason"),
    [
        (metrics.auroc, [], [], "no judged answer"),
        (metrics.auroc, [0.5], [1], "no answer is wrong"),
        (metrics.auroc, [0.5, 0.6], [0, 0], "no answer is right"),
        (metrics.auroc, [0.5], [math.nan], "no judged answer"),
        (metrics.prr, [], [], "no judged answer"),
        (metrics.prr, [0.5], [1], "same quality"),
        (metrics.prr, [0.1, 0.2], [0.3, 0.3], "same quality"),
        (metrics.aurc, [], [], "no judged answer"),
        (metrics.expected_calibration_error, [], [], "no judged answer"),
    ],
)
def test_an_undefined_metric_is_nan_with_a_reason(
    metric: Callable[..., float], u: list[float], labels: list[float], reason: str
) -> None:
    with pytest.warns(UndefinedMetric, match=reason):
        assert math.isnan(metric(u, labels))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = metrics.bootstrap(metric, u, labels, n_resamples=10)
        difference = metrics.paired_difference(metric, u, u, labels, n_resamples=10)
    for result in (estimate, difference):
        assert reason in result.reason
        assert math.isnan(result.value)
        assert math.isnan(result.low)
        assert math.isnan(result.high)
    assert math.isnan(difference.p_value)


def test_rejecting_less_than_one_answer_is_undefined() -> None:
    for max_rejection in (0.2, 0.4):
        with pytest.warns(UndefinedMetric, match=f"max_rejection={max_rejection} rejects none of 4"):
            assert math.isnan(metrics.prr([1, 2, 3, 4], [1, 1, 0, 0], max_rejection))


def test_areas_and_curve_without_answers() -> None:
    assert math.isnan(metrics.rejection_areas([], []).area)
    assert metrics.risk_coverage_curve([], []).risk.size == 0


@each("curve_of", [metrics.risk_coverage, metrics.risk_coverage_curve])
def test_curves_can_be_compared_and_put_into_a_set(curve_of: Any) -> None:
    one, other = (curve_of([0.1, 0.2, 0.3], [1, 0, 1]) for _ in range(2))
    assert one == one and one != other and len({one, other}) == 2


def test_one_answer_has_a_risk() -> None:
    assert metrics.aurc([0.3], [1]) == 0.0
    assert metrics.aurc([0.3], [0]) == 1.0
    assert metrics.risk_coverage_curve([0.3], [0]).risk.tolist() == [1.0]


@each(
    ("call", "message"),
    [
        (lambda: metrics.auroc([0.1], [1, 0]), "'uncertainty' has 1 values and 'correct' has 2"),
        (lambda: metrics.auroc([0.1, 0.2], [1, 0.5]), "'correct' must be 1 .right., 0 .wrong. or NaN .*got 0.5"),
        (lambda: metrics.auroc([[0.1]], [1]), r"'uncertainty' must have one dimension, got the shape \(1, 1\)"),
        (lambda: metrics.auroc(["a"], [1]), "'uncertainty' must hold numbers only"),
        (lambda: metrics.auroc(VIEW, [1]), r"'uncertainty' must be a list or an array of numbers, got dict_values"),
        (lambda: metrics.auroc([0.1], iter(VIEW)), "'correct' must be a list or an array of numbers, got <dict_value"),
        (lambda: metrics.auroc([0.1], [1], non_finite="drop"), "'non_finite' must be one of 'worst', 'lm_polygraph'"),
        (lambda: metrics.prr([0.1, 0.2], [1, math.inf]), "'quality' holds an infinite value"),
        (lambda: metrics.prr([0.1, 0.2], [1, 0], 1.5), r"'max_rejection' must lie in \(0, 1\], got 1.5"),
        (lambda: metrics.prr([0.1, 0.2], [1, 0], ties="first"), "'ties' must be one of 'average', 'stable'"),
        (lambda: metrics.aurc([0.1], [2]), r"'correct' must lie in \[0, 1\], got 2"),
        (lambda: metrics.expected_calibration_error([1.2], [1]), r"'confidence' must lie in \[0, 1\], got 1.2"),
        (lambda: metrics.expected_calibration_error([math.nan], [1]), "'confidence' must lie in"),
        (lambda: metrics.expected_calibration_error([0.2], [1], 0), "'n_bins' must be a whole number from 1 "),
        (lambda: metrics.bootstrap("accuracy", [0.1], [1]), "'metric' must be one of auroc, prr, aurc"),
        (lambda: metrics.bootstrap("auroc", [0.1], [1], n_resamples=0), "'n_resamples' must be a whole number from 1 "),
        (lambda: metrics.bootstrap("auroc", [0.1], [1], confidence_level=95), "'confidence_level' must lie between"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


@each("kind", ["boolean", "bool[pyarrow]", "Int64", "object"])
def test_a_missing_verdict_of_pandas_is_not_judged(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    verdicts = pandas.Series([True, None, False], dtype=kind)
    few: Any = np.int64(5)
    estimate = metrics.bootstrap("auroc", [0.1, 0.3, 0.2], verdicts, n_resamples=few)
    assert (estimate.value, estimate.n, estimate.n_left_out) == (1.0, 2, 1)
    assert json.dumps(estimate.n_resamples) == "5"


def test_input_is_not_changed() -> None:
    u, correct = np.array([0.3, math.nan, 0.1]), np.array([1.0, 0.0, math.nan])
    u.flags.writeable = correct.flags.writeable = False
    metrics.bootstrap("auroc", u, correct, n_resamples=5)
    metrics.prr(u, correct)


# --- Resampling ----------------------------------------------------------------------------------------------


@given(answers, st.data())
def test_multiplicities_mean_repeated_answers(rows: list[tuple[float, bool]], data: st.DataObject) -> None:
    """The bootstrap evaluates the metric of the resample, answer by answer."""
    u, correct = np.array([v for v, _ in rows]), np.array([float(right) for _, right in rows])
    drawn = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=len(rows), max_size=len(rows))))
    counts = np.bincount(drawn, minlength=len(rows)).astype(float)[None]
    for prepared, metric in (
        (prepare_auroc(u, correct), metrics.auroc),
        (prepare_prr(u, correct), metrics.prr),
        (prepare_prr(u, correct, max_rejection=0.5), lambda a, b: metrics.prr(a, b, 0.5)),
        (prepare_aurc(u, correct), metrics.aurc),
        (prepare_calibration_error(u / 7, correct), lambda a, b: metrics.expected_calibration_error(a / 7, b)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetric)
            expected = metric(u[drawn], correct[drawn])
        assert prepared.weighted(counts)[0] == pytest.approx(expected, abs=1e-9, nan_ok=True)


def auroc_by_ranks(u: np.ndarray, correct: np.ndarray) -> float:
    wrong = correct == 0
    n_wrong, n_right = wrong.sum(), (~wrong).sum()
    return float((rankdata(u)[wrong].sum() - n_wrong * (n_wrong + 1) / 2) / (n_wrong * n_right))


def test_bootstrap_agrees_with_scipy() -> None:
    u, correct = simulated(1, 200)
    reference = scipy_bootstrap(
        (u, correct),
        auroc_by_ranks,
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    estimate = metrics.bootstrap("auroc", u, correct, n_resamples=4000)
    assert (estimate.low, estimate.high) == pytest.approx((reference.low, reference.high), abs=0.012)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    truth = norm.cdf(1 / math.sqrt(2))
    held = 0
    for seed in range(250):
        estimate = metrics.bootstrap("auroc", *simulated(seed, 150), n_resamples=200, confidence_level=0.9)
        held += estimate.low <= truth <= estimate.high
    assert 0.84 <= held / 250 <= 0.96


def test_the_same_seed_gives_the_same_interval_and_another_does_not() -> None:
    u, correct = simulated(2, 100)
    first, again, other = (metrics.bootstrap("prr", u, correct, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first.low != other.low
    assert first.low < first.value < first.high


def test_options_and_functions_are_passed_on() -> None:
    u, correct = simulated(2, 100)
    half = metrics.bootstrap(metrics.prr, u, correct, n_resamples=20, max_rejection=0.5)
    assert half.value == metrics.prr(u, correct, 0.5)


def test_resamples_of_one_class_are_counted_and_left_out() -> None:
    estimate = metrics.bootstrap("auroc", [0.1, 0.2, 0.9], [1, 1, 0], n_resamples=500)
    assert 100 < estimate.n_undefined < 400  # (2/3)^3 + (1/3)^3 = 1/3 of the draws
    assert (estimate.value, estimate.low, estimate.high) == (1.0, 1.0, 1.0)


VALUES: dict[str, Callable[..., float]] = {"auroc": metrics.auroc, "prr": metrics.prr, "aurc": metrics.aurc}


@each("metric", VALUES)
def test_the_paired_comparison_is_symmetric(metric: str) -> None:
    u, correct = simulated(0, 150)
    other = u + np.random.default_rng(1).normal(size=u.size)
    there = metrics.paired_difference(metric, u, other, correct)
    back = metrics.paired_difference(metric, other, u, correct)
    assert there.value == -back.value
    assert there.p_value == back.p_value
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=1e-12)
    value_of = VALUES[metric]
    assert there.value == value_of(u, correct) - value_of(other, correct)


def test_equal_rankings_do_not_differ() -> None:
    u, correct = simulated(0, 100)
    difference = metrics.paired_difference("auroc", u, 3 * u + 1, correct)
    assert (difference.value, difference.low, difference.high, difference.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_a_clear_difference_is_found_and_pairing_sharpens_it() -> None:
    u, correct = simulated(0, 300)
    worse = u + 1.5 * np.random.default_rng(1).normal(size=u.size)
    difference = metrics.paired_difference("auroc", u, worse, correct)
    assert difference.p_value < 0.01
    assert difference.low > 0
    alone = [metrics.bootstrap("auroc", values, correct) for values in (u, worse)]
    independent = math.hypot(*(estimate.high - estimate.low for estimate in alone))
    assert difference.high - difference.low < 0.9 * independent


def test_the_paired_test_rarely_finds_what_is_not_there() -> None:
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(1000 + seed)
        u, correct = simulated(seed, 100)
        a, b = u + rng.normal(size=100), u + rng.normal(size=100)  # equally good
        found += metrics.paired_difference("auroc", a, b, correct, n_resamples=100, seed=seed).p_value < 0.05
    assert found <= 13  # 5% expected; P(more than 13 of 100) is under 0.1%


@each(("metric", "seed"), [("auroc", 0), ("prr", 1), ("aurc", 0)])
def test_few_answers_are_exchanged_in_all_ways_as_scipy_does(metric: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    correct = rng.permutation([1, 1, 1, 0, 0, 0, 0, 0])
    a, b = (scipy.stats.rankdata(np.round(rng.normal(size=8) - share * correct, 1)) for share in (1.0, 0.3))
    value_of = VALUES[metric]

    def statistic(x: np.ndarray, y: np.ndarray) -> float:
        return round(value_of(x, correct) - value_of(y, correct), 12)

    expected = scipy.stats.permutation_test((a, b), statistic, permutation_type="samples", n_resamples=np.inf)
    assert metrics.permutation_test(metric, a, b, correct) == pytest.approx(expected.pvalue)


def test_many_answers_are_exchanged_at_random_and_units_do_not_matter() -> None:
    u, correct = simulated(4, 60)
    other = u + np.random.default_rng(4).normal(size=u.size)
    p = metrics.permutation_test("auroc", u, other, correct, n_permutations=5000)

    def statistic(x: np.ndarray, y: np.ndarray) -> float:
        return metrics.auroc(x, correct) - metrics.auroc(y, correct)

    ranks = (scipy.stats.rankdata(u), scipy.stats.rankdata(other))
    expected = scipy.stats.permutation_test(ranks, statistic, permutation_type="samples", n_resamples=1500, rng=1)
    assert p == pytest.approx(expected.pvalue, abs=0.04)
    assert metrics.permutation_test("auroc", np.exp(3 * u), other, correct, n_permutations=5000) == p


def test_a_permutation_test_needs_a_metric_of_order_and_both_kinds() -> None:
    with pytest.raises(InvalidInputError, match="auroc, prr, aurc, got 'expected_calibration_error'"):
        metrics.permutation_test("expected_calibration_error", [0.1], [0.2], [1])
    with pytest.raises(InvalidInputError, match="'n_permutations' must be a whole number from 1 "):
        metrics.permutation_test("auroc", [0.1], [0.2], [1], n_permutations=0)
    assert math.isnan(metrics.permutation_test("auroc", [0.1, 0.2], [0.2, 0.1], [1, 1]))
    assert metrics.permutation_test("auroc", [0.1, np.nan], [0.3, np.inf], [1, 0]) == 1.0


@pytest.mark.slow
def test_the_paired_test_holds_its_level_with_four_right_answers() -> None:
    """A bootstrap calls two equally good scores different in far more than 5% of runs."""
    found = {"permutation": 0, "bootstrap": 0}
    runs = 2000
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        correct = np.zeros(300)
        correct[:4] = 1.0
        shared = rng.normal(size=300) - 1.2 * correct
        a, b = shared + 0.4 * rng.normal(size=300), shared + 0.4 * rng.normal(size=300)
        found["permutation"] += metrics.permutation_test("auroc", a, b, correct, n_permutations=499, seed=seed) < 0.05
        one, two = (metrics.resample("auroc", x, correct, n_resamples=499, seed=seed) for x in (a, b))
        found["bootstrap"] += one.minus(two).p_value < 0.05
    assert found["permutation"] / runs < 0.065  # 5% expected; P(0.065 or more) is about 0.1%
    assert found["bootstrap"] / runs > found["permutation"] / runs


def test_many_methods_are_compared_from_one_resampling_each() -> None:
    u, correct = simulated(3, 80)
    other = u + np.random.default_rng(2).normal(size=u.size)
    a, b = (metrics.resample("prr", values, correct, n_resamples=200, seed=5) for values in (u, other))
    assert a.estimate(0.9) == metrics.bootstrap("prr", u, correct, n_resamples=200, seed=5, confidence_level=0.9)
    paired = metrics.paired_difference("prr", u, other, correct, n_resamples=200, seed=5)
    assert a.minus(b, p_value=paired.p_value) == paired


def test_holm_by_hand() -> None:
    # sorted 0.005, 0.01, 0.03, 0.04 -> 4 x 0.005, 3 x 0.01, 2 x 0.03, and 1 x 0.04 raised to the one before
    assert metrics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert metrics.holm([]) == []
    assert metrics.holm([0.02, math.nan, 0.01]) == pytest.approx([0.02, math.nan, 0.02], nan_ok=True)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_textbooks_steps_reject(p_values: list[float]) -> None:
    adjusted = metrics.holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= 1.0
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.array(adjusted)[order]) >= 0)
    for level in (0.01, 0.05, 0.3):  # the textbook's step-down: reject until the first that is too large
        rejected = 0
        for k, index in enumerate(order):
            if p_values[index] * (len(order) - k) > level:
                break
            rejected += 1
        assert sum(q <= level for q in adjusted) == rejected


@each("metric", ["auroc", "prr", "aurc", "expected_calibration_error"])
def test_questions_are_drawn_with_all_their_answers(metric: str) -> None:
    """Five equal answers to each question: the interval is that of one answer each, and not narrower."""
    generator = np.random.default_rng(3)
    uncertainty = generator.random(80)
    correct = (generator.random(80) > uncertainty).astype(float)
    questions = [f"q{i}" for i in range(80) for _ in range(5)]
    five = np.repeat(uncertainty, 5), np.repeat(correct, 5)
    one = metrics.bootstrap(metric, uncertainty, correct)
    drawn = metrics.bootstrap(metric, *five, questions=questions)
    assert (drawn.low, drawn.high) == pytest.approx((one.low, one.high), abs=0.02)
    singly = metrics.bootstrap(metric, *five)
    assert singly.high - singly.low < 0.65 * (drawn.high - drawn.low)
    same = metrics.bootstrap(metric, uncertainty, correct, questions=list(range(80)))
    assert (same.low, same.high) == (one.low, one.high)
    unjudged = metrics.bootstrap(metric, np.r_[five[0], 0.5], np.r_[five[1], np.nan], questions=[*questions, "q80"])
    assert (unjudged.low, unjudged.high) == (drawn.low, drawn.high)
    with pytest.raises(InvalidInputError, match="every answer needs its own"):
        metrics.bootstrap(metric, uncertainty, correct, questions=["q"])


def test_differences_of_answers_to_the_same_questions_are_tested_by_questions() -> None:
    generator = np.random.default_rng(4)
    a, b = generator.random(60), generator.random(60)
    correct = (generator.random(60) > 0.3 + 0.4 * a).astype(float)
    five = [np.repeat(values, 5) for values in (a, b, correct)]
    questions = np.repeat(np.arange(60), 5).tolist()
    by_question = metrics.paired_difference("auroc", *five, questions=questions)
    by_answer = metrics.paired_difference("auroc", *five)
    assert by_question.low < by_answer.low < by_answer.high < by_question.high
    assert by_question.p_value >= by_answer.p_value
