"""What methods read of a scored answer, without a look at the model: its tokens, its new words, its phrases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from semtoken.parts.answers import log_product, tokens_touching
from semtoken.parts.new_words import new_words
from semtoken.parts.prose import phrases
from semtoken.results import ScoredResponse

Bounded = tuple[Any, Any, Any]
"""A value, and values below and above the exact one: the same where it is exact itself."""
OfAnswer = Callable[[ScoredResponse, str], Any]
"""A scored answer and its question -> the value of a field of `Generation`."""


def new_word_log_probs(answer: ScoredResponse, question: str) -> Bounded:
    """[words] log confidence of each word that an answer adds to its question, by the answer's own rules."""
    return _of_ranges(answer, new_words(answer, question))


def phrase_log_probs(answer: ScoredResponse, question: str) -> Bounded:
    """[phrases] log confidence of each phrase of an answer, by the answer's own rules."""
    return _of_ranges(answer, phrases(answer.text))


def log_score(answer: ScoredResponse, question: str) -> Bounded:
    """Log of the product of what agrees with each token."""
    low, high = answer.log_score_bounds or (answer.log_score, answer.log_score)
    return np.float64(answer.log_score), np.float64(low), np.float64(high)


def _of_ranges(answer: ScoredResponse, ranges: list[tuple[int, int]]) -> Bounded:
    """[ranges] log of the product over the tokens that touch each range of characters, with bounds."""
    found = [log_product(tokens) for tokens in tokens_touching(answer.tokens, ranges)]
    value, low, high = np.array(found, dtype=np.float64).reshape(-1, 3).T
    return value, low, high


PLAIN: Mapping[str, OfAnswer] = MappingProxyType(
    {
        "text": lambda answer, question: answer.text,
        "token_ids": lambda answer, question: answer.token_ids,
        "token_texts": lambda answer, question: [token.text for token in answer.tokens],
        "log_probs": lambda answer, question: np.array([token.log_probability for token in answer.tokens]),
    }
)
"""Fields that a scored answer has exactly."""
BOUNDED: Mapping[str, Callable[[ScoredResponse, str], Bounded]] = MappingProxyType(
    {
        "new_word_log_probs": new_word_log_probs,
        "phrase_log_probs": phrase_log_probs,
        "stc_log_score": log_score,
        "default_log_score": log_score,
    }
)
"""Fields that lie between bounds where only the best tokens of each step are known."""
OF_ANSWERS = frozenset({*PLAIN, *BOUNDED})
"""All fields of `Generation` that a scored answer has."""
