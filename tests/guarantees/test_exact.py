"""The arithmetic of the guarantees against counting by brute force, in exact fractions where it is small."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest

import semtoken as st
from semtoken.errors import InvalidInputError
from semtoken.guarantees import exact
from semtoken.guarantees.judge import Share
from semtoken.guarantees.labeling import label_order
from tests.rows import each


def cdf(wrong: int, n: int, alpha: float) -> float:
    """P(Bin(n, alpha) <= wrong), by its sum."""
    p = Fraction(str(alpha))
    return float(sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(wrong + 1)))


@pytest.mark.parametrize(("alpha", "delta"), [(0.1, 0.1), (0.3, 0.05), (0.02, 0.2)])
def test_labels_needed_and_bounds_are_those_of_the_binomial_sum(alpha: float, delta: float) -> None:
    needed = [exact.labels_needed(wrong, alpha, delta) for wrong in range(8)]
    assert needed == [next(n for n in range(w, 1000) if cdf(w, n, alpha) <= delta) for w in range(8)]
    for wrong, n in ((0, 5), (3, 40), (7, 90)):
        assert exact.binomial_p_value(wrong, n, alpha) == pytest.approx(cdf(wrong, n, alpha), rel=1e-9)
        low, high = Share(wrong, n).within(1 - 2 * delta)
        # As few wrong ones would be as rare at the upper end as as many at the lower one.
        assert cdf(wrong, n, high) == pytest.approx(delta, rel=1e-6)
        assert low == 0 if wrong == 0 else 1 - cdf(wrong - 1, n, low) == pytest.approx(delta, rel=1e-6)
    assert exact.binomial_p_value(0, 0, alpha) == Share(5, 5).interval[1] == 1.0
    assert Share(0, 0).interval == (0.0, 1.0) and str(Share(0, 0)) == "0 of 0"
    assert str(Share(1, 2)) == "1 of 2 (50%, 1.258% to 98.74%)"  # 1 - sqrt(0.975) = 0.01258
    for n in (22, 50, 100, 700, 3000):
        most = max(w for w in range(300) if w == 0 or exact.labels_needed(w, alpha, delta) <= 0.3 * n)
        share = min(1.0, 1.1 * exact.labels_needed(most, alpha, delta) / n)
        assert exact.starting_share(n, alpha, delta) == pytest.approx(share, rel=1e-12)


@each("n", [30, 60, 500, 1000, 5000])
@each("alpha", [0.02, 0.1, 0.3])
def test_a_plan_goes_from_strict_to_loose_and_spends_all_of_delta(n: int, alpha: float) -> None:
    plan = exact.FixedSequences.of(n, alpha, 0.1)
    assert (np.diff(plan.shares) >= 0).all() and plan.shares[-1] == 1.0
    assert sum(plan.parts) == pytest.approx(1.0) and plan.parts[0] > 0


def test_shares_and_thresholds_of_the_sequence_by_hand() -> None:
    shares = exact.shares_of_coverage(0.4)
    assert shares == pytest.approx([0.4 + 0.02 * k for k in range(31)])
    uncertainty = np.array([0.5, 0.1, 0.3, 0.2, 0.3, 0.9, 0.4, 0.8, 0.7, 0.6])
    # 40% of 10: the fourth smallest, which is 0.3; 44% is the fourth, 46% the fifth, also 0.3; 100% is everything.
    placed = exact.own_thresholds(uncertainty, shares.tolist())
    assert list(dict.fromkeys(placed)) == [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, math.inf] and len(placed) == 31
    assert exact.own_thresholds(uncertainty, [0.01, 0.95]) == [0.1, math.inf]
    # All of 22 right answers are needed to show 10% with a chance of 10%: 0.9**21 is 0.109, 0.9**22 is 0.098.
    for n, start, first in ((100, 0.1, 0.22), (100, 0.9, 0.9), (100, 1.0, 1.0), (25, 0.1, 0.88), (10, 0.1, 1.0)):
        assert exact.FixedSequences.of(n, 0.1, 0.1, start).shares[0] == pytest.approx(first)
    plan = exact.FixedSequences((0.1, 0.2, 0.3, 1.0), (0.25, 0.0, 0.5, 0.25))
    assert plan.placed([0.2, 0.3, 0.3, math.inf]) == ([0.2, 0.3, math.inf], [0.25, 0.5, 0.25])
    correct = np.array([1, 1, 1, 1, 0, 0, 1, 0, 1, 1])
    kept, tests = exact.fixed_sequence(uncertainty, correct, [0.2, 0.3, 0.8, 0.9], 0.5, 0.35)
    counted = [
        exact.Test(0.2, 2, 0, 0.25),
        exact.Test(0.3, 4, 1, 0.3125),
        exact.Test(0.8, 9, 2, 46 / 512),
        exact.Test(0.9, 10, 3, 176 / 1024),
    ]
    assert kept == 0.9 and [vars(one) for one in tests] == [pytest.approx(vars(one)) for one in counted]
    kept, tests = exact.fixed_sequence(uncertainty, correct, [0.2, 0.3, 0.8, 0.9], 0.5, 0.3)
    assert kept == 0.2 and len(tests) == 2


def test_guarantees_on_average_are_the_loosest_that_their_counts_allow() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        n, alpha = int(generator.integers(3, 40)), float(generator.choice([0.05, 0.1, 0.25, 0.5]))
        uncertainty, correct = generator.integers(1, 12, n) / 10, generator.integers(0, 2, n).astype(float)
        allowed = [t for t in uncertainty if ((uncertainty <= t) & (correct == 0)).sum() + 1 <= alpha * (n + 1) + 1e-9]
        assert exact.joint_risk(uncertainty, correct, alpha) == (max(allowed) if allowed else None)
        wrong = sorted(uncertainty[correct == 0])
        rank = math.floor(Fraction(str(alpha)) * (len(wrong) + 1))
        threshold = None if not rank else math.inf if rank > len(wrong) else wrong[rank - 1]
        assert exact.wrong_answers_caught(uncertainty, correct, alpha) == (threshold, len(wrong), rank)
        new = generator.integers(1, 12, 15) / 10
        p_values = [(1 + sum(w <= u for w in wrong)) / (n + 1) for u in new]
        cut = max((p for p in p_values if p * 15 <= alpha * sum(q <= p for q in p_values) + 1e-9), default=-1.0)
        found, chosen = exact.batch_selection(uncertainty, correct, new, alpha)
        assert found == pytest.approx(p_values) and chosen == [i for i, p in enumerate(p_values) if p <= cut]


def test_a_forecast_counts_sets_drawn_from_the_labels() -> None:
    generator = np.random.default_rng(0)
    uncertainty, correct = generator.exponential(1, 60), np.append(np.ones(52), np.zeros(8))
    told, counts = exact.forecast(uncertainty, correct, 0.2, 0.1, start=0.3, seed=3), []
    draws = np.random.default_rng(3)
    for n in (60, 120, 240, 600):
        came = 0
        for _ in range(100):
            drawn = draws.integers(60, size=n)
            place = max(round(0.3 * n), 11)  # 0.8^11 is below 0.1
            inside = uncertainty[drawn] <= np.sort(uncertainty[drawn])[place - 1]
            came += cdf(int((1 - correct[drawn][inside]).sum()), int(inside.sum()), 0.2) <= 0.1
        counts.append(came)
    assert [int(one.replace(",", "")) for one in re.findall(r"(\d+) with ([\d,]+)", told)[0]] == [counts[0], 60]
    assert [(int(c), int(n)) for c, n in re.findall(r"(\d+) with (\d+)", told)] == list(
        zip(counts, (60, 120, 240, 600), strict=True)
    )
    assert "Of 100 sets" in told and "at most 20% wrong" in told and len(set(counts)) == 4
    assert "Of 100 sets of labels drawn from these" in exact.forecast(uncertainty[:5], correct[:5], 0.2, 0.1)


def test_a_sequence_with_several_starts_spends_delta_once() -> None:
    """By hand: a pass hands its part on, a failure loses it, and a threshold with nothing to spend is not tried."""
    uncertainty, correct = np.array([1.0, 2, 3, 4, 5, 6, 7, 8]), np.array([1, 1, 0, 0, 1, 1, 1, 1])
    grid, half = [2.0, 4.0, 5.0, 8.0], 0.5
    p = {2.0: 0.25, 4.0: 11 / 16, 5.0: 0.5, 8.0: 37 / 256}  # P(Bin(m, 1/2) <= wrong)
    kept, tests = exact.fixed_sequence(uncertainty, correct, grid, half, 0.4, [0.7, 0.0, 0.0, 0.3])
    assert [test.threshold for test in tests] == [2.0, 4.0, 8.0] and kept == 2.0  # 0.25 <= 0.28; 0.14 > 0.12
    assert [test.p_value for test in tests] == pytest.approx([p[2.0], p[4.0], p[8.0]])
    kept, tests = exact.fixed_sequence(uncertainty, correct, grid, half, 0.6, [0.7, 0.0, 0.0, 0.3])
    assert kept == 8.0 and len(tests) == 3  # 0.14 <= 0.18, though a stricter threshold failed
    kept, tests = exact.fixed_sequence(uncertainty, correct, [2.0, 8.0], half, 0.4, [0.7, 0.3])
    assert kept == 8.0  # 0.4 after the first has passed


@pytest.mark.parametrize(("n", "alpha", "delta"), [(22, 0.1, 0.1), (60, 0.1, 0.1), (199, 0.05, 0.2), (1000, 0.3, 0.01)])
def test_the_wrong_answers_that_may_pass_are_counted_by_the_binomial_sum(n: int, alpha: float, delta: float) -> None:
    k = exact.most_wrong(n, alpha, delta)
    assert cdf(k, n, alpha) <= delta < cdf(k + 1, n, alpha)
    assert exact.most_wrong(21, 0.1, 0.1) == -1 and exact.most_wrong(9, 0.1, None) == 0


def test_labels_that_are_missing_are_counted() -> None:
    assert exact.shortage(22, 0.1, 0.1) == ""
    told = exact.shortage(21, 0.1, 0.1)
    assert "at least 22 labeled answers; you have 21" in told and "confidence 90%" in told and "most 10% wrong" in told
    for level in (0.0, 1.0, 0.5e-12):
        with pytest.raises(InvalidInputError, match="between 0 and 1"):
            exact.check_level(level, "alpha")
    assert exact.check_level(1e-12, "alpha") == 1e-12
    assert (exact.percent(0.1), exact.percent(0.12345)) == ("10%", "12.35%")


@pytest.mark.parametrize("delta", [1e-6, 0.1 / 20 / 500, 1e-12])
def test_a_confidence_below_one_is_never_called_100_percent(delta: float) -> None:
    """Any delta is allowed, and 'With confidence 100%' was said of those below 0.00005."""
    written = exact.percent(1 - delta)
    assert 1 - float(written.removesuffix("%")) / 100 == pytest.approx(delta, rel=0.5, abs=0)
    assert written in exact.shortage(1, 0.1, delta)
    assert exact.percent(1.0) == "100%" and exact.percent(0.99994) == "99.99%"


def test_an_order_of_labels_visits_ranks_as_van_der_corput_does() -> None:
    """0, 1/2, 1/4, 3/4, 1/8, 5/8, ... from a random start, each rank once."""
    scores = [0.1, 0.9, 0.5, 0.3, 0.7]
    order = label_order(scores, seed=4)
    shift = np.random.default_rng(4).random()
    places = [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8, 3 / 8, 7 / 8, 1 / 16, 9 / 16, 5 / 16, 13 / 16, 3 / 16, 11 / 16]
    ranks = list(dict.fromkeys(int((place + shift) % 1 * 5) for place in places))
    assert [sorted(scores).index(scores[one]) for one in order] == ranks and len(ranks) == 5


@pytest.mark.parametrize("distinct", [2, 3, 5, 1000])
def test_a_forecast_says_of_labels_what_the_fit_says_of_them(distinct: int) -> None:
    """Of few different scores, the surest tenth has the same threshold as the surest twentieth, and both parts."""
    generator = np.random.default_rng(distinct)
    came = []
    for n in (500, 1000) * 60:
        uncertainty = generator.integers(distinct, size=n) / distinct
        correct = generator.random(n) > generator.uniform(0.03, 0.12) + 0.3 * uncertainty
        came.append(exact.comes(uncertainty, correct.astype(float), 0.1, 0.1))
        assert came[-1] == (st.Threshold.fit(-uncertainty, correct).min_log_score is not None)
    assert 10 < sum(came) < 110


@pytest.mark.parametrize(("n", "comes"), [(21, False), (22, True), (37, True)])
def test_a_drawn_set_of_right_answers_passes_from_22_on(n: int, comes: bool) -> None:
    assert exact.comes(np.arange(n) / n, np.ones(n), 0.1, 0.1) == comes
