"""Properties of every method of the table, whatever it computes.

A new method needs a line in `METHODS`; if it reads a new field, give that field a value in each record of
`method_records`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import methods
from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError, MissingStatistic
from semtoken.methods import METHODS, score
from tests.known import known
from tests.methods.method_records import random_legal, reordered, scattered, surely_right, write_protected
from tests.rows import each

# The paper's Table 1: semantic-aware, single sample, no external model, overhead.
TABLE_1 = {
    "perplexity": (False, True, True, "low"),
    "p_true": (False, True, True, "medium"),
    "predictive_entropy": (False, False, True, "high"),
    "ln_entropy": (False, False, True, "high"),
    "token_sar": (True, True, False, "medium"),
    "conu": (True, False, False, "high"),
    "semantic_entropy": (True, False, False, "high"),
    "ecc": (True, False, False, "high"),
    "eigv": (True, False, False, "high"),
    "deg": (True, False, False, "high"),
    "sentence_sar": (True, False, False, "high"),
    "sar": (True, False, False, "high"),
    "eigenscore": (True, False, True, "high"),
    "ccp": (True, True, False, "high"),
    "stc": (True, True, True, "low"),
}


@given(seed=st.integers(0, 2**32 - 1), samples=st.integers(1, 8), tokens=st.integers(1, 8))
def test_any_legal_record_gives_a_finite_number_in_range(seed: int, samples: int, tokens: int) -> None:
    record = random_legal(seed, samples, tokens)
    for name, method in METHODS.items():
        value = score(name, record)
        low, high = method.range
        assert isinstance(value, float) and math.isfinite(value) and low <= value <= high, name


@each("name", METHODS)
def test_higher_is_riskier(name: str) -> None:
    assert score(name, surely_right()) < score(name, scattered())


@given(seed=st.integers(0, 2**32 - 1), order=st.permutations(range(6)))
def test_the_order_of_samples_does_not_matter(seed: int, order: list[int]) -> None:
    record = random_legal(seed, samples=6)
    other = reordered(record, np.array(order))
    for name in METHODS:
        tolerance = 2e-6 if name == "ecc" else 1e-9  # ecc is rounded to 6 decimals
        assert score(name, other) == pytest.approx(score(name, record), abs=tolerance), name


@each("name", METHODS)
def test_one_sample_is_enough(name: str) -> None:
    assert math.isfinite(score(name, surely_right(samples=1)))


@each("name", METHODS)
def test_the_record_is_not_changed(name: str) -> None:
    record = write_protected(random_legal(3))
    assert score(name, record) == score(name, record)


@each("name", METHODS)
def test_needs_are_complete_and_each_is_needed(name: str) -> None:
    full = random_legal(0)
    needs = METHODS[name].needs
    only_needed = Generation(full.text, full.token_ids).with_fields({field: getattr(full, field) for field in needs})
    assert score(name, only_needed) == score(name, full)
    for field in needs:
        with pytest.raises(MissingStatistic, match=rf"{name} needs {field}, which"):
            score(name, only_needed.with_fields({field: None}))


@each("name", METHODS)
def test_the_entry_is_documented(name: str) -> None:
    method = METHODS[name]
    doc = method.function.__doc__ or ""
    for section in ("Parameters", "Returns", "References"):
        assert section in doc, section
    assert method.title
    assert any(character.isdigit() for character in method.reference)


def test_the_papers_methods_are_there_under_their_names_with_its_classes() -> None:
    stated = {
        name: (m.semantic_aware, m.single_sample, m.external_model_free, m.overhead) for name, m in METHODS.items()
    }
    assert {name: stated[name] for name in TABLE_1} == TABLE_1
    assert {"stc_no_clustering", "stc_no_prefix", "sequence_probability"} <= set(METHODS) - set(TABLE_1)
    for name in set(TABLE_1) - {"stc"}:
        assert METHODS[name].function is getattr(methods, name)


@each("name", METHODS)
def test_samples_are_needed_exactly_by_the_methods_that_say_so(name: str) -> None:
    of_samples = {"sample_texts", "sample_log_probs", "nli_logits", "similarity", "hidden_states"}
    assert METHODS[name].single_sample == (not of_samples & set(METHODS[name].needs))


def test_options_reach_the_function() -> None:
    record = random_legal(2)
    assert score("conu", record, lambda_=1.0) == methods.conu(known(record.similarity), lambda_=1.0)
    assert score("deg", record, temperature=3.0) != score("deg", record)


def test_p_true_of_a_record_has_all_three_variants() -> None:
    record = replace(surely_right(), p_true_log_probs=np.log([0.3, 0.2]))
    assert score("p_true", record) == pytest.approx(-math.log(0.3))
    assert score("p_true", record, variant="one_minus_prob_true") == pytest.approx(0.7)
    assert score("p_true", record, variant="two_way_softmax") == pytest.approx(0.4)
    nothing_else = replace(record, p_true_log_probs=np.log([0.75, 0.25]))
    assert score("p_true", nothing_else, variant="one_minus_prob_true") == pytest.approx(0.25)


def test_an_unknown_method_is_refused_with_the_list() -> None:
    with pytest.raises(InvalidInputError, match=r"no method 'lexical'; there are stc, .*ccp"):
        score("lexical", surely_right())


def test_a_bad_record_names_the_method_and_the_argument() -> None:
    record = replace(surely_right(), log_probs=np.array([-0.1, np.nan]))
    with pytest.raises(InvalidInputError, match=r"perplexity: 'greedy_logprobs' holds NaN, first at \(1,\)"):
        score("perplexity", record)


def test_a_generation_refuses_records_of_another_length() -> None:
    with pytest.raises(InvalidInputError, match="'log_probs' has 3 entries for 2 tokens"):
        Generation("a", [1, 2], log_probs=np.zeros(3))
    with pytest.raises(InvalidInputError, match="'similarity' has 3 entries for 2 samples"):
        Generation("a", [1], sample_texts=["a", "b"], similarity=np.eye(3))


def test_a_generation_knows_what_it_holds_and_which_texts_are_equal() -> None:
    record = Generation("a", [1], sample_texts=["b", "a", " b\n", "a"], log_probs=np.zeros(1))
    assert record.recorded == {"text", "token_ids", "distribution", "sample_texts", "log_probs"}
    assert record.sample_text_index == [0, 1, 0, 1]
    assert Generation("a", [1]).sample_text_index is None
