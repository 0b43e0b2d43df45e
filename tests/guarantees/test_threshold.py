"""Thresholds and their guarantees, batches, and what is said where nothing can be guaranteed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import semtoken as st
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.fitting import _ordinal
from semtoken.guarantees.threshold import product_limit
from tests.guarantees.test_calibrator import drawn, response
from tests.guarantees.worlds import WORLDS, World, true_risk
from tests.known import known


def test_decisions() -> None:
    scores, correct = drawn(400, "good model")
    calibrator = st.Calibrator.fit(scores, correct)
    threshold = st.Threshold.fit(scores, correct, alpha=0.2, unlabeled=drawn(300, "good model", 1)[0])
    assert threshold.min_log_score is not None
    calibrator = replace(calibrator, threshold=threshold)
    sure, doubtful, blank = (calibrator.decide(score) for score in (-1e-4, -9.0, -math.inf))
    assert (sure.action, sure.reason, sure.probability_correct) == (
        "answer",
        "accepted",
        calibrator.predict_proba(-1e-4),
    )
    assert (doubtful.action, doubtful.reason) == ("abstain", "uncertain")
    assert (blank.action, blank.reason, blank.probability_correct) == ("abstain", "empty", None)
    assert "At most 20% of the accepted answers are wrong".lower() in sure.guarantee.lower()
    assert threshold.decide(threshold.min_log_score).action == "answer", "up to and including the threshold"


def test_too_few_labels_are_counted() -> None:
    threshold = st.Threshold.fit([-0.1] * 21, [1] * 21)
    assert threshold.min_log_score is None
    assert "at least 22" in threshold.statement and "1 are missing" in threshold.statement
    assert threshold.decide(-0.0001).reason == "no_threshold"
    assert "There are 0: 22 are missing" in st.Threshold.fit([-math.inf] * 3, [0, 1, 1]).statement
    assert st.Threshold.fit(-np.arange(1, 23) / 10, [1] * 22).min_log_score is not None


def test_thresholds_that_accept_none_of_the_labeled_answers_are_said_to_be_badly_placed() -> None:
    found = st.Threshold.fit(-np.arange(1, 101) / 10, [1] * 100, unlabeled=-np.arange(1, 301) / 1e4)
    assert found.min_log_score is None and found.statement.startswith(
        "Nothing can be guaranteed: the scores that place"
    )
    assert found.statement.endswith("are surer than all labeled answers. Place the thresholds by others.")


def test_missed_and_joint_count_what_is_missing() -> None:
    missed = st.Threshold.fit([-0.1 * i for i in range(1, 21)], [0] * 6 + [1] * 14, guarantee="miss_rate", alpha=0.1)
    assert missed.min_log_score is None and "16 are missing" in missed.statement  # 0.9^22 is below 0.1
    joint = st.Threshold.fit([-0.1] * 44, [1] * 44, guarantee="joint_risk", alpha=0.05)
    assert joint.min_log_score is None and "There are 44: 1 are missing" in joint.statement  # 0.95^45 is below 0.1
    with pytest.raises(InvalidInputError, match="no start"):
        st.Threshold.fit([-0.1] * 50, [1] * 50, guarantee="joint_risk", start=0.1)


def test_joint_says_how_many_of_the_surest_are_wrong() -> None:
    """P(Bin(40, 0.1) <= 1) is 0.08, so one of 40 may be wrong and accepted; of the three that go together two are."""
    threshold = st.Threshold.fit([-0.1] * 3 + [-0.5] * 37, [0, 0, 1] + [1] * 37, guarantee="joint_risk", alpha=0.1)
    assert threshold.min_log_score is None
    assert threshold.statement.endswith("of the 3 with the surest score 2 are wrong.")
    assert "allows 1 wrong answers among 40" in threshold.statement


def test_a_threshold_above_zero_is_refused() -> None:
    """No answer could be accepted by it; an uncertainty in nats, with the other sign, would be one."""
    with pytest.raises(InvalidInputError, match=r"the threshold 0\.3 is above it"):
        st.Threshold(0.3, "selective_risk", 0.1, 0.1, "", 100, 5)


def test_missed_accepts_strictly_above() -> None:
    threshold = st.Threshold.fit([-0.3, -0.3, -0.3, -0.3, -0.1], [0, 0, 0, 0, 1], guarantee="miss_rate", alpha=0.5)
    assert threshold.min_log_score == -0.3
    assert threshold.accepts([-0.3, -0.29]).tolist() == [False, True]
    assert "No labeled answer passes" not in threshold.statement
    equal = st.Threshold.fit([-0.3] * 5, [0, 0, 0, 0, 1], guarantee="miss_rate", alpha=0.5)
    assert equal.statement.endswith(
        "No labeled answer passes: some of the surest score are wrong, and equal scores go together."
    )


def test_the_counts_of_a_guarantee_are_those_of_its_own_threshold() -> None:
    scores, correct = drawn(400)
    found = st.Threshold.fit(scores, correct, alpha=0.3)
    inside = found.accepts(scores)
    assert 0 < inside.sum() < 400
    assert f"{inside.sum()} accepted, {int((correct[inside] == 0).sum())} of them wrong" in found.statement


def test_blank_answers_are_never_accepted_even_where_everything_is() -> None:
    scores = -np.arange(1, 201) / 50
    threshold = st.Threshold.fit(scores, np.ones(200), alpha=0.2)
    assert threshold.accepts([-1000.0, -math.inf]).tolist() == [True, False]


def test_levels_and_grids_that_cannot_be_used() -> None:
    scores, correct = drawn(100)
    for settings, message in (
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
        ({"delta": 0.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"guarantee": "all"}, "guarantee"),
        ({"start": 0.0}, "start"),
        ({"unlabeled": scores}, "100 are missing"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            st.Threshold.fit(scores, correct, **settings)
    with pytest.raises(CalibratorMismatchError):
        labels = [response(score) for score in scores]
        st.Threshold.fit(labels, correct, unlabeled=[response(-0.5, distribution="processed")] * 200)


def test_the_grid_does_not_see_the_labels() -> None:
    """Other labels, same scores: where all answers are right all thresholds are tried, else some of the same."""
    scores, correct = drawn(600, "good model")
    for unlabeled in (drawn(250, "good model", 1)[0], None):
        one = st.Threshold.fit(scores, correct, unlabeled=unlabeled)
        every = [test.threshold for test in st.Threshold.fit(scores, np.ones(600), unlabeled=unlabeled).tests]
        assert len(every) > 30 and {test.threshold for test in one.tests} < set(every)


SHARES = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
"""Shares of the answers that have one score."""


def tie(scores: np.ndarray, reference: np.ndarray, share: float, where: str) -> np.ndarray:
    """Scores of which this share, the surest or the most doubtful of the world, are equal."""
    if where == "surest":
        return np.array(np.minimum(scores, np.quantile(reference, 1 - share)))
    return np.array(np.maximum(scores, np.quantile(reference, share)))


@pytest.mark.parametrize(
    ("n", "where"),
    [
        (50, "surest"),
        (600, "doubtful"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [(50, "doubtful"), (600, "surest")]),
        *(pytest.param(5000, where, marks=pytest.mark.slow) for where in ("surest", "doubtful")),
    ],
)
def test_ties_take_no_guarantee(n: int, where: str) -> None:
    """3% wrong whatever the score and at most 10% allowed: the guarantee comes at every share of equal scores."""
    generator = np.random.default_rng(4)
    for share in SHARES:
        came = 0
        for _ in range(20):
            scores = -generator.exponential(1.0, n)
            threshold = st.Threshold.fit(tie(scores, scores, share, where), generator.random(n) >= 0.03)
            came += threshold.min_log_score is not None
            assert len({test.threshold for test in threshold.tests}) == len(threshold.tests)
        # With 50 labels none of the first 24 or more may be wrong, with more some may.
        assert came >= (binom.ppf(1e-4, 20, 0.97**24) if n == 50 else 19), share


@pytest.mark.parametrize("name", ["good model", "surest are often wrong"])
def test_guarantee_is_kept_with_ties(name: str) -> None:
    assert broken_guarantees(name, 40, share=0.35) <= binom.ppf(0.999, 40, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["surest", "doubtful"])
@pytest.mark.parametrize("name", WORLDS)
def test_guarantee_is_kept_at_every_share_of_ties(name: str, where: str) -> None:
    for share in SHARES:
        broken = broken_guarantees(name, 300, share=share, where=where)
        assert broken <= binom.ppf(1 - 0.001 / len(SHARES), 300, 0.1), share


@pytest.mark.slow
@pytest.mark.parametrize("n_unlabeled", [0, 300])
@pytest.mark.parametrize("name", WORLDS)
def test_guarantee_is_kept(name: str, n_unlabeled: int) -> None:
    """200 labeled sets of each world; the long form is research/experiments/calibration/promise.py."""
    assert broken_guarantees(name, 200, n_unlabeled=n_unlabeled) <= 31  # P(Bin(200, 0.1) > 31) = 0.005


@pytest.mark.slow
@pytest.mark.parametrize("name", ["score is a probability", "good model", "overconfident"])
def test_a_threshold_chosen_on_the_labels_breaks_its_guarantee(name: str) -> None:
    """The control: the loosest threshold whose error on the labels is at most alpha."""
    assert broken_guarantees(name, 200, fit=best_on_the_labels) >= 60  # 0.1 is allowed


def best_on_the_labels(scores: np.ndarray, correct: np.ndarray, **_: object) -> st.Threshold:
    curve = st.metrics.risk_coverage(-scores, correct)
    good = curve.threshold[curve.risk <= 0.1]
    least = -float(good[-1]) if good.size else None
    return st.Threshold(least, "selective_risk", 0.1, 0.1, "", scores.size, int((correct == 0).sum()))


def broken_guarantees(
    name: str,
    sets: int,
    *,
    share: float = 0.0,
    where: str = "surest",
    n_unlabeled: int = 0,
    fit: Callable[..., st.Threshold] = st.Threshold.fit,
) -> int:
    """The number of labeled sets of a world that led to a threshold which breaks its guarantee of 0.1."""
    world, generator = WORLDS[name], np.random.default_rng(1)
    reference = world.log_confidence(np.random.default_rng(99), 20_000)
    tied, broken = tie(reference, reference, share, where), 0
    for _ in range(sets):
        scores, correct = world.draw(generator, 300)
        unlabeled = world.log_confidence(generator, n_unlabeled) if n_unlabeled else None
        threshold = fit(tie(scores, reference, share, where), correct, alpha=0.1, delta=0.1, unlabeled=unlabeled)
        broken += true_risk(world, threshold.accepts(tied), reference) > 0.1
    return broken


def test_what_is_said_without_a_guarantee_is_true_and_helps() -> None:
    """Each piece of advice, followed, leads to a guarantee where labels stay as they are."""
    scores = np.r_[np.full(100, -0.1), np.full(200, -1.0)]
    nine = st.Threshold.fit(scores, np.r_[np.arange(100) >= 9, np.zeros(200)])
    assert "of the 100 surest of 300 labeled answers, 100 of them with one and the same score, 9" in nine.statement
    advised = re.search(r"about ([\d,]+) labels would do", nine.statement)
    assert advised is not None
    labels = int(advised[1].replace(",", ""))
    # All starts are at one score and share delta: P(Bin(m, 0.1) <= 0.09 m) <= 0.1 from m = 1,577 on, a third of 4,731.
    assert 4731 <= labels <= 1.12 * 4731
    times = math.ceil(labels / 300)
    more = st.Threshold.fit(np.tile(scores, times), np.tile(np.r_[np.arange(100) >= 9, np.zeros(200)], times))
    assert more.min_log_score == -0.1
    many = st.Threshold.fit(scores, np.r_[np.arange(100) >= 20, np.zeros(200)])
    assert "An alpha of 0.27 gets" in many.statement  # P(Bin(100, 0.27) <= 20) is 0.068, and 0.103 at 0.26
    assert "labels would do" not in many.statement and "start=" not in many.statement
    assert st.Threshold.fit(scores, np.r_[np.arange(100) >= 20, np.zeros(200)], alpha=0.27).min_log_score == -0.1
    late = st.Threshold.fit(scores, np.r_[np.ones(100), np.zeros(200)], start=0.9)
    assert "Or begin at the surest 33% alone, as `Threshold.fit(start=0.33)` does in Python," in late.statement
    but_the_surest = np.r_[0, np.ones(99), np.zeros(200)]
    assert "start=0.33" in st.Threshold.fit(-np.arange(1, 301) / 100, but_the_surest, start=0.9).statement
    assert st.Threshold.fit(scores, np.r_[np.ones(100), np.zeros(200)], start=0.33).min_log_score == -0.1
    distinct = st.Threshold.fit(-np.arange(1, 101) / 100, np.arange(100) >= 20, start=0.5)
    assert "of the 50 surest of 100 labeled answers 20 are wrong" in distinct.statement
    two = st.Threshold.fit(-np.r_[np.arange(1, 50), 49, np.arange(51, 101)] / 100, np.arange(100) >= 20, start=0.5)
    assert "100 labeled answers, 2 of them with one and the same score, 20 are wrong" in two.statement
    one = st.Threshold.fit(-np.arange(1, 101) / 100, (np.arange(100) != 1) & (np.arange(100) < 30), start=0.3)
    assert "of the 30 surest of 100 labeled answers 1 is wrong, too many" in one.statement
    few = st.Threshold.fit(-np.arange(1, 101) / 100, (np.arange(100) < 15) | (np.arange(100) >= 40), start=0.5)
    assert few.min_log_score is None and "start=" not in few.statement, "fifteen are too few for any guarantee"
    tiny = st.Threshold.fit(scores, np.r_[np.ones(100), np.zeros(200)], start=0.001)
    assert tiny.min_log_score == -0.1, "a start below the floor is raised to it"


@pytest.mark.parametrize("start", [0.1, 0.9, None])
def test_the_other_alpha_that_is_advised_gets_a_guarantee_from_the_same_start(start: float | None) -> None:
    generator = np.random.default_rng(4)
    advised = 0
    for _ in range(60):
        scores = -generator.integers(1, 12, size=60) / 10
        correct = generator.random(60) < 1 + scores / 2
        statement = st.Threshold.fit(scores, correct, start=start).statement
        if found := re.search(r"An alpha of ([\d.]+) gets a guarantee", statement):
            advised += 1
            fitted = st.Threshold.fit(scores, correct, alpha=float(found[1]), start=start)
            assert fitted.min_log_score is not None, (statement, fitted.statement)
    assert advised > 20


def test_a_running_answer_ends_at_the_threshold_on_the_product() -> None:
    assert product_limit(0) == 0.0 and product_limit(2.5) == 2.5
    for bad in (-0.01, math.nan, "much"):
        with pytest.raises(InvalidInputError, match="stop_above_product"):
            product_limit(bad)  # type: ignore[arg-type]
    threshold = st.Threshold.fit(*drawn(400, "good model"), alpha=0.2)
    assert known(threshold.min_log_score) == -product_limit(threshold)
    assert product_limit(replace(threshold, min_log_score=None)) == math.inf
    with pytest.raises(InvalidInputError, match="one of the method mean_new_word"):
        product_limit(replace(threshold, fingerprint=replace(threshold.fingerprint, method="mean_new_word")))


def test_selecting_from_a_batch() -> None:
    scores, correct = drawn(400, "good model")
    new, _ = drawn(200, "good model", 2)
    chosen = st.select(scores, correct, new, alpha=0.1)
    assert st.select(scores, correct, new) == chosen != st.select(scores, correct, new, alpha=0.12)
    assert 20 < len(chosen) < 200
    assert new[chosen].min() > np.delete(new, chosen).max(), "the surest are chosen"
    assert st.select(scores, correct, [*new, -math.inf], alpha=0.99)[-1] < 200, "a blank answer never is"


@pytest.mark.slow
def test_the_expected_share_of_wrong_answers_in_a_batch() -> None:
    generator, shares = np.random.default_rng(0), []
    for _ in range(400):
        scores, correct = WORLDS["good model"].draw(generator, 200)
        new, right = WORLDS["good model"].draw(generator, 100)
        chosen = st.select(scores, correct, new, alpha=0.15)
        shares.append(1 - right[chosen].mean() if chosen else 0.0)
    assert np.mean(shares) <= 0.15 + 2 * np.std(shares) / 20


def test_on_average_guarantees() -> None:
    """`miss_rate` and `joint_risk` over many labeled sets of a small world, against the true shares."""
    world: World = WORLDS["good model"]
    generator = np.random.default_rng(3)
    missed, joint = [], []
    for _ in range(200):
        scores, correct = world.draw(generator, 60)
        new, right = world.draw(generator, 500)
        accepted = st.Threshold.fit(scores, correct, guarantee="miss_rate", alpha=0.2).accepts(new)
        missed.append(accepted[right == 0].mean())
        accepted = st.Threshold.fit(scores, correct, guarantee="joint_risk", alpha=0.1).accepts(new)
        joint.append((accepted & (right == 0)).mean())
    assert np.mean(missed) <= 0.2 + 3 * np.std(missed) / math.sqrt(200)
    assert np.mean(joint) <= 0.1 + 3 * np.std(joint) / math.sqrt(200)


def test_ranks_are_written_as_people_say_them() -> None:
    said = "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 23rd 24th 101st 111th 112th 113th 123rd"
    assert " ".join(_ordinal(int(rank[:-2])) for rank in said.split()) == said
