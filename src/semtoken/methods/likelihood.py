"""Methods that need nothing but token log-probabilities, of the greedy answer or of samples."""

from __future__ import annotations

import math
from functools import partial

import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.table import Rows, log_probs, mean, method, sample_log_probs, total
from semtoken.support.inputs import one_of

_of_clusters = partial(method, family="clusters", range=(0.0, 1.0), reference="Cao et al., EACL 2026, arXiv:2603.20161")


@method(
    title="Sequence probability",
    family="likelihood",
    needs=("log_probs",),
    range=(0.0, 1.0),
    reference="Cao et al., EACL 2026, arXiv:2603.20161",
)
def sequence_probability(greedy_logprobs: npt.ArrayLike, *, variant: str = "one_minus_probability") -> float:
    """One minus the probability of the whole answer: STC without clustering and without prefixes.

    Parameters
    ----------
    greedy_logprobs : array of shape (T,)
        As in `perplexity`.
    variant : {"one_minus_probability", "negative_logprob"}
        1 - exp(sum_t log p_t) in [0, 1], or -sum_t log p_t in [0, inf]. Same ranks, but the first reaches
        1.0 in floating point from about -37 on, and then ties.

    Returns
    -------
    float
        0 for a certain answer.

    References
    ----------
    Cao et al. 2026, "Semantic Token Clustering for Efficient Uncertainty Quantification in Large Language
    Models", the ablation "probability".
    """
    one_of("variant", variant, ("one_minus_probability", "negative_logprob"))
    log_probability = total(log_probs(greedy_logprobs, "greedy_logprobs"))
    if variant == "negative_logprob":
        return -log_probability + 0.0
    # `expm1` keeps the digits of answers that are nearly certain, where 1 - exp(x) would be 0.
    return -math.expm1(log_probability) + 0.0


@method(
    title="Perplexity",
    family="likelihood",
    needs=("log_probs",),
    reference="Fomicheva et al., TACL 2020, arXiv:2005.10608",
)
def perplexity(greedy_logprobs: npt.ArrayLike) -> float:
    """Mean negative log-probability of the answer's tokens, U = -(1/T) sum_t log p_t.

    The logarithm of what language modeling calls perplexity: not exponentiated, the ranks are the same.

    Parameters
    ----------
    greedy_logprobs : array of shape (T,)
        Natural logs under the raw distribution, the terminator (end of sequence or newline) included.

    Returns
    -------
    float in [0, inf]
        0 for a certain answer; inf if a token had probability 0.

    Raises
    ------
    InvalidInputError
        No token, NaN or a positive value.

    References
    ----------
    Fomicheva et al. 2020, "Unsupervised quality estimation for neural machine translation".
    Choices as in LM-Polygraph's `Perplexity`.

    Examples
    --------
    >>> round(perplexity([-0.2, -0.4, -1.2]), 6)
    0.6
    """
    return -mean(log_probs(greedy_logprobs, "greedy_logprobs")) + 0.0


@_of_clusters(
    "stc_no_prefix",
    title="STC without prefix matching",
    needs=("stc_no_prefix_log_score",),
    semantic_aware=True,
)
@_of_clusters("stc_no_clustering", title="STC without clustering", needs=("stc_no_clustering_log_score",))
@_of_clusters(title="STC", needs=("stc_log_score",), semantic_aware=True)
def stc(log_confidence: float) -> float:
    """Uncertainty by Semantic Token Clustering from the score of a `ScoredAnswer`, S = 1 - exp(log_confidence).

    The scores of the ablations, without clusters or without prefixes, become uncertainties by the same formula.

    Parameters
    ----------
    log_confidence : float, at most 0
        Sum of the tokens' log agreeing probabilities (`ScoredAnswer.log_confidence`), -inf for an empty
        answer.

    Returns
    -------
    float in [0, 1]

    References
    ----------
    Cao et al. 2026, "Semantic Token Clustering for Efficient Uncertainty Quantification in Large Language
    Models".
    """
    return -math.expm1(float(log_probs([log_confidence], "log_confidence")[0])) + 0.0


@method(
    title="Weakest token",
    family="likelihood",
    needs=("log_probs",),
    reference="as in lm-polygraph, 2023",
)
def weakest_token(greedy_logprobs: npt.ArrayLike) -> float:
    """Surprise of the least likely token of the answer, U = -min_t log p_t.

    Parameters
    ----------
    greedy_logprobs : array of shape (T,)
        As in `perplexity`.

    Returns
    -------
    float in [0, inf]
        0 if every token was certain.

    References
    ----------
    A common baseline: the maximum over the tokens of lm-polygraph's token-level surprise.
    """
    return -float(log_probs(greedy_logprobs, "greedy_logprobs").min()) + 0.0


@method(
    title="Predictive entropy",
    family="likelihood",
    needs=("sample_log_probs",),
    reference="Malinin and Gales, ICLR 2021, arXiv:2002.07650",
    single_sample=False,
    overhead="high",
)
def predictive_entropy(sample_logprobs: Rows) -> float:
    """Monte Carlo entropy of whole answers, U = -(1/M) sum_m sum_t log p_mt.

    Parameters
    ----------
    sample_logprobs : M arrays of shapes (T_m,)
        Natural logs of the sampled tokens, terminators included. Duplicates count as often as drawn.

    Returns
    -------
    float in [0, inf]
        Not normalized by length.

    References
    ----------
    Malinin and Gales 2021, "Uncertainty estimation in autoregressive structured prediction"; Kuhn et al.
    2023, "Semantic uncertainty", predictive entropy. The arithmetic of LM-Polygraph's `MonteCarloSequenceEntropy`,
    except that no sample is ever dropped.
    """
    return -mean([total(row) for row in sample_log_probs(sample_logprobs)]) + 0.0


@method(
    title="LN entropy",
    family="likelihood",
    needs=("sample_log_probs",),
    reference="Malinin and Gales, ICLR 2021, arXiv:2002.07650",
    single_sample=False,
    overhead="high",
)
def ln_entropy(sample_logprobs: Rows, *, variant: str = "matching_counts") -> float:
    """Length-normalized predictive entropy, U = -(1/M) sum_m (1/T_m) sum_t log p_mt.

    The mean is taken within each sample first, then over samples.

    Parameters
    ----------
    sample_logprobs : M arrays of shapes (T_m,)
        As in `predictive_entropy`, each with its terminator last.
    variant : {"matching_counts", "lm_polygraph_eos_in_sum_not_in_count"}
        The second reproduces a defect: the terminator is in the sum and not in the count, and a sample
        of the terminator alone is dropped.

    Returns
    -------
    float in [0, inf]

    References
    ----------
    Malinin and Gales 2021, "Uncertainty estimation in autoregressive structured prediction";
    the arithmetic of the SAR release (Duan et al. 2024).
    """
    one_of("variant", variant, ("matching_counts", "lm_polygraph_eos_in_sum_not_in_count"))
    rows = sample_log_probs(sample_logprobs)
    if variant == "matching_counts":
        return -mean([mean(row) for row in rows]) + 0.0
    with_content = [total(row) / (row.size - 1) for row in rows if row.size > 1]
    if not with_content:
        raise InvalidInputError("'sample_logprobs' holds terminators only, which this variant leaves out.")
    return -mean(with_content) + 0.0
