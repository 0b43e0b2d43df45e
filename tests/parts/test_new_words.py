"""The mean new word, against sums by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import semtoken as st
from semtoken.parts.new_words import new_word_confidence, new_words
from tests import tiny

QUESTION = "What is the capital of Australia?"
TEXT = "The capital of Australia is Canberra, founded in 1913."


@pytest.fixture(scope="module")
def answer() -> st.ScoredResponse:
    tokenizer = tiny.byte_level_bpe()
    vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
    clusters = st.TokenClusters(np.arange(vocabulary.size, dtype=np.int32), vocabulary)
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    logits = np.random.default_rng(0).normal(size=(len(ids), vocabulary.size)).astype(np.float32)
    return st.score_logits(logits, ids, clusters)


def test_new_words_are_no_function_words_and_no_echo_of_the_question(answer: st.ScoredResponse) -> None:
    found = [answer.text[start:end] for start, end in new_words(answer, QUESTION)]
    assert found == ["Canberra", "founded", "1913"]
    assert [answer.text[s:e] for s, e in new_words(answer)] == ["capital", "Australia", "Canberra", "founded", "1913"]


def test_the_confidence_is_the_geometric_mean_over_words(answer: st.ScoredResponse) -> None:
    products = []
    for word in ("Canberra", "founded", "1913"):
        start = TEXT.index(word)
        inside = [t for t in answer.tokens if t.start < start + len(word) and t.end > start]
        products.append(np.prod([t.clustered_probability for t in inside]))
    expected = float(np.prod(products)) ** (1 / 3)
    assert new_word_confidence(answer, QUESTION) == pytest.approx(expected, rel=1e-9)
    assert answer.new_word_confidence(QUESTION) == new_word_confidence(answer, QUESTION)


def test_without_new_words_there_is_no_number(answer: st.ScoredResponse) -> None:
    assert new_word_confidence(replace(answer, text="It is the same."), TEXT) is None
    assert new_word_confidence(answer, TEXT) is None
    sure = replace(answer, tokens=tuple(replace(t, log_clustered_probability=0.0) for t in answer.tokens))
    assert new_word_confidence(sure, QUESTION) == 1.0
    never = replace(answer, tokens=tuple(replace(t, log_clustered_probability=-math.inf) for t in answer.tokens))
    assert new_word_confidence(never, QUESTION) == 0.0
