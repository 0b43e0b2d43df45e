"""Methods of one pass that read a scored answer: its words, all its tokens, and the one that heads every answer.

`InvalidInputError` where an answer has neither the words or phrases that a method reads nor a token.
"""

from __future__ import annotations

import math
from functools import partial

import numpy.typing as npt

from semtoken.core.parts.json_values import is_json
from semtoken.core.parts.prose import is_sentence, without_thinking
from semtoken.core.results.confidence import of_phrases
from semtoken.methods.likelihood import perplexity, weakest_token
from semtoken.methods.table import log_probs, mean, method
from semtoken.support.arrays import real_numbers
from semtoken.support.inputs import text as checked_text

_of_words = partial(method, family="words", reference="of this project, 2026")


@_of_words(title="Mean new word", needs=("new_word_log_probs", "log_probs"))
def mean_new_word(new_word_log_probs: npt.ArrayLike, greedy_logprobs: npt.ArrayLike = ()) -> float:
    """Mean surprise of the words that the answer adds to its question, U = -(1/n) sum_i ln c_i.

    c_i is the confidence of new word i, the product over its tokens of the mass that agrees with each. exp(-U) is
    `ScoredAnswer.new_word_confidence`, the geometric mean of the c_i.

    Parameters
    ----------
    new_word_log_probs : array of shape (n,)
        ln c_i, at most 0; empty where the answer has no new word.
    greedy_logprobs : array of shape (T,)
        As in `perplexity`, which takes the place where there is no new word.

    Returns
    -------
    float in [0, inf]
        Nats.

    References
    ----------
    Of this project, 2026: docs/results.md, "Long answers".
    """
    if not _any(new_word_log_probs):
        return perplexity(greedy_logprobs)
    _check_tokens(greedy_logprobs)
    return -mean(log_probs(new_word_log_probs, "new_word_log_probs")) + 0.0


@_of_words(title="Weakest phrase", needs=("phrase_log_probs", "log_probs"))
def weakest_phrase(phrase_log_probs: npt.ArrayLike, greedy_logprobs: npt.ArrayLike = ()) -> float:
    """Surprise of the least certain phrase of the answer, U = -min_i ln c_i.

    Parameters
    ----------
    phrase_log_probs : array of shape (n,)
        Log confidence of each phrase (`ScoredAnswer.parts("phrase")`), at most 0; empty where there is none.
    greedy_logprobs : array of shape (T,)
        As in `perplexity`; the weakest token takes the place where there is no phrase.

    Returns
    -------
    float in [0, inf]
        Nats.

    References
    ----------
    Of this project, 2026: docs/results.md, "Long answers".
    """
    if not _any(phrase_log_probs):
        return weakest_token(greedy_logprobs)
    _check_tokens(greedy_logprobs)
    return -float(log_probs(phrase_log_probs, "phrase_log_probs").min()) + 0.0


@_of_words(title="Weakest phrase + mean", needs=("phrase_log_probs", "log_probs"))
def phrase_and_mean(phrase_log_probs: npt.ArrayLike, greedy_logprobs: npt.ArrayLike) -> float:
    """Surprise of the weakest phrase and of a typical token together, U = -min_i ln c_i - (1/T) sum_t ln p_t.

    exp(-U) is the probability of the weakest phrase times the geometric mean of the tokens' probabilities.

    Parameters
    ----------
    phrase_log_probs : array of shape (n,)
        As in `weakest_phrase`.
    greedy_logprobs : array of shape (T,)
        As in `perplexity`.

    Returns
    -------
    float in [0, inf]
        Nats.

    References
    ----------
    Of this project, 2026: docs/results.md, "Which number is the confidence?".
    """
    return weakest_phrase(phrase_log_probs, greedy_logprobs) + perplexity(greedy_logprobs)


@_of_words(title="New phrases", needs=("new_phrase_log_probs", "log_probs"))
def new_phrases(new_phrase_log_probs: npt.ArrayLike, greedy_logprobs: npt.ArrayLike = ()) -> float:
    """Surprise of the phrases that the answer adds to its question, U = -(min_i ln c_i + (1/n) sum_i ln c_i) / 2.

    exp(-U) is the geometric mean of the confidence of the least sure of them and that of a typical one; of a single
    phrase it is its own confidence c_1.

    Parameters
    ----------
    new_phrase_log_probs : array of shape (n,)
        ln c_i of the phrases that hold a word that is not in the question, at most 0; none where the answer only
        repeats the question.
    greedy_logprobs : array of shape (T,)
        As in `perplexity`.

    Returns
    -------
    float in [0, inf]
        Nats; inf where there is no phrase.

    References
    ----------
    Of this project, 2026: docs/results.md, "Which number is the confidence?".
    """
    _check_tokens(greedy_logprobs)
    if not _any(new_phrase_log_probs):
        return math.inf
    return -of_phrases(log_probs(new_phrase_log_probs, "new_phrase_log_probs").tolist()) + 0.0


@_of_words(title="Length-normalized", needs=("default_log_score", "log_probs"), range=(0.0, 1.0))
def length_normalized(log_confidence: float, greedy_logprobs: npt.ArrayLike) -> float:
    """One minus the geometric mean of the agreeing probabilities of all tokens, U = 1 - exp(log_confidence / T).

    Unlike the product over all tokens it does not grow with the length of the answer.

    Parameters
    ----------
    log_confidence : float, at most 0
        As in `confidence`.
    greedy_logprobs : array of shape (T,)
        As in `perplexity`; only its length is read.

    Returns
    -------
    float in [0, 1]
        0 for a certain answer; 1 for an empty one, and where nothing agreed with a token.

    References
    ----------
    Malinin and Gales 2021, "Uncertainty estimation in autoregressive structured prediction", for the probabilities of
    tokens; of agreeing ones of this project, 2026.
    """
    logs = log_probs(greedy_logprobs, "greedy_logprobs")
    return -math.expm1(float(log_probs([log_confidence], "log_confidence")[0]) / len(logs)) + 0.0


@_of_words(title="Confidence", needs=("default_log_score", "new_phrase_log_probs", "log_probs", "text"))
def confidence(
    log_confidence: float, new_phrase_log_probs: npt.ArrayLike, greedy_logprobs: npt.ArrayLike, text: str = ""
) -> float:
    """The number that ranks answers: -log_confidence of a short one, `new_phrases` of a sentence and of JSON.

    exp(-U) is `ScoredAnswer.confidence`. A sentence has 12 tokens or more, or a final stop. Of JSON the only
    phrase is its least sure field, so that exp(-U) is the confidence of that field.

    Parameters
    ----------
    log_confidence : float, at most 0
        Of the preset `default`; -inf for an empty answer.
    new_phrase_log_probs : array of shape (n,)
        As in `new_phrases`.
    greedy_logprobs : array of shape (T,)
        As in `perplexity`; its length says whether the answer is short.
    text
        The answer, which says whether it is a sentence or JSON.

    Returns
    -------
    float in [0, inf]
        Nats; inf for an empty answer, and for a sentence that only repeats the question.

    References
    ----------
    Of this project, 2026: docs/results.md, "Which number is the confidence?".
    """
    logs = log_probs(greedy_logprobs, "greedy_logprobs")
    score = float(log_probs([log_confidence], "log_confidence")[0])
    text = checked_text(text, "text")
    has_fields = _any(new_phrase_log_probs) and is_json(without_thinking(text))
    if not has_fields and (score == -math.inf or not is_sentence(text, len(logs))):
        return -score + 0.0
    return new_phrases(new_phrase_log_probs, logs)


def _check_tokens(greedy_logprobs: npt.ArrayLike) -> None:
    """Refuse what is not log-probabilities, also where they are not read."""
    if _any(greedy_logprobs):
        log_probs(greedy_logprobs, "greedy_logprobs")


def _any(values: npt.ArrayLike) -> bool:
    return real_numbers(values, "values").size > 0
