"""Methods of one pass that read the words of a scored answer: the mean new word and the weakest phrase."""

from __future__ import annotations

import math

import numpy.typing as npt

from semtoken.methods.checks import log_probs, mean
from semtoken.methods.table import method
from semtoken.parts.new_words import NOTHING_NEW
from semtoken.support.arrays import real_numbers

WORST = -math.log(NOTHING_NEW)
"""Of an answer without a new word, 708.4."""


@method(
    title="Mean new word",
    family="words",
    needs=("new_word_log_probs",),
    reference="of this project, 2026",
)
def mean_new_word(new_word_log_probs: npt.ArrayLike) -> float:
    """Mean surprise of the words that the answer adds to its question, U = -(1/n) sum_i ln c_i.

    c_i is the confidence of new word i, the product over its tokens of the mass that agrees with each. exp(-U) is
    `ScoredResponse.new_word_confidence`, the geometric mean of the c_i.

    Parameters
    ----------
    new_word_log_probs : array of shape (n,)
        ln c_i, at most 0; empty where the answer has no new word.

    Returns
    -------
    float in [0, inf]
        Nats. 708.4 (the least positive float) without a new word.

    References
    ----------
    Of this project, 2026: docs/results.md, "Long answers".
    """
    return -mean(log_probs(new_word_log_probs, "new_word_log_probs")) + 0.0 if _any(new_word_log_probs) else WORST


@method(
    title="Weakest phrase",
    family="words",
    needs=("phrase_log_probs",),
    reference="of this project, 2026",
)
def weakest_phrase(phrase_log_probs: npt.ArrayLike) -> float:
    """Surprise of the least certain phrase of the answer, U = -min_i ln c_i.

    Parameters
    ----------
    phrase_log_probs : array of shape (n,)
        Log confidence of each phrase (`ScoredResponse.parts("phrase")`), at most 0; empty where there is none.

    Returns
    -------
    float in [0, inf]
        Nats. 708.4 (the least positive float) without a phrase.

    References
    ----------
    Of this project, 2026: docs/results.md, "Long answers".
    """
    if not _any(phrase_log_probs):
        return WORST
    return -float(log_probs(phrase_log_probs, "phrase_log_probs").min()) + 0.0


def _any(values: npt.ArrayLike) -> bool:
    return real_numbers(values, "values").size > 0
