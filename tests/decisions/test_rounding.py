"""Numbers that a server may give, and that rounding them changes next to nothing."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from semtoken.decisions import Answer, Choice
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.options import OptionScale
from semtoken.decisions.records import DecisionRecord
from semtoken.decisions.wire.extension import rounded_bounds
from semtoken.errors import InvalidInputError
from tests.decisions.made_up import read_from
from tests.rows import each

SHARPENED = 1.8
OPTIONS = ["a", "b", "c", "d", "e"]


def world(kind: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities that are too sure by a temperature of 1.8, the true ones, and what came true."""
    chance = np.random.default_rng(seed)
    if kind == "choice":
        z = chance.normal(0, 2, (n, 5))
    elif kind == "number":
        center, width = chance.uniform(0, 9, n), chance.uniform(0.4, 1.6, n)
        z = -((np.arange(10) - center[:, None]) ** 2) / (2 * width[:, None] ** 2)
    else:
        half = chance.normal(0, 1.5, n) / 2
        z = np.stack([half, -half], axis=1)
    true, told = (np.exp(z * s) / np.exp(z * s).sum(1, keepdims=True) for s in (1.0, SHARPENED))
    labels = (chance.random(n)[:, None] > true.cumsum(1)).sum(1)
    return told, true, labels


@pytest.mark.parametrize(("kind", "decimals"), [("choice", 2), ("choice", 3), ("number", 2), ("yes or no", 2)])
def test_rounding_changes_the_temperature_by_a_tenth_at_most(kind: str, decimals: int) -> None:
    told, _, labels = world(kind, 1000, 1)
    exact = OptionScale.fit(told, labels)
    rounded = OptionScale.fit(np.round(told, decimals), labels)
    assert exact.temperature == pytest.approx(SHARPENED, rel=0.15)
    assert rounded.temperature == pytest.approx(exact.temperature, rel=0.1)
    later, true, _ = world(kind, 4_000, 2)
    distances = [np.abs(p - true).mean() for p in (exact(later), rounded(np.round(later, decimals)), later)]
    assert distances[1] < 0.5 * distances[2]  # of raw probabilities
    assert np.abs(exact(later) - rounded(np.round(later, decimals))).mean() < 0.1 * later.mean()


def test_a_zero_is_at_most_half_of_the_last_digit() -> None:
    told, _, labels = world("choice", 2000, 1)
    scale = OptionScale.fit(np.round(told, 2), labels)
    assert -50 < scale.zero <= np.log(0.005) + 1e-9
    assert OptionScale.fit(told, labels).zero == pytest.approx(np.log(told.min() / 2))  # none was seen


def test_the_chance_and_the_probabilities_of_one_answer_agree() -> None:
    told, _, labels = world("choice", 1000, 1)
    question = Choice("Which?", OPTIONS, "q")
    records = []
    for p, label in zip(np.round(told, 2), labels, strict=True):
        records.append(DecisionRecord(Answer(question, tuple(map(float, p))), label=int(label)))
    calibrator = DecisionCalibrator.fit(records, alpha=0.2)
    blocks = [(record, calibrator.block(record)) for record in records]
    assert sum(block["decision"] == "answer" for _, block in blocks) > 100
    for record, block in blocks:
        assert block["calibrated_probabilities"][record.answer.best] == pytest.approx(block["probability_correct"])
        assert sum(block["calibrated_probabilities"]) == pytest.approx(1)


A_OR_B = Choice("Which?", ["a", "b"])


def even(n: int, off: float) -> list[float]:
    """Equal shares of n options, the last one too small by so much."""
    return [1 / n] * (n - 1) + [1 / n - off]


@each(
    ("shares", "read"),
    [  # each of n numbers with two decimals is off by half a hundredth at most, and n of them by a hundredth at least
        *((even(10, off), abs(off) < 0.05) for off in (0.049, 0.051, -0.049, -0.051)),
        *((even(2, off), abs(off) < 0.01) for off in (0.0095, 0.0115, -0.0095, -0.0115)),
        *((even(1, off), off < 0.01) for off in (0.0095, 0.0105)),
        (even(3, 0.0149), True),
        ([1.0, 0.0], True),
        ([1.01, -0.01], False),
        ([-0.2, 0.6, 0.6], False),
        ([-0.2, 1.2, 0.0], False),
        ([1.005, 0.0, 0.0], False),
    ],
)
def test_shares_are_from_0_to_1_and_sum_to_1_within_their_rounding(shares: list[float], read: bool) -> None:
    options = [f"option {k}" for k in range(len(shares))]
    with nullcontext() if read else pytest.raises(InvalidInputError, match="sum to 1"):
        found = read_from(Choice("Which?", options), probabilities=dict(zip(options, shares, strict=True)))
        assert found.probabilities == tuple(shares)


OF_ROUNDING = ((0.695, 0.705), (0.295, 0.305))
"""The intervals of 0.7 and 0.3, which have two decimals."""


NO_BOUNDS = [None, 1, [[0.6, 0.8]], [[0.6, 0.8], [0.4, 0.2]], [[0, 2], [0, 1]], ["ab", "cd"], [[True, 1], [0, 1]]]


@each(
    ("mass", "spread", "bounds", "kept"),
    [
        (0.25, 0.1, [[0.6, 0.8], [0.2, 0.4]], True),
        (0, 1, [[0.7, 0.7], [0, 1]], True),
        (1.0, 0.0, [[0.0, 1.0], [0.3, 0.3]], True),
        *(("1", -1, odd, False) for odd in NO_BOUNDS),
    ],
)
def test_what_another_server_says_of_its_answer_is_kept_where_it_makes_sense(
    mass: Any, spread: Any, bounds: Any, kept: bool
) -> None:
    block = {"option_mass": mass, "order_spread": spread, "bounds": bounds}
    found, plain = (read_from(A_OR_B, probabilities={"a": 0.7, "b": 0.3}, semtoken=one) for one in (block, "x"))
    assert (plain.option_mass, plain.bounds) == (None, OF_ROUNDING)
    assert (found.option_mass, found.order_spread) == ((mass, spread) if kept else (None, None))
    assert found.bounds == (tuple(map(tuple, bounds)) if kept else OF_ROUNDING)
    assert [flag.code for flag in found.flags] == (["off_option_mass"] if kept and mass < 0.5 else [])


@each(
    ("shares", "bounds"),
    [
        ([0.97, 0.03, 0.0], ((0.965, 0.975), (0.025, 0.035), (0.0, 0.005))),
        ([1.0, 0.0], ((0.995, 1.0), (0.0, 0.005))),
        ([0.5, 0.25, 0.25], ((0.495, 0.505), (0.245, 0.255), (0.245, 0.255))),
        ([1 - 0.9712, 0.9712], ((0.02875, 0.02885), (0.97115, 0.97125))),
        ([1 / 3, 2 / 3], None),
    ],
)
def test_rounded_numbers_are_intervals(shares: list[float], bounds: Any) -> None:
    assert rounded_bounds(shares) == bounds


def test_the_option_that_a_server_chose_is_what_is_judged() -> None:
    def read(choice: str, probabilities: dict[str, float]) -> Answer:
        return read_from(A_OR_B, type="choice", choice=choice, probabilities=probabilities)

    tie = read("b", {"a": 0.5, "b": 0.5})
    assert (tie.value, tie.best, tie.probability) == ("b", 1, 0.5)
    record = DecisionRecord(read("b", {"a": 0.6, "b": 0.4}))
    assert (record.answer.best, record.answer.log_confidence) == (1, pytest.approx(np.log(0.4)))
    assert read("a", {"a": 0.6, "b": 0.4}).choice is None
    with pytest.raises(InvalidInputError, match="'b', which is no option to which it gives any probability"):
        read("b", {"a": 1.0, "b": 0.0})
