"""The candidates of PROTOCOL.md, each a number of one recorded answer: larger is riskier.

Formulas that `semtoken.methods` has are taken from there. `Answer` holds what they read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.core.parts.newness import new_words
from semtoken.core.parts.prose import find_phrases
from semtoken.methods.entropies import (
    epr,
    first_content_entropy,
    first_content_step,
    lowest_group_confidence,
    max_token_entropy,
    mean_token_entropy,
    self_certainty,
    surprise_and_peak,
    trace,
    window_entropy,
)
from semtoken.methods.inside import rauq

Floats = npt.NDArray[np.float64]
LAST = 100.0
"""Stands behind every number of a word."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What the candidates read of one answer of T tokens over V."""

    text: str
    question: str
    offsets: list[tuple[int, int]]
    """Character range of each token in the text."""
    token_texts: list[str]
    log_probs: Floats
    agreeing: Floats
    """[T] ln of the mass that agrees by preset `default`, at most 0."""
    entropies: Floats
    mean_log_probs: Floats
    """[T] mean over the vocabulary of ln p."""
    best: Floats
    """[T, K] log-probabilities of the best tokens."""
    attention: Floats
    """[layers, heads, T - 1] of each token to the one before it."""
    vocabulary: int
    """V."""

    def surprises(self, spans: list[tuple[int, int]]) -> list[float]:
        """Of each stretch of the text: the sum of -ln of the agreeing mass over the tokens that touch it."""
        return [
            -math.fsum(
                mass
                for mass, (start, end) in zip(self.agreeing, self.offsets, strict=True)
                if start < last and end > first
            )
            for first, last in spans
        ]


def of_tokens(answer: Answer) -> dict[str, float]:
    """Candidates that know no words: lines 1, 2, 3, 5 and 8 of the protocol."""
    logs, h, best = answer.log_probs, answer.entropies, list(answer.best)
    total, mean, weakest = -math.fsum(logs), -math.fsum(logs) / len(logs), -float(logs.min())
    divergences = np.maximum(-answer.mean_log_probs - math.log(answer.vocabulary), 0.0)
    return {
        "probability": total,
        "mean_log_prob": mean,
        "weakest_token": weakest,
        "root_length": total / math.sqrt(len(logs)),
        "mean_token_entropy": mean_token_entropy(h),
        "max_token_entropy": max_token_entropy(h),
        "first_entropy": float(h[0]),
        "window_entropy": window_entropy(h),
        "epr": epr(best),
        "surprise_and_peak": surprise_and_peak(h, logs),
        "mean_and_weakest": mean + weakest,
        "mean_surprise_and_peak": mean + float(h.max()),
        "trace": trace(h, logs),
        "self_certainty": self_certainty(divergences),
        "lowest_group_confidence": lowest_group_confidence(best),
        "first_content_entropy": first_content_entropy(best, first_content_step(answer.token_texts)),
        "rauq": rauq(logs, answer.attention, layers=range(len(answer.attention))) if len(logs) > 1 else total,
        "length": float(len(logs)),
    }


def of_words(answer: Answer) -> dict[str, float | bool]:
    """Mean and worst of the answer's phrases and of the words that its question does not hold: line 6."""
    phrases = answer.surprises([(found.start, found.end) for found in find_phrases(answer.text)])
    words = answer.surprises(new_words(answer.text, answer.question))
    typical, worst = -math.fsum(answer.log_probs) / len(answer.log_probs), -float(answer.log_probs.min())
    return {
        "weakest_phrase": max(phrases, default=worst),
        "mean_phrase": math.fsum(phrases) / len(phrases) if phrases else typical,
        "mean_new_word": math.fsum(words) / len(words) if words else typical,
        "weakest_new_word": max(words, default=worst),
        "mean_new_word_else_last": math.fsum(words) / len(words) if words else LAST,
        "no_new_word": not words,
    }


def sums(numbers: dict[str, Any]) -> dict[str, float]:
    """A typical part and the worst one together: line 7."""
    word, phrase = numbers["mean_new_word"], numbers["weakest_phrase"]
    return {
        "mean_and_weakest_word": word + numbers["weakest_new_word"],
        "word_and_phrase": word + phrase,
        "word_and_token": word + numbers["weakest_token"],
        "word_and_mean": word + numbers["mean_log_prob"],
        "phrase_and_mean": phrase + numbers["mean_log_prob"],
    }


def numbers(answer: Answer) -> dict[str, Any]:
    """Every candidate but those that are a rule of agreeing."""
    found = of_tokens(answer) | of_words(answer)
    return found | sums(found)
