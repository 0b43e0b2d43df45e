"""Arrays of users are turned or refused in one place; bad ones never yield a number."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semtoken
from semtoken import TokenClusters, Vocabulary, score_logits
from semtoken.errors import InvalidInputError, InvalidLogits, SemtokenError
from semtoken.methods.metrics.resampling import resample
from semtoken.methods.metrics.significance import holm
from semtoken.methods.self_evaluation import p_true
from semtoken.methods.semantic import semantic_entropy
from semtoken.support.arrays import real_numbers
from tests import tiny

VOCABULARY = Vocabulary.from_tokenizer(tiny.byte_level_bpe())
SIZE = VOCABULARY.size
CLUSTERS = TokenClusters(np.arange(SIZE) // 4, VOCABULARY)
ROWS = np.random.default_rng(0).normal(0, 3, (3, SIZE))
IDS = [40, 50, 60]


def score(rows: object) -> float:
    return score_logits(rows, IDS, CLUSTERS).log_confidence


def test_integers_near_two_to_the_24_keep_their_differences() -> None:
    whole = np.round(ROWS).astype(np.int64)
    assert score(whole + 2**24) == pytest.approx(score(whole), abs=1e-6)


@pytest.mark.parametrize("level", [1e4, -1e4, 2.0**22, 1e12])
def test_a_common_level_changes_nothing(level: float) -> None:
    whole = np.round(ROWS)  # so that adding the level is exact
    assert score(whole + level) == pytest.approx(score(whole), abs=1e-5)
    if abs(level) < 1e5:
        assert score((whole + level).astype(np.float32)) == pytest.approx(score(whole), abs=1e-5)


@pytest.mark.parametrize("level", [np.finfo(np.float32).min, np.finfo(np.float32).max, 1e300])
def test_equal_and_huge_logits_are_uniform(level: float) -> None:
    rows = np.full((3, SIZE), level, dtype=np.float64 if level > 1e39 else np.float32)
    assert score(rows) == pytest.approx(score(np.zeros((3, SIZE))), abs=1e-9)


def test_what_is_no_row_of_real_numbers_is_refused() -> None:
    torch = pytest.importorskip("torch")
    masked = np.ma.masked_array(ROWS, mask=ROWS > 2)
    for rows in (masked, ROWS + 1j, ROWS > 0, ROWS.astype(str), torch.tensor(ROWS > 0), torch.tensor(ROWS + 1j)):
        with pytest.raises(InvalidLogits):
            score(rows)


def test_probabilities_are_no_logits() -> None:
    probabilities = np.exp(ROWS) / np.exp(ROWS).sum(axis=1, keepdims=True)
    for rows in (probabilities, probabilities.astype(np.float32)):
        with pytest.raises(InvalidLogits, match="look like probabilities"):
            score(rows)
    assert score(np.log(probabilities)) == pytest.approx(score(ROWS), abs=1e-9)


def test_hashes_are_class_ids_like_others() -> None:
    few, far = [0, 1, 0, 2], [7, 2**52, 7, 2**40]
    assert semantic_entropy(cluster_ids=far, variant="discrete") == semantic_entropy(
        cluster_ids=few, variant="discrete"
    )


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=6),
    st.sampled_from(["one_minus_prob_true", "two_way_softmax"]),
)
def test_p_true_is_a_probability(logits: list[float], variant: str) -> None:
    assert 0 <= p_true(logits, 0, 1, variant=variant) <= 1


def test_p_true_refuses_ids_that_count_twice() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        p_true([1.0, 2.0], [0, 0])
    with pytest.raises(InvalidInputError, match="stands in"):
        p_true([1.0, 2.0], [0], [0, 1], variant="two_way_softmax")
    with pytest.raises(InvalidInputError):
        p_true([1.0, 2.0], "True")  # type: ignore[arg-type]


def test_only_the_same_resamples_are_subtracted() -> None:
    random = np.random.default_rng(0)
    scores, correct = random.random(40), random.integers(0, 2, 40)
    a = resample("auroc", scores, correct, n_resamples=20)
    assert a.minus(resample("auroc", -scores, correct, n_resamples=20)).n == 40
    for other in (
        resample("auroc", scores, correct, n_resamples=20, seed=1),
        resample("auroc", scores, 1 - correct, n_resamples=20),
        resample("auroc", scores, correct, n_resamples=21),
        resample("auroc", scores[:39], correct[:39], n_resamples=20),
    ):
        with pytest.raises(InvalidInputError, match="same answers"):
            a.minus(other)


nasty = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)


@settings(deadline=1000)
@given(nasty)
def test_nothing_but_our_own_errors_leaves_the_conversion(value: object) -> None:
    try:
        found = real_numbers(value, "value")
    except InvalidInputError:
        return
    assert found.dtype.kind in "fiu"


@settings(deadline=1000)
@given(nasty, nasty)
def test_nothing_but_our_own_errors_leaves_public_functions(one: Any, two: Any) -> None:
    calls = (
        lambda: score_logits(one, two, CLUSTERS),
        lambda: semtoken.methods.metrics.auroc(one, two),
        lambda: holm(one),
        lambda: p_true(one, two),
        lambda: semantic_entropy(cluster_ids=one, variant="discrete"),
    )
    for call in calls:
        with contextlib.suppress(SemtokenError):
            call()
