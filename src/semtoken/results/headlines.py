"""The number on top of an answer: which one it is, its value, and one sentence that explains it.

For a short answer that is the probability of what agrees with it. The same product over the tokens of a sentence is
near zero whatever the sentence says: there it is the probability of a typical word that the answer adds to its
question. The rule is one for now; the experiment on long and short answers may choose another (docs/results.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from semtoken.parts.answers import AnswerWithTokens
from semtoken.parts.new_words import LONG, NOTHING_NEW, new_word_confidence


@dataclass(frozen=True)
class Headline:
    """The number by which an answer is ranked unless another is asked for."""

    name: str
    """The method, a key of `semtoken.methods.METHODS`."""
    value: float
    """The answer's uncertainty by that method, as in `ScoredResponse.scores`: higher is riskier."""
    confidence: float
    """The same where higher is surer, in [0, 1], to be read: a probability or a geometric mean of some. No chance."""
    sentence: str
    """What the confidence is the probability of."""


def headline_of(answer: AnswerWithTokens, n_tokens: int, log_score: float, question: str) -> Headline:
    """The headline of a scored answer.

    Parameters
    ----------
    answer
        With its tokens.
    n_tokens, log_score
        How many they are, and the log of the product of what agrees with each.
    question
        What was asked; its words are not new.
    """
    if n_tokens < LONG:
        said = "The model's probability of an answer that agrees with this one."
        return Headline("stc", -math.expm1(log_score) + 0.0, math.exp(log_score), said)
    typical = new_word_confidence(answer, question)
    if typical is None:
        said = "The answer adds no word to its question."
        return Headline("mean_new_word", -math.log(NOTHING_NEW), 0.0, said)
    value = -math.log(max(typical, NOTHING_NEW)) + 0.0
    return Headline("mean_new_word", value, typical, "The model's probability of a typical word that the answer adds.")
