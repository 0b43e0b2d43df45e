"""Servers that round: intervals, one temperature as without rounding, and probabilities that agree with the chance."""

from __future__ import annotations

import numpy as np
import pytest

from semtoken.decisions import Answer, Choice, ReadingOptions
from semtoken.decisions.answers import DecisionRecord
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.options import OptionScale
from semtoken.decisions.wire.extension import rounded_bounds
from tests.decisions.made_up import read_from

SHARPENED = 1.8
OPTIONS = ["a", "b", "c", "d", "e"]


def world(kind: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities that are too sure by a temperature of 1.8, the true ones, and what came true."""
    chance = np.random.default_rng(seed)
    if kind == "choice":
        z = chance.normal(0, 2, (n, 5))
    elif kind == "number":
        centre, width = chance.uniform(0, 9, n), chance.uniform(0.4, 1.6, n)
        z = -((np.arange(10) - centre[:, None]) ** 2) / (2 * width[:, None] ** 2)
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


def test_rounded_numbers_of_a_server_are_intervals() -> None:
    shares = {"a": 0.97, "b": 0.03, "c": 0.0}
    answer = read_from(Choice("Which?", ["a", "b", "c"]), type="choice", probabilities=shares)
    assert answer.bounds == ((0.965, 0.975), (0.025, 0.035), (0.0, 0.005))
    assert rounded_bounds([1.0, 0.0]) == ((0.995, 1.0), (0.0, 0.005))
    assert rounded_bounds([0.5, 0.25, 0.25]) == ((0.495, 0.505), (0.245, 0.255), (0.245, 0.255))
    assert rounded_bounds([1 - 0.9712, 0.9712]) == ((0.02875, 0.02885), (0.97115, 0.97125))
    assert rounded_bounds([1 / 3, 2 / 3]) is None


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


def test_the_option_that_a_server_chose_is_what_is_judged() -> None:
    def read(choice: str, probabilities: dict[str, float]) -> Answer:
        return read_from(Choice("Which?", ["a", "b"]), type="choice", choice=choice, probabilities=probabilities)

    tie = read("b", {"a": 0.5, "b": 0.5})
    assert (tie.value, tie.best, tie.probability) == ("b", 1, 0.5)
    other = read("b", {"a": 0.6, "b": 0.4})
    record = DecisionRecord(other, ReadingOptions())
    assert (record.answer.best, record.answer.log_confidence) == (1, pytest.approx(np.log(0.4)))
    assert read("a", {"a": 0.6, "b": 0.4}).choice is None
    with pytest.raises(ValueError, match="'b', which is no option to which it gives any probability"):
        read("b", {"a": 1.0, "b": 0.0})
