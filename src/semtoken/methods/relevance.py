"""Methods that weigh tokens and answers by relevance: TokenSAR, SentenceSAR and SAR."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.table import (
    Rows,
    booleans,
    log_probs,
    log_sum_exp,
    mean,
    method,
    method_on_samples,
    same_count,
    sample_log_probs,
    similarities,
    square,
    total,
)
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import flag, listed, one_of, real

_SMALLEST_SIMILARITY = 1e-12


@method(
    title="TokenSAR",
    family="relevance",
    needs=("log_probs", "token_similarity"),
    reference="Duan et al., ACL 2024, arXiv:2307.01379",
    semantic_aware=True,
    external_model_free=False,
    overhead="medium",
)
def token_sar(
    greedy_logprobs: npt.ArrayLike,
    similarity_to_full_without_token: npt.ArrayLike,
    *,
    special: npt.ArrayLike | None = None,
    zero_relevance: str = "uniform",
) -> float:
    """Negative log-probability of an answer, each token weighted by what the text loses without it.

    R_t = 1 - g(question + answer, question + answer without token t),
    U = sum_t R_t / (sum_s R_s) * (-log p_t). The weights sum to 1.

    Parameters
    ----------
    greedy_logprobs : array of shape (T,)
        Natural logs, the terminator included.
    similarity_to_full_without_token : array of shape (T,)
        Similarity g of the full text and the text with position t removed. Clipped to [0, 1].
    special : bool array of shape (T,), optional
        Special tokens: their weight is 0, as if the similarity were 1.
    zero_relevance : {"uniform", "nan"}
        When every similarity is 1 the weights are 0/0: use equal ones, or return NaN as LM-Polygraph does.

    Returns
    -------
    float in [0, inf]

    References
    ----------
    Duan et al. 2024, "Shifting attention to relevance: towards the predictive uncertainty
    quantification of free-form large language models", TokenSAR.
    Choices as in LM-Polygraph's `TokenSAR` (one greedy answer, one position removed), the 0/0 apart.

    Examples
    --------
    >>> round(token_sar([-0.2, -1.5, -0.1, -0.3], [0.95, 0.4, 0.8, 1.0]), 6)
    1.094118
    """
    tokens = log_probs(greedy_logprobs, "greedy_logprobs")
    name = "similarity_to_full_without_token"
    relevance = 1.0 - similarities(similarity_to_full_without_token, name, dimensions=1)
    if special is not None:
        mask = booleans(special, "special")
        same_count("special", mask.size, "greedy_logprobs", tokens.size)
        relevance = np.where(mask, 0.0, relevance)
    return _weighted_surprise(tokens, relevance, name, zero_relevance)


def token_sar_of_samples(sample_logprobs: Rows, token_importance: Rows, *, zero_relevance: str = "uniform") -> float:
    """Mean of TokenSAR over the samples, as the authors' release computes it.

    Parameters
    ----------
    sample_logprobs : M arrays of shapes (T_m,)
        Natural logs, terminators included.
    token_importance : M arrays of shapes (T_m,)
        R_t = 1 - similarity, in [0, 1].
    zero_relevance : {"uniform", "nan"}
        As in `token_sar`.

    Returns
    -------
    float in [0, inf]

    References
    ----------
    Duan et al. 2024, "Shifting attention to relevance"; the function `token_sar` of its release.
    """
    samples = sample_log_probs(sample_logprobs)
    return mean(_surprises(samples, token_importance, "token_importance", zero_relevance, invert=False))


@method_on_samples(
    title="SentenceSAR",
    family="relevance",
    needs=("sample_log_probs", "similarity"),
    range=(-math.inf, math.inf),
    reference="Duan et al., ACL 2024, arXiv:2307.01379",
)
def sentence_sar(
    sample_logprobs: Rows, similarity: npt.ArrayLike, t: float = 0.001, *, symmetric: bool = True
) -> float:
    """Entropy over samples in which similar answers support each other.

    E_i = -log( p_i + (1/t) sum_{j != i} S_ij p_j ) with p_i = exp(sum_t log p_it), U = (1/M) sum_i E_i,
    computed in log space: long answers do not underflow.

    Parameters
    ----------
    sample_logprobs : M arrays of shapes (T_m,)
        Natural logs, terminators included.
    similarity : array of shape (M, M)
        S in [0, 1]; the diagonal is never used. Clipped from below at 1e-12.
    t : float
        Temperature of the support, positive.
    symmetric : bool
        Use the mean of both directions of S. False takes row i for E_i, as LM-Polygraph does.

    Returns
    -------
    float
        Usually negative when the samples agree, since the support is divided by t.

    References
    ----------
    Duan et al. 2024, "Shifting attention to relevance", SentSAR. t = 0.001 as in its release.
    """
    samples = sample_log_probs(sample_logprobs)
    return _supported_entropy(np.array([total(row) for row in samples]), similarity, t, symmetric)


@method_on_samples(
    title="SAR",
    family="relevance",
    needs=("sample_log_probs", "similarity", "sample_token_similarity"),
    range=(-math.inf, math.inf),
    reference="Duan et al., ACL 2024, arXiv:2307.01379",
)
def sar(
    sample_logprobs: Rows,
    similarity: npt.ArrayLike,
    token_similarity: Rows,
    t: float = 0.001,
    *,
    symmetric: bool = True,
    zero_relevance: str = "uniform",
) -> float:
    """SentenceSAR with every sample's probability replaced by exp(-TokenSAR of the sample).

    Parameters
    ----------
    sample_logprobs, similarity, t, symmetric
        As in `sentence_sar`.
    token_similarity : M arrays of shapes (T_m,)
        For every token of every sample, the similarity of the text with and without it.
    zero_relevance : {"uniform", "nan"}
        As in `token_sar`.

    Returns
    -------
    float
        Usually negative when the samples agree.

    References
    ----------
    Duan et al. 2024, "Shifting attention to relevance", SAR.
    """
    samples = sample_log_probs(sample_logprobs)
    surprises = _surprises(samples, token_similarity, "token_similarity", zero_relevance, invert=True)
    return _supported_entropy(-np.array(surprises), similarity, t, symmetric)


def _surprises(samples: list[FloatArray], values: Rows, name: str, zero_relevance: str, *, invert: bool) -> list[float]:
    """TokenSAR of every sample, from relevances or (`invert`) from similarities."""
    rows = listed(values, name)
    same_count(name, len(rows), "sample_logprobs", len(samples))
    surprises = []
    for m, (row, given) in enumerate(zip(samples, rows, strict=True)):
        relevance = similarities(given, f"{name}[{m}]", dimensions=1)
        relevance = 1.0 - relevance if invert else relevance
        surprises.append(_weighted_surprise(row, relevance, f"{name}[{m}]", zero_relevance))
    return surprises


def _weighted_surprise(tokens: FloatArray, relevance: FloatArray, name: str, zero_relevance: str) -> float:
    one_of("zero_relevance", zero_relevance, ("uniform", "nan"))
    same_count(name, relevance.size, "log-probabilities of that answer", tokens.size)
    whole = total(relevance)
    if whole == 0.0:
        return -mean(tokens) + 0.0 if zero_relevance == "uniform" else float("nan")
    weighted = relevance > 0  # a token of weight 0 and probability 0 must not give 0 * inf
    return -total(relevance[weighted] / whole * tokens[weighted]) + 0.0


def _supported_entropy(log_p: FloatArray, similarity: npt.ArrayLike, t: float, symmetric: bool) -> float:
    if not real(t, "t") > 0:
        raise InvalidInputError(f"'t' must be a positive number, got {t!r}.")
    # A cosine may be negative, and no sample takes support away from another.
    support = np.clip(square(similarity, "similarity", low=-1.0, high=1.0), 0.0, 1.0)
    same_count("similarity", len(support), "sample_logprobs", log_p.size)
    if flag(symmetric, "symmetric"):
        support = 0.5 * (support + support.T)
    # In log space: with log-probabilities of -800, exp is 0, and LM-Polygraph gives inf. 1e-12 keeps the log finite.
    log_support = np.log(np.maximum(support, _SMALLEST_SIMILARITY)) - math.log(t)
    np.fill_diagonal(log_support, 0.0)  # an answer supports itself with its own probability
    return mean([-log_sum_exp(log_p + row) for row in log_support])
