"""What methods read of a scored answer, without a look at the model: its tokens, its new words, its phrases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from semtoken.parts.answers import tokens_touching
from semtoken.parts.finding import parts_of
from semtoken.parts.new_words import new_words
from semtoken.results import ScoredResponse
from semtoken.support.arrays import FloatArray
from semtoken.tokens.scored import ScoredToken

Bounded = tuple[FloatArray, FloatArray, FloatArray]
"""A value, and values below and above the exact one: the same where it is exact itself."""
OfAnswer = Callable[[ScoredResponse, str], Any]
"""A scored answer and its question -> the value of a field of `Generation`."""


def new_word_log_probs(answer: ScoredResponse, question: str) -> Bounded:
    """[words] log confidence of each word that an answer adds to its question, by the answer's own rules."""
    return _bounded([_of_tokens(tokens) for tokens in tokens_touching(answer, new_words(answer, question))])


def phrase_log_probs(answer: ScoredResponse, question: str) -> Bounded:
    """[phrases] log confidence of each phrase of an answer, by the answer's own rules."""
    parts = [part for part in parts_of(answer, "phrase") if part.confidence is not None]
    found = []
    for part in parts:
        low, high = part.bounds or (part.confidence, part.confidence)
        found.append((_log(part.confidence), _log(low), _log(high)))
    return _bounded(found)


def _of_tokens(tokens: Sequence[ScoredToken]) -> tuple[float, float, float]:
    """Log of the product over some tokens, and of its bounds."""
    own = [token.log_agreeing_probability for token in tokens]
    bounds = [token.log_agreeing_bounds or (log, log) for token, log in zip(tokens, own, strict=True)]
    return math.fsum(own), math.fsum(low for low, _ in bounds), math.fsum(high for _, high in bounds)


def _bounded(found: list[tuple[float, float, float]]) -> Bounded:
    value, low, high = np.array(found, dtype=np.float64).reshape(-1, 3).T
    return value, low, high


def _log(probability: float | None) -> float:
    return math.log(probability) if probability else -math.inf


PLAIN: Mapping[str, OfAnswer] = MappingProxyType(
    {
        "text": lambda answer, question: answer.text,
        "token_ids": lambda answer, question: answer.token_ids,
        "token_texts": lambda answer, question: [token.text for token in answer.tokens],
        "log_probs": lambda answer, question: np.array([token.log_probability for token in answer.tokens]),
        "stc_log_score": lambda answer, question: answer.log_score,
    }
)
"""Fields that a scored answer has exactly."""
BOUNDED: Mapping[str, Callable[[ScoredResponse, str], Bounded]] = MappingProxyType(
    {"new_word_log_probs": new_word_log_probs, "phrase_log_probs": phrase_log_probs}
)
"""Fields that lie between bounds where only the best tokens of each step are known."""
OF_ANSWERS = frozenset({*PLAIN, *BOUNDED})
"""All fields of `Generation` that a scored answer has."""
