"""The tests of a guarantee: expectations by hand, level and delay by simulation, bounds by what they mean."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom

from semtoken.errors import InvalidInputError
from semtoken.guarantees.betting import LEVEL, _start_shares, change_evidence, find_change, wrong_share
from tests.rows import each


@each("alpha", [0.05, 0.1, 0.3, 0.9])
@each("share", [1.0, 0.5, 0.0])
def test_a_kept_guarantee_wins_nothing_on_average(alpha: float, share: float) -> None:
    """All 2^12 streams with their probabilities: mean wealth 1 at the limit, below 1 under it, after every label."""
    streams = np.array(list(itertools.product([False, True], repeat=12)))
    p = alpha * share
    weights = p ** streams.sum(axis=1) * (1 - p) ** (~streams).sum(axis=1)
    means = weights @ np.exp(change_evidence(streams, alpha))
    if share == 1.0:
        assert means == pytest.approx(np.ones(12), abs=1e-9)
    else:
        assert (means < 1).all()


def test_the_level_holds_for_all_looks_together() -> None:
    wrong = np.random.default_rng(1).random((500, 1000)) < 0.1
    alarms = int((change_evidence(wrong, 0.1) >= -math.log(LEVEL)).any(axis=1).sum())
    assert alarms <= binom.ppf(0.999, 500, LEVEL)


def test_a_change_is_noticed_soon_and_dated() -> None:
    generator = np.random.default_rng(2)
    found = [find_change(generator.random(900) < np.where(np.arange(900) < 700, 0.05, 0.4), 0.1) for _ in range(25)]
    assert all(one is not None for one in found)
    noticed = np.array([one.noticed for one in found if one])
    since = np.array([one.since for one in found if one])
    assert np.mean(noticed >= 700) > 0.9
    assert np.median(noticed) < 760 and abs(np.median(since) - 700) < 15


def test_evidence_of_the_past_is_not_rewritten() -> None:
    """A further label changes nothing that was said before it: that is what makes looking every day free."""
    wrong = np.random.default_rng(3).random(300) < 0.2
    whole = change_evidence(wrong, 0.1)
    for n in (1, 10, 11, 137):
        assert change_evidence(wrong[:n], 0.1) == pytest.approx(whole[:n], rel=1e-12)


@given(st.integers(0, 400), st.integers(0, 400))
def test_bounds_hold_the_share_and_mirror(wrong: int, right: int) -> None:
    n = wrong + right
    low, high = wrong_share(wrong, n)
    assert 0 <= low <= high <= 1
    if n:
        assert low <= wrong / n <= high
    assert wrong_share(right, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.slow
def test_bounds_are_wider_than_those_of_one_look_and_miss_seldom() -> None:
    from scipy.stats import beta

    assert wrong_share(5, 100)[1] > beta.ppf(0.975, 6, 95)
    generator, missed = np.random.default_rng(4), 0
    for _ in range(200):
        wrong = np.cumsum(generator.random(400) < 0.15)
        looks = [wrong_share(int(wrong[n - 1]), n) for n in range(10, 401, 15)]
        missed += any(not low <= 0.15 <= high for low, high in looks)
    assert missed <= binom.ppf(0.999, 200, LEVEL)


def test_what_the_level_is_of() -> None:
    """Kept while no probability is above alpha, however they vary; not where they are so on average only, nor where
    wrong answers come sooner: docs/watch.md says both.
    """
    generator, streams = np.random.default_rng(8), (300, 1000)
    place, below = np.arange(streams[1]), -math.log(LEVEL)

    def called(wrong: np.ndarray) -> int:
        return int((change_evidence(wrong, 0.1).max(axis=1) >= below).sum())

    drawn = generator.random(streams)
    kept = drawn < np.where(place // 250 % 2 == 0, 0.02, 0.1)
    assert called(kept) <= binom.ppf(0.999, streams[0], LEVEL)
    on_average = drawn < np.where(place // 250 % 2 == 0, 0.04, 0.16)
    assert called(on_average) > binom.ppf(0.999, streams[0], LEVEL)
    wrong = drawn < 0.1
    sooner = np.argsort(place - 200 * wrong, axis=1, kind="stable")
    assert called(np.take_along_axis(wrong, sooner, axis=1)) == streams[0]


@pytest.mark.parametrize("labels", [[0.5, 1], [[[]], 2], "no"])
def test_labels_must_be_labels(labels: object) -> None:
    with pytest.raises(InvalidInputError):
        find_change(labels, 0.1)  # type: ignore[arg-type]


def test_levels_must_be_shares() -> None:
    with pytest.raises(InvalidInputError):
        find_change([True], 1.0)
    with pytest.raises(InvalidInputError):
        wrong_share(3, 2)
    with pytest.raises(InvalidInputError):
        wrong_share(-1, 2)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_bounds_have_no_level_that_is_no_share(level: float) -> None:
    with pytest.raises(InvalidInputError, match=r"level.* (must lie between 0 and 1|must be a finite number)"):
        wrong_share(1, 10, level)


def _upper_end_by_hand(wrong: int, n: int, level: float) -> float:
    """The largest claim "at least m" that no bet refutes, with wealths as plain products: half of the level an end."""
    sizes = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)

    def wealth(m: float) -> float:
        return sum((1 - c) ** wrong * (1 + c * m / (1 - m)) ** (n - wrong) for c in sizes) / len(sizes)

    return float(brentq(lambda m: wealth(m) - 1 / (level / 2), wrong / n, 0.9, xtol=1e-13))


@pytest.mark.parametrize(("wrong", "n", "level"), [(5, 100, 0.05), (0, 30, 0.05), (20, 60, 0.2), (1, 200, 0.01)])
def test_each_end_of_the_interval_has_half_of_the_level(wrong: int, n: int, level: float) -> None:
    high = _upper_end_by_hand(wrong, n, level)
    assert wrong_share(wrong, n, level)[1] == pytest.approx(high, abs=1e-9)
    assert wrong_share(n - wrong, n, level)[0] == pytest.approx(1 - high, abs=1e-9)
    assert wrong_share(5, 100)[1] == pytest.approx(0.1503, abs=5e-5)


def test_the_shares_of_bets_that_ever_begin_sum_to_nearly_one() -> None:
    """The rest beyond a million blocks is at most the integral of 0.5 / 1.1 / (x log(x)^2), which is a logarithm's."""
    shares = _start_shares(10**7)
    rest = 0.5 / 1.1 / math.log(shares.size + 1)
    assert shares[:3] == pytest.approx([0.5, *(0.5 / 1.1 / (j * math.log(j) ** 2) for j in (3, 4))])
    assert 0.97 < shares.sum() + rest < 1
    assert (shares > 0).all()


def _factors_by_hand(alpha: float) -> list[tuple[float, float]]:
    """Factors of each bet after a wrong and a right answer: likelihoods of a larger share against alpha."""
    larger = sorted({min(ratio * alpha, (1 + alpha) / 2) for ratio in (1.25, 1.5, 2, 3, 5, 8)})
    return [(share / alpha, (1 - share) / (1 - alpha)) for share in larger]


def _wealth_by_hand(wrong: list[bool], alpha: float) -> float:
    """One bet of each size from every tenth label on, each with its share of the wealth; the rest is kept back."""
    factors, kept, wealth = _factors_by_hand(alpha), 1.0, 0.0
    for block, start in enumerate(range(0, len(wrong), 10)):
        share = 0.5 / 1.1 / ((block + 2) * math.log(block + 2) ** 2) if block else 0.5
        kept -= share
        for factor in factors:
            wealth += share / len(factors) * math.prod(factor[0] if bad else factor[1] for bad in wrong[start:])
    return kept + wealth


@pytest.mark.parametrize("alpha", [0.03, 0.1, 0.5])
def test_wealth_is_that_of_plain_products(alpha: float) -> None:
    wrong = (np.random.default_rng(5).random(57) < 2 * alpha).tolist()
    found = np.exp(change_evidence(wrong, alpha))
    assert found == pytest.approx([_wealth_by_hand(wrong[: n + 1], alpha) for n in range(57)], rel=1e-9)


@pytest.mark.parametrize(("alpha", "level"), [(0.1, 0.05), (0.1, 0.001), (0.3, 0.2)])
def test_a_change_is_where_the_wealth_passes_and_since_where_the_labels_favor_it_most(
    alpha: float, level: float
) -> None:
    wrong = (np.random.default_rng(6).random(120) < np.where(np.arange(120) < 40, alpha / 2, 0.8)).tolist()
    wealth = [_wealth_by_hand(wrong[: n + 1], alpha) for n in range(120)]
    noticed = next(n for n in range(120) if wealth[n] >= 1 / level)

    def favor(start: int) -> float:
        return max(
            math.prod(factor[0] if bad else factor[1] for bad in wrong[start : noticed + 1])
            for factor in _factors_by_hand(alpha)
        )

    found = find_change(wrong, alpha, level)
    assert found is not None and (found.noticed, found.since) == (noticed, max(range(noticed + 1), key=favor))
