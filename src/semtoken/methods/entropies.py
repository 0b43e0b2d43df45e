"""Methods of one pass that read the shape of the next-token distributions: their entropies and their best tokens.

T tokens, H_t the entropy of the distribution from which token t was chosen, in nats. All are recorded in the pass that
gives the answer, a few numbers a token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.claims import is_function_word_text
from semtoken.methods.table import Rows, log_probs, mean, method, numbers, same_count, total
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import listed, real, whole
from semtoken.support.inputs import text as text_of

WINDOW, GROUP = 4, 8
"""The number of steps of a window of TRACE and of a group of DeepConf."""
CONTENT_BEST, GROUP_BEST, EPR_BEST = 20, 20, 15
"""The number of best tokens of a step that the published methods read: first content entropy, DeepConf and EPR."""
ROUNDING, NEGLIGIBLE = 1e-9, 1e-6
"""The most that the sum of a step's listed probabilities may differ from 1: first where the step counts as listed
whole, then where its unlisted tokens add next to nothing to the entropy."""

_of_entropies = partial(method, family="entropy")


@_of_entropies(
    title="Mean token entropy", needs=("token_entropies",), reference="Fomicheva et al., TACL 2020, arXiv:2005.10608"
)
def mean_token_entropy(token_entropies: npt.ArrayLike) -> float:
    """Mean entropy of the next-token distributions, U = (1/T) sum_t H_t.

    Parameters
    ----------
    token_entropies : array of shape (T,)
        H_t = -sum_v p_t(v) ln p_t(v) of the raw distribution, in nats, at least 0.

    Returns
    -------
    float in [0, ln V]
        0 if the model had no choice anywhere.

    References
    ----------
    Fomicheva et al. 2020, "Unsupervised quality estimation for neural machine translation"; lm-polygraph's
    `MeanTokenEntropy`.

    Examples
    --------
    >>> mean_token_entropy([0.5, 1.5])
    1.0
    """
    return mean(_entropies(token_entropies))


@_of_entropies(
    title="Largest token entropy", needs=("token_entropies",), reference="Fomicheva et al., TACL 2020, arXiv:2005.10608"
)
def max_token_entropy(token_entropies: npt.ArrayLike) -> float:
    """Entropy of the most uncertain step, U = max_t H_t.

    Parameters
    ----------
    token_entropies : array of shape (T,)
        As in `mean_token_entropy`.

    Returns
    -------
    float in [0, ln V]
        Nats.

    References
    ----------
    The maximum of what Fomicheva et al. 2020 average.
    """
    return float(_entropies(token_entropies).max())


@_of_entropies(title="Window entropy", needs=("token_entropies",), reference="TRACE, 2026")
def window_entropy(token_entropies: npt.ArrayLike, *, width: int = WINDOW) -> float:
    """Largest mean entropy of some steps in a row, U = max_i mean(H_i .. H_{i+w-1}).

    Parameters
    ----------
    token_entropies : array of shape (T,)
        As in `mean_token_entropy`.
    width
        w, the steps of a window. Where the answer has fewer, all of them are one.

    Returns
    -------
    float in [0, ln V]
        Nats.

    References
    ----------
    The second term of TRACE (Hong Kong University of Science and Technology, Guangzhou, 2026).
    """
    return max(map(mean, _windows(_entropies(token_entropies), width)))


@_of_entropies(title="TRACE", needs=("token_entropies", "log_probs"), reference="TRACE, 2026")
def trace(token_entropies: npt.ArrayLike, greedy_logprobs: npt.ArrayLike) -> float:
    """Early entropy, the worst window and the surprise of the whole, U = .4 D + .4 W + .2 sum_t s_t / T^(1/4).

    D = sum_t e^(-(t-1)/2) H_t / sum_t e^(-(t-1)/2) weighs early steps more, W is `window_entropy`, and s_t is the
    surprise -ln p_t of token t. That D is divided by the sum of its weights is our reading of the paper.

    Parameters
    ----------
    token_entropies : array of shape (T,)
        As in `mean_token_entropy`.
    greedy_logprobs : array of shape (T,)
        Natural logs under the raw distribution, the terminator included.

    Returns
    -------
    float in [0, inf]
        Nats; the last term grows with the length.

    References
    ----------
    TRACE (Hong Kong University of Science and Technology, Guangzhou, 2026).
    """
    entropies, logs = _entropies(token_entropies), log_probs(greedy_logprobs, "greedy_logprobs")
    same_count("token_entropies", len(entropies), "greedy_logprobs", len(logs))
    weights = np.exp(-np.arange(len(entropies)) / 2)
    early = total(weights * entropies) / total(weights)
    surprise = -total(logs) / math.sqrt(math.sqrt(len(logs)))
    return 0.4 * early + 0.4 * window_entropy(entropies) + 0.2 * surprise


@_of_entropies(title="Surprise and peak", needs=("token_entropies", "log_probs"), reference="of this project, 2026")
def surprise_and_peak(token_entropies: npt.ArrayLike, greedy_logprobs: npt.ArrayLike) -> float:
    """Surprise of the whole answer and entropy of its most uncertain step, U = sum_t s_t + max_t H_t.

    Parameters
    ----------
    token_entropies, greedy_logprobs : arrays of shape (T,)
        As in `trace`.

    Returns
    -------
    float in [0, inf]
        Nats.

    References
    ----------
    Of this project, 2026: docs/results.md says where it was better than probability alone, and where not.
    """
    entropies, logs = _entropies(token_entropies), log_probs(greedy_logprobs, "greedy_logprobs")
    same_count("token_entropies", len(entropies), "greedy_logprobs", len(logs))
    return float(entropies.max()) - total(logs)


@_of_entropies(
    title="Self-certainty",
    needs=("uniform_divergences",),
    range=(-math.inf, 0.0),
    reference="Kang et al., 2025, arXiv:2502.18581",
)
def self_certainty(uniform_divergences: npt.ArrayLike) -> float:
    """Minus the mean divergence of the uniform distribution from the model's, U = -(1/T) sum_t KL(U || p_t).

    Parameters
    ----------
    uniform_divergences : array of shape (T,)
        KL(U || p_t) = -mean_v ln p_t(v) - ln V, in nats, at least 0.

    Returns
    -------
    float in [-inf, 0]
        0 if every distribution was uniform. The published number is its negative, where higher is surer.

    References
    ----------
    Kang et al. 2025, "Scalable Best-of-N Selection for Large Language Models via Self-Certainty"; lm-polygraph's
    `SelfCertainty`.
    """
    return -mean(_not_negative(uniform_divergences, "uniform_divergences")) + 0.0


def _first_content(g: Any) -> dict[str, Any]:
    return {"best_log_probs": g.best_log_probs, "step": first_content_step(g.token_texts)}


@_of_entropies(
    title="First content entropy",
    needs=("best_log_probs", "token_texts"),
    arguments=_first_content,
    range=(0.0, 1.0),
    reference="arXiv:2605.05166, 2026",
    monotone=False,
)
def first_content_entropy(best_log_probs: Rows, step: int, *, best: int = CONTENT_BEST) -> float:
    """Entropy of the best tokens where the answer's first content token was chosen, from 0 to 1.

    The K best probabilities of that step are divided by their sum, and their entropy by ln K.

    Parameters
    ----------
    best_log_probs : T arrays
        Log-probabilities of the best tokens of each step (or of all tokens), in any order.
    step
        The first content token's step, from 0; see `first_content_step`.
    best
        K. Where the vocabulary is smaller, all of it.

    Returns
    -------
    float in [0, 1]
        0 if one token had all the mass of the best ones.

    Raises
    ------
    InvalidInputError
        Fewer than K log-probabilities are known of a step, and their probabilities do not add up to 1. So it is in
        every method that reads the best tokens.

    References
    ----------
    arXiv:2605.05166.
    """
    rows = _best_rows(best_log_probs, best)
    logs = rows[whole(step, "step", low=0, high=len(rows) - 1)]
    # ln 1 is the divisor below.
    if len(logs) == 1:
        return 0.0
    # Shifted first: where all the best are very unlikely, their probabilities would all be 0.
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    return -total(_times_log(shares)) / math.log(len(logs)) + 0.0


def first_content_step(token_texts: Sequence[str]) -> int:
    """Place of the first token with content in an answer, for methods that read only that step.

    Parameters
    ----------
    token_texts : T texts
        The answer's tokens, each decoded by itself.

    Returns
    -------
    int in 0..T-1
        The first with a letter or digit that is not an English function word; 0 if there is none.

    Raises
    ------
    InvalidInputError
        Something is not a text.
    """
    for step, given in enumerate(listed(token_texts, "token_texts")):
        text = text_of(given, f"token_texts[{step}]")
        if any(map(str.isalnum, text)) and not is_function_word_text(text):
            return step
    return 0


@_of_entropies(
    title="Lowest group confidence",
    needs=("best_log_probs",),
    range=(-math.inf, 0.0),
    reference="DeepConf: Fu et al., 2025, arXiv:2508.15260",
    monotone=False,
)
def lowest_group_confidence(best_log_probs: Rows, *, width: int = GROUP, best: int = GROUP_BEST) -> float:
    """DeepConf's confidence of the least confident group of steps, negated: U = -min_i mean(C_i .. C_{i+w-1}).

    C_t = -(1/K) sum of the K best log-probabilities of step t: large where all but one token were unlikely.

    Parameters
    ----------
    best_log_probs, best
        As in `first_content_entropy`.
    width
        w, the steps of a group. Where the answer has fewer, all of them are one.

    Returns
    -------
    float in [-inf, 0]
        Nats.

    References
    ----------
    Fu et al. 2025, "Deep Think with Confidence".
    """
    confidences = np.array([-mean(row) for row in _best_rows(best_log_probs, best)])
    return -min(map(mean, _windows(confidences, width))) + 0.0


@_of_entropies(
    title="EPR", needs=("best_log_probs",), reference="Moslonka et al., 2025, arXiv:2509.04492", monotone=False
)
def epr(best_log_probs: Rows, *, best: int = EPR_BEST) -> float:
    """Entropy production rate: the part of the entropy that the best tokens have, U = (1/T) sum_t sum_k -p ln p.

    Parameters
    ----------
    best_log_probs, best
        As in `first_content_entropy`; the probabilities are not divided by their sum.

    Returns
    -------
    float in [0, inf)
        Nats.

    References
    ----------
    Moslonka et al. 2025, equation 6; the package artefactual, `EPR`.
    """
    return mean(entropy_contributions(best_log_probs, best=best).sum(axis=1))


def wepr(best_log_probs: Rows, weights: npt.ArrayLike, intercept: float = 0.0, *, best: int = EPR_BEST) -> float:
    """Weighted entropy production rate: the probability of an error that a fitted logistic regression gives.

    It needs labels, which fit the weights, and so it is no entry of `METHODS`.

    Parameters
    ----------
    best_log_probs, best
        As in `epr`.
    weights : array of shape (2 K,)
        Of the mean contribution of each rank over the tokens, then of its maximum.
    intercept
        The intercept of the regression.

    Returns
    -------
    float in [0, 1]
        Higher is riskier.

    Raises
    ------
    InvalidInputError
        Too few log-probabilities are known of a step, there are not two weights for each rank, or the weights are too
        large.

    References
    ----------
    Moslonka et al. 2025; the package artefactual, `WEPR`.
    """
    parts = entropy_contributions(best_log_probs, best=best)
    features = np.concatenate([parts.mean(axis=0), parts.max(axis=0)])
    fitted = numbers(weights, "weights", dimensions=1)
    same_count("weights", len(fitted), "features", len(features))
    # Huge weights give inf, which is a logit, or inf - inf, which is none and is refused below.
    with np.errstate(over="ignore", invalid="ignore"):
        logit = float(features @ fitted) + real(intercept, "intercept")
    if math.isnan(logit):
        raise InvalidInputError("'weights' are too large: what they count adds up to no number.")
    # math.exp raises from 710 on.
    return 1.0 / (1.0 + math.exp(-logit)) if logit > -700 else 0.0


def entropy_contributions(best_log_probs: Rows, *, best: int = EPR_BEST) -> FloatArray:
    """[T, K] what each rank adds to the entropy of a step, -p ln p in nats, the best token first."""
    rows = _best_rows(best_log_probs, best, missing=NEGLIGIBLE)
    contributions: FloatArray = np.zeros((len(rows), max(map(len, rows))))
    for place, row in zip(contributions, rows, strict=True):
        place[: len(row)] = -_times_log(np.exp(row))
    return contributions


def _entropies(values: npt.ArrayLike) -> FloatArray:
    return _not_negative(values, "token_entropies")


def _not_negative(values: npt.ArrayLike, name: str) -> FloatArray:
    checked = numbers(values, name, dimensions=1)
    # Entropies computed in float32 can be a hair below 0.
    if checked.min() < -1e-6:
        raise InvalidInputError(f"'{name}' holds {checked.min():g}, but it is never negative.")
    return np.maximum(checked, 0.0)


def _windows(values: FloatArray, width: int) -> FloatArray:
    """[windows, w] all stretches of w values in a row."""
    whole(width, "width", low=1)
    windows: FloatArray = np.lib.stride_tricks.sliding_window_view(values, min(width, len(values)))
    return windows


def _times_log(probabilities: FloatArray) -> FloatArray:
    """P ln p of each, 0 for 0."""
    # ln 1 in place of ln 0, since 0 * -inf is NaN.
    products: FloatArray = probabilities * np.log(np.where(probabilities > 0, probabilities, 1.0))
    return products


def _best_rows(best_log_probs: Rows, best: int, missing: float = ROUNDING) -> list[FloatArray]:
    """The K best log-probabilities of each step, best first; fewer where all but so much probability is listed."""
    whole(best, "best", low=1)
    rows = [
        np.sort(log_probs(row, f"best_log_probs[{t}]"))[::-1]
        for t, row in enumerate(listed(best_log_probs, "best_log_probs"))
    ]
    if not rows:
        raise InvalidInputError("'best_log_probs' is empty: give at least one step.")
    for step, row in enumerate(rows):
        # A vocabulary of fewer tokens, or one whose others are masked: nothing is missing, so the K best are these.
        if len(row) < best and abs(1.0 - math.fsum(np.exp(row).tolist())) > missing:
            raise InvalidInputError(
                f"The {best} best log-probabilities of every step are read, and of step {step} only {len(row)} are "
                f"known. Ask the engine for {best} (`top_logprobs`), or leave the method out."
            )
    return [row[:best] for row in rows]
