"""Guarantees for groups and for both ends of the ranking, in worlds whose truth is known."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom

from semtoken.errors import InvalidInputError
from semtoken.guarantees import Bands, GroupThresholds, Threshold
from tests.guarantees.test_calibrator import response
from tests.guarantees.worlds import WORLDS


def two_groups(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One in eight answers is of a group in which scores say nothing and 40% are wrong; of the others few are."""
    small = generator.random(n) < 0.125
    scores, correct = WORLDS["good model"].draw(generator, n)
    correct = np.where(small, generator.random(n) < 0.6, correct)
    return scores, correct, np.where(small, "small", "large")


def test_a_guarantee_over_all_is_broken_in_a_small_group_and_one_for_each_is_not() -> None:
    generator, broken_by_one, broken = np.random.default_rng(0), 0, 0
    for _ in range(20):
        scores, correct, groups = two_groups(generator, 600)
        whole = Threshold.fit(scores, correct, alpha=0.2)
        fitted = GroupThresholds.fit(scores, correct, groups=groups.tolist(), alpha=0.2)
        broken_by_one += whole.min_log_score is not None  # whatever it accepts of the small group, 40% are wrong
        broken += fitted.thresholds["small"].min_log_score is not None
        assert fitted.thresholds["large"].min_log_score is not None
        assert fitted.thresholds["large"].delta == pytest.approx(0.05)
    assert broken_by_one == 20
    assert broken <= binom.ppf(0.999, 20, 0.05)


def test_labels_of_groups_may_be_a_tensor_that_numpy_cannot_hold() -> None:
    scores, correct = WORLDS["good model"].draw(np.random.default_rng(3), 100)
    groups = ["a", "b"] * 50
    fitted = GroupThresholds.fit(scores, torch.tensor(correct, dtype=torch.bfloat16), groups=groups, alpha=0.3)
    again = GroupThresholds.fit(scores, correct, groups=groups, alpha=0.3)
    assert fitted == again and len({fitted, again}) == 1


def test_the_confidence_of_scored_answers_decides() -> None:
    answers = [response(-0.001 * i - 0.001) for i in range(60)]
    fitted = GroupThresholds.fit(answers, [1] * 60, groups=["a", "b"] * 30, alpha=0.2)
    method = Threshold.fit(answers, [1] * 60).fingerprint.method
    assert {one.fingerprint.method for one in fitted.thresholds.values()} == {method}
    assert fitted.accepts(answers, ["a", "b"] * 30).all()


def test_an_answer_is_decided_by_its_group() -> None:
    scores = -np.arange(1, 121) / 100
    groups = ["a", "b"] * 60
    fitted = GroupThresholds.fit(scores, [1, 0] * 60, groups=groups, alpha=0.2)
    assert fitted.accepts(scores, groups).tolist() == [True, False] * 60
    assert fitted.decide(-0.1, "a").action == "answer"
    assert fitted.decide(-0.1, "b").reason == "no_threshold"
    usual = GroupThresholds.fit(scores, [1, 0] * 60, groups=groups).thresholds["a"]
    assert (usual.guarantee, usual.alpha, usual.delta) == ("selective_risk", 0.1, 0.05)
    unknown = fitted.decide(-0.1, "c", probability_correct=0.5)
    assert (unknown.action, unknown.reason, unknown.probability_correct) == ("abstain", "no_threshold", 0.5)
    assert "none of the labeled answers belongs to it" in unknown.guarantee
    assert fitted.statement.count("\n") == 1
    for groups, told in (
        (["a"], "every answer needs one"),
        (["a", ""] * 60, "no group"),
        ([str(i) for i in range(120)], "at most 20"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            GroupThresholds.fit(scores, [1, 0] * 60, groups=groups)


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NaT, pd.NA])
def test_a_missing_value_of_a_table_is_no_group(missing: object) -> None:
    """It took its share of delta from the others, and their guarantees held with less confidence."""
    scores, groups = -np.arange(1, 121) / 50, [missing, *["a"] * 59, *["nan"] * 60]
    with pytest.raises(InvalidInputError, match="position 0 has no group"):
        GroupThresholds.fit(scores, [1, 0] * 60, groups=groups)
    fitted = GroupThresholds.fit(scores[1:], [1] * 119, groups=pd.Series(groups[1:], index=range(500, 381, -1)))
    assert list(fitted.thresholds) == ["a", "nan"], "the language of that code"
    assert fitted.decide(-0.1, "nan").action == "answer" and fitted.decide(-0.1, missing).reason == "no_threshold"


def test_the_advice_on_what_is_discarded_is_about_the_doubtful_end() -> None:
    """Three of the 24 most doubtful are right; the surest are, too, so a word about them would help nobody."""
    scores, correct = -np.arange(1, 101) / 50, np.isin(np.arange(100), [*range(76), 77, 80, 83])
    said = Bands.fit(scores, correct).discard_statement
    assert "the 24 most doubtful of 100 labeled answers 3 are right" in said
    assert "If the same share of the most doubtful stays right" in said and "surest" not in said
    advised = re.search(r"A discard_alpha of ([\d.]+) gets a guarantee", said)
    assert advised is not None and "start=" not in said, said
    assert Bands.fit(scores, correct, discard_alpha=float(advised[1])).discard_from is not None


def test_bands_keep_both_guarantees() -> None:
    world, generator = WORLDS["knows or guesses"], np.random.default_rng(2)
    reference = world.log_confidence(np.random.default_rng(99), 5_000)
    probabilities, broken = world.predict_proba(reference), np.zeros(2, dtype=int)
    seen = set()
    for _ in range(30):
        bands = Bands.fit(*world.draw(generator, 300), alpha=0.1, discard_alpha=0.3)
        found = np.array(bands.band(reference))
        seen |= set(found.tolist())
        for end, (name, bad) in enumerate((("accept", 1 - probabilities), ("discard", probabilities))):
            inside = found == name
            broken[end] += bool(inside.any()) and bad[inside].mean() > (0.1, 0.3)[end]
    assert seen == {"accept", "look", "discard"}
    assert (broken <= binom.ppf(0.999, 30, 0.1)).all()


def test_the_discarded_end_mirrors_the_accepted_one() -> None:
    """Exchange right and wrong, and turn the ranking round: one end becomes the other."""
    generator = np.random.default_rng(5)
    scores, correct = WORLDS["knows or guesses"].draw(generator, 400)
    scores = np.maximum(scores, -20.0)
    bands = Bands.fit(scores, correct, discard_alpha=0.4)
    turned = Threshold.fit(-20.0 - scores, 1 - correct, alpha=0.4)
    assert bands.discard_from is not None
    assert turned.min_log_score is not None and bands.discard_from == pytest.approx(20.0 + turned.min_log_score)
    assert bands.band([-bands.discard_from, -np.inf]) == ["discard", "discard"]
    discarded = -scores >= bands.discard_from
    counts = f"(on 400 labeled answers: {discarded.sum()} discarded, {int(correct[discarded].sum())} of them right)"
    assert counts in bands.discard_statement


def test_bands_with_equal_scores_and_too_few_labels() -> None:
    wrong = Bands.fit([-0.5] * 100, [0] * 100)
    assert (wrong.accept.alpha, wrong.accept.delta) == (0.1, 0.1)
    assert wrong.discard_statement.startswith("With confidence 90%, at most 10% of the discarded answers are right")
    assert wrong.discard_from == 0.0 and wrong.band([-0.1, -0.5]) == ["discard", "discard"]
    few = Bands.fit([-0.5] * 20, [0] * 20)
    assert few.discard_from is None and "needs at least 22" in few.discard_statement
    assert few.band([-0.5]) == ["look"]
    assert Bands.fit([-0.5] * 22, [0] * 22).discard_from == 0.0
    with pytest.raises(InvalidInputError, match="below 1 together"):
        Bands.fit([-0.5] * 100, [0] * 100, alpha=0.6, discard_alpha=0.4)
