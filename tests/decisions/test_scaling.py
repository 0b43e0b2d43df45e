"""One temperature and a bias for each option: worlds of known scale, and a search by brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from semtoken.decisions.options import OptionScale
from semtoken.errors import InvalidInputError


def world(n: int, temperature: float, biases: tuple[float, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are too sure and lean to one side, and what came true."""
    chance = np.random.default_rng(seed)
    z = chance.normal(0, 1.5, (n, len(biases)))
    told = np.exp(temperature * (z - np.array(biases)))
    true = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (true.cumsum(1) < chance.random((n, 1))).sum(1)
    return told / told.sum(1, keepdims=True), labels


def loss(p: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(p[np.arange(len(p)), labels]).mean())


def test_a_known_scale_is_found() -> None:
    p, labels = world(10_000, 3.0, (0.6, 0.0, -0.6))
    found = OptionScale.fit(p, labels)
    assert found.temperature == pytest.approx(3.0, rel=0.05)
    assert np.array(found.biases) - np.mean(found.biases) == pytest.approx([0.6, 0.0, -0.6], abs=0.06)
    assert found(p).sum(1) == pytest.approx(np.ones(len(p)))
    later, truth = world(5_000, 3.0, (0.6, 0.0, -0.6), seed=1)
    assert loss(found(later), truth) < loss(later, truth) - 0.2


def test_temperature_alone_is_the_best_of_a_grid() -> None:
    p, labels = world(400, 2.0, (0.0, 0.0, 0.0))
    p = np.concatenate([p, np.full((400, 1), 1e-9)], axis=1)  # never right, so there are no biases
    found = OptionScale.fit(p, labels, ["a", "b", "c", "d"])
    assert found.biases == (0.0,) * 4 and "'d' is right in 0, 5 missing" in found.missing

    def at(t: float) -> float:
        scaled = p ** (1 / t)
        return loss(scaled / scaled.sum(1, keepdims=True), labels)

    grid = np.linspace(found.temperature - 0.3, found.temperature + 0.3, 61)
    assert abs(min(grid, key=at) - found.temperature) < 0.011


def test_few_labels_show_no_certainty_and_the_order_stays() -> None:
    sure = np.tile([0.999, 0.001], (40, 1))
    found = OptionScale.fit(sure, [0] * 40)
    scaled = found(sure[0])
    assert scaled.max() <= 41 / 42 + 1e-12
    mixed = found([[0.2, 0.8], [0.4, 0.6], [0.5, 0.5], [0.0, 1.0]])[:, 1]
    assert all(a > b for a, b in pairwise(mixed[[3, 0, 1, 2]]))
    with pytest.raises(InvalidInputError, match="label 1 more"):
        OptionScale.fit(sure[:29], [0] * 29)


def test_biases_are_where_the_loss_with_a_standard_normal_prior_has_no_slope() -> None:
    """The slope in each bias: labels that say this option, less those expected, equals the bias itself."""
    p, labels = world(60, 1.0, (2.0, 0.0, -1.0))
    found = OptionScale.fit(p, labels)
    z = np.log(p) / found.temperature + np.array(found.biases)
    expected = (np.exp(z) / np.exp(z).sum(1, keepdims=True)).sum(0)
    assert np.bincount(labels, minlength=3) - expected == pytest.approx(found.biases, abs=2e-3)
    assert max(map(abs, found.biases)) > 0.2


@pytest.mark.parametrize("often", [True, False])
def test_a_probability_of_0_counts_for_what_fits_the_labels_best_up_to_half_of_the_smallest(often: bool) -> None:
    """Where an option that the server rounded to 0 is right as `often` as not, it counts for as much as it can."""
    p, labels = world(400, 1.0, (0.0, 0.0, 0.0))
    p = np.where(p < 0.1, 0.0, p)
    several = (p > 0).sum(1) > 1
    p, labels = p[several] / p[several].sum(1, keepdims=True), labels[several]
    labels = labels if often else np.where(p[np.arange(len(p)), labels] > 0, labels, p.argmax(1))
    found, most = OptionScale.fit(p, labels), np.log(p[p > 0].min() / 2)

    def at(zero: float) -> float:
        z = np.where(p > 0, np.log(np.maximum(p, 1e-300)), zero) / found.temperature + np.array(found.biases)
        return loss(np.exp(z) / np.exp(z).sum(1, keepdims=True), labels)

    best = min(np.linspace(-50, most, 400), key=at)
    assert found.zero == pytest.approx(best, abs=0.2) if often else at(found.zero) - at(best) < 1e-4
    assert -50 <= found.zero <= most
    whole, labels = world(400, 1.0, (0.0, 0.0, 0.0))
    assert OptionScale.fit(whole, labels).zero == pytest.approx(np.log(whole.min() / 2))


def test_an_option_without_any_probability_counts_as_one_of_minus_fifty_nats() -> None:
    """At a temperature of 50 that is one nat below an option that has all of it."""
    found = OptionScale(50.0, (0.0, 0.0), 8)([0.0, 1.0])
    share = np.exp(-1) / (1 + np.exp(-1))
    assert found == pytest.approx([(8 * share + 1) / 10, (8 * (1 - share) + 1) / 10], rel=1e-12)


def test_an_option_needs_five_labels_for_biases_and_temperatures_have_ends() -> None:
    p, _ = world(40, 1.0, (0.0, 0.0))
    assert OptionScale.fit(p, [0] * 35 + [1] * 5).missing == ""
    few = OptionScale.fit(p, [0] * 36 + [1] * 4)
    assert few.biases == (0.0, 0.0) and "'1' is right in 4, 1 missing" in few.missing
    assert OptionScale.fit(p[:30], [0] * 25 + [1] * 5).n == 30
    for temperature, n in ((0.0199, 1), (50.1, 1), (1.0, 0)):
        with pytest.raises(InvalidInputError):
            OptionScale(temperature, (0.0,), n)
    assert OptionScale(0.02, (0.0,), 1).temperature == 0.02
