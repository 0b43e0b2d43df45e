"""Defects that published implementations have or had, one test each: what must not happen here."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from semtoken import methods
from semtoken.methods import score
from tests.methods.method_records import scattered


def test_ln_entropy_counts_the_tokens_it_sums() -> None:
    rows = [[-0.1, -0.2, -0.05], [-0.7, -0.3], [-2.0, -0.4]]
    assert methods.ln_entropy(rows) == pytest.approx((0.35 / 3 + 1.0 / 2 + 2.4 / 2) / 3)


def test_no_sample_is_dropped_for_being_short() -> None:
    assert methods.predictive_entropy([[-1.0], [-3.0, -2.0]]) == pytest.approx(3.0)
    assert methods.ln_entropy([[-1.0], [-3.0, -2.0]]) == pytest.approx(1.75)


def test_one_class_has_no_entropy_at_all_however_often_a_text_was_drawn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = [np.log(rng.uniform(size=3)) for _ in range(5)]
        value = methods.semantic_entropy(rows, [0] * 5)
        assert value == 0.0
        assert math.copysign(1, value) == 1
    assert methods.semantic_entropy([[-0.1]] * 5, [0] * 5, variant="lm_polygraph_monte_carlo") < 0


def test_equal_texts_share_a_class_whatever_the_model_says_of_a_text_and_itself() -> None:
    contradicts_itself = np.zeros((5, 5), dtype=int)
    assert methods.semantic_clusters(contradicts_itself) == [0, 1, 2, 3, 4]
    assert methods.semantic_clusters(contradicts_itself, [0, 0, 2, 2, 0]) == [0, 0, 1, 1, 0]
    record = replace(scattered(), sample_texts=["Rome", "Rome ", "Rome\n", " Rome", "Rome"])
    assert score("semantic_entropy", record) == 0.0
    assert score("deg", record) == 0.0
    assert score("eigv", record) == 1.0


@pytest.mark.parametrize("text", [" the", "The", " The", "the,", "THE\n", "\t of"])
def test_function_words_are_recognized_with_blanks_and_capitals(text: str) -> None:
    assert methods.is_function_word_text(text)


@pytest.mark.parametrize("text", [" Paris", "7", "\n", "", " Theo"])
def test_other_tokens_are_not_function_words(text: str) -> None:
    assert not methods.is_function_word_text(text)


def test_ccp_of_a_record_skips_function_words() -> None:
    record = scattered()
    assert score("ccp", record) == pytest.approx(-(0.15 / 0.29) * (0.4 / 0.7))
    assert score("ccp", replace(record, token_texts=[" The", "\n"])) == pytest.approx(-0.4 / 0.7)


def test_ccp_is_negative_by_design_and_keeps_its_order_in_long_answers() -> None:
    step, classes = np.log([0.5, 0.4]), [2, 0]
    values = [methods.ccp([step] * n, [classes] * n, [classes] * n) for n in (1, 2, 3)]
    assert values == sorted(values)
    assert all(-1 <= value <= 0 for value in values)
    long = [[step] * n for n in (2000, 2001)]
    assert methods.ccp(long[0], [classes] * 2000, [classes] * 2000) == 0.0
    logs = [
        methods.ccp(rows, [classes] * len(rows), [classes] * len(rows), scale="negative_log_product") for rows in long
    ]
    assert logs[0] < logs[1] < math.inf


def test_sentence_sar_does_not_underflow() -> None:
    rows = [[-800.0], [-900.0]]
    assert methods.sentence_sar(rows, [[1.0, 0.5], [0.5, 1.0]]) == pytest.approx(796.8926959507893, rel=1e-12)
    no_support = methods.sentence_sar(rows, np.eye(2))
    assert math.isfinite(no_support)


def test_irrelevant_tokens_fall_back_to_equal_weights() -> None:
    assert methods.token_sar([-0.2, -0.4], [1.0, 1.0]) == pytest.approx(0.3)
    assert math.isnan(methods.token_sar([-0.2, -0.4], [1.0, 1.0], zero_relevance="nan"))


def test_special_tokens_have_no_weight_and_one_token_has_all() -> None:
    assert methods.token_sar([-0.7], [0.5]) == methods.token_sar([-0.7], [1.0]) == pytest.approx(0.7)
    assert methods.token_sar([-0.7, -0.2], [0.3, 0.9], special=[False, True]) == pytest.approx(0.7)
    assert methods.token_sar([-0.7, -math.inf], [0.3, 1.0]) == pytest.approx(0.7)


def test_similarities_beyond_their_range_by_rounding_are_clipped() -> None:
    assert methods.token_sar([-0.7, -0.2], [0.3, 1.0000001]) == pytest.approx(0.7)
    assert methods.conu([[1.0000001, 0.2], [0.2, 1.0]]) == methods.conu([[1.0, 0.2], [0.2, 1.0]])


def test_degree_does_not_grow_with_the_number_of_samples() -> None:
    blocks = [np.kron(np.array([[1.0, 0.2], [0.2, 1.0]]), np.ones((m, m))) for m in (1, 5)]
    assert methods.deg(blocks[0]) == methods.deg(blocks[1]) == pytest.approx(0.4)
    assert methods.deg(blocks[1], scale="sum") == pytest.approx(4.0)


def test_graph_methods_tie_exactly_when_they_should() -> None:
    """Repeated eigenvalues leave the basis to the solver: permuted samples must still tie to the last bit."""
    rng = np.random.default_rng(0)
    for size in (4, 5, 8):
        blocks = np.kron(np.eye(size // 2), np.ones((2, 2)))
        values = set()
        for _ in range(20):
            order = rng.permutation(len(blocks))
            shuffled = blocks[np.ix_(order, order)]
            values.add((methods.ecc(shuffled), methods.eigv(shuffled), methods.deg(shuffled)))
        assert len(values) == 1


def test_softmax_comes_before_the_mean_of_directions() -> None:
    logits = np.zeros((2, 2, 3))
    logits[0, 1] = [-3.0, -0.5, 4.0]
    logits[1, 0] = [-2.5, 0.5, -3.5]
    entailed = [float(np.exp(pair[2]) / np.exp(pair).sum()) for pair in (logits[0, 1], logits[1, 0])]
    expected = 1 - (2 + sum(entailed)) / 4
    assert methods.deg(nli_logits_unique_contra_neutral_entail=logits) == pytest.approx(expected)


def test_identical_states_have_no_negative_eigenvalue() -> None:
    state = np.random.default_rng(0).normal(size=4096) * 1e6
    value = methods.eigenscore(np.tile(state, (5, 1)))
    size = state.size
    large = 5 * ((state - state.mean()) ** 2).sum() / (size - 1)
    assert value == pytest.approx((4 * math.log10(1e-3) + math.log10(large + 1e-3)) / 5, abs=1e-6)


def test_conu_uses_its_diversity_term() -> None:
    near, far = (np.full((3, 3), s) + (1 - s) * np.eye(3) for s in (0.6, 0.1))
    assert methods.conu(near) < methods.conu(far)
    assert methods.conu(near, lambda_=1.0) == methods.conu(far, lambda_=1.0)
