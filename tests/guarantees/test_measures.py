"""Measures of probabilities against counting by hand, and intervals against SciPy's bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

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
