"""Measures of probabilities against counting by hand, and intervals against SciPy's bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest, bootstrap, ks_2samp

from semtoken.errors import InvalidInputError
from semtoken.guarantees.drift import drift
from semtoken.guarantees.measures import Bin, calibration_error, log_losses, reliability, report


def world(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    probabilities = generator.uniform(0.05, 0.95, n)
    return probabilities, (generator.random(n) < probabilities).astype(float)


@pytest.mark.parametrize(("n", "bins"), [(9, 1), (10, 1), (19, 1), (20, 2), (99, 9), (100, 10), (1000, 10)])
def test_ten_bins_from_a_hundred_answers_on(n: int, bins: int) -> None:
    probabilities, correct = world(n)
    found = reliability(probabilities, correct)
    order = np.argsort(probabilities)
    assert len(found) == bins and sum(one.n for one in found) == n
    done = 0
    for one in found:
        inside = order[done : done + one.n]
        done += one.n
        right = int(correct[inside].sum())
        interval = binomtest(right, one.n).proportion_ci(0.95, method="wilson")
        values = (one.probability_correct, one.right, one.low, one.high)
        assert values == pytest.approx((probabilities[inside].mean(), right / one.n, interval.low, interval.high))
        assert abs(one.n - n / bins) <= 1
    error = sum(one.n / n * abs(one.probability_correct - one.right) for one in found)
    assert calibration_error(found) == pytest.approx(error)
    assert calibration_error([Bin(1, 0.5, 0.7, 0, 1), Bin(3, 0.2, 0.1, 0, 1)]) == pytest.approx((0.2 + 3 * 0.1) / 4)


def test_losses_and_their_intervals() -> None:
    probabilities, correct = world(300, seed=1)
    base = np.full(300, 0.6)
    assert log_losses(np.array([0.8, 0.8]), np.array([1.0, 0.0])) == pytest.approx([-np.log(0.8), -np.log(0.2)])
    found = report(probabilities, base, correct, cross_validated=False)
    losses = {
        "brier": (probabilities - correct) ** 2,
        "brier_gain": (probabilities - correct) ** 2 - (base - correct) ** 2,
        "log_loss_gain": log_losses(probabilities, correct) - log_losses(base, correct),
    }
    for name, values in losses.items():
        one = getattr(found, name)
        theirs = bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
        width = theirs.high - theirs.low
        assert one.value == pytest.approx(values.mean())
        assert (one.low, one.high) == pytest.approx((theirs.low, theirs.high), abs=0.06 * width)
    assert (found.n, found.base_rate) == (300, pytest.approx(correct.mean()))


@pytest.mark.parametrize("n", [1, 2, 5, 29, 30])
def test_few_recent_scores_show_no_distance(n: int) -> None:
    """The interval of a single score of the same distribution left out 0 in every world, and of five in one of four."""
    generator = np.random.default_rng(5)
    pairs = [(generator.normal(0, 1, 300), generator.normal(0, 1, n)) for _ in range(12)]
    shown = sum(drift(first, second).low > 0 for first, second in pairs)
    assert shown <= binom.ppf(0.999, 12, 0.05)
    assert (shown == 0 and drift(*pairs[0]).high == 1.0) or n == 30
    assert drift(pairs[0][0], pairs[0][1] + 9).distance == 1.0


def test_the_band_of_a_distance_is_95_percent_wide() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.normal(0, 1, 150), generator.normal(0.8, 1, 100)
    found = drift(first, second)
    assert found.distance == pytest.approx(ks_2samp(first, second).statistic)
    assert (found.n_fitted, found.n_recent) == (150, 100)
    places = np.concatenate([first, second])

    def share(values: np.ndarray) -> np.ndarray:
        return np.array((values[:, None] <= places).mean(axis=0))

    gap, drawn = share(first) - share(second), np.random.default_rng(0)
    moved = [
        np.abs(share(drawn.choice(first, 150)) - share(drawn.choice(second, 100)) - gap).max() for _ in range(1000)
    ]
    margin = np.quantile(moved, 0.95)
    assert (found.low, found.high) == pytest.approx((found.distance - margin, found.distance + margin))
    same = drift(first, first)
    assert (same.distance, same.low) == (0.0, 0.0) and 0 < same.high < 1
    assert drift(first, first + 100).high == 1.0
    with pytest.raises(InvalidInputError, match="no recent scores"):
        drift(first, first[:0])
