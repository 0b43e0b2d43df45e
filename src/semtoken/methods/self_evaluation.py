"""Methods that ask the model about its own answer: P(True)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.table import log_sum_exp, method, numbers
from semtoken.support.arrays import FloatArray, as_ids
from semtoken.support.inputs import one_of, shown

_VARIANTS = ("neg_logprob_true", "one_minus_prob_true", "two_way_softmax")


def _three_way_distribution(g: Any) -> dict[str, Any]:
    """The two log-probabilities and the rest of the vocabulary as a distribution over three."""
    log_true, log_false = (float(value) for value in g.p_true_log_probs)
    # Only these two tokens are recorded. What the formula reads of all others is their sum, so one entry serves for
    # them.
    rest = max(1.0 - math.exp(log_true) - math.exp(log_false), 0.0)
    log_rest = math.log(rest) if rest else -math.inf
    return {"next_token_logits": [log_true, log_false, log_rest], "true_index": 0, "false_index": 1}


@method(
    title="P(True)",
    family="prompted",
    needs=("p_true_log_probs",),
    arguments=_three_way_distribution,
    reference="Kadavath et al., 2022, arXiv:2207.05221",
    overhead="medium",
)
def p_true(
    next_token_logits: npt.ArrayLike,
    true_index: int | Sequence[int],
    false_index: int | Sequence[int] | None = None,
    *,
    variant: str = "neg_logprob_true",
) -> float:
    """P(True): how unlikely the model is to say "True" when asked whether its answer is true.

    Parameters
    ----------
    next_token_logits : array of shape (V,)
        Logits (or log-probabilities) of the token after the prompt, over the whole vocabulary.
    true_index : int or several
        Id of the token "True". Several ids ("True" and " True", say) add their probabilities.
    false_index : int or several, optional
        Id of "False", for the two-way variant only.
    variant : {"neg_logprob_true", "one_minus_prob_true", "two_way_softmax"}
        -log P(True) in [0, inf] (LM-Polygraph); 1 - P(True) in [0, 1] (the code of Farquhar et al.);
        1 - P(True) / (P(True) + P(False)) in [0, 1] (UQ-NLG). They rank answers differently.

    Returns
    -------
    float
        Higher is riskier.

    Raises
    ------
    InvalidInputError
        NaN or +inf logits, no finite one, an index outside the vocabulary, a missing `false_index`.

    References
    ----------
    Kadavath et al. 2022, "Language models (mostly) know what they know", P(True).
    Default as in LM-Polygraph's `PTrue`: one answer, no examples, no brainstormed ideas.

    Examples
    --------
    >>> round(p_true([2.0, 1.0, 0.0, -1.0], true_index=0), 6)
    0.44019
    """
    one_of("variant", variant, _VARIANTS)
    logits = numbers(next_token_logits, "next_token_logits", dimensions=1)
    if logits.max() in (np.inf, -np.inf):
        raise InvalidInputError("'next_token_logits' holds +inf or has no finite value.")
    logits = logits - logits.max()  # what lies at 1e17 has no digits left for a difference
    true_ids = _ids(true_index, "true_index", logits)
    true = log_sum_exp(logits[true_ids])
    if variant == "two_way_softmax":
        if false_index is None:
            raise InvalidInputError("'false_index' is needed for variant='two_way_softmax'.")
        false_ids = _ids(false_index, "false_index", logits)
        if both := set(true_ids) & set(false_ids):
            raise InvalidInputError(f"Token {min(both)} stands in 'true_index' and in 'false_index'.")
        false = log_sum_exp(logits[false_ids])
        if true == false == -math.inf:
            raise InvalidInputError("'next_token_logits' gives both 'True' and 'False' the probability 0.")
        return min(math.exp(false - log_sum_exp(np.array([true, false]))), 1.0)
    # Two sums are rounded apart, and a probability must not exceed 1.
    log_true = min(true - log_sum_exp(logits), 0.0)
    return -log_true + 0.0 if variant == "neg_logprob_true" else -math.expm1(log_true) + 0.0


def _ids(index: int | Sequence[int], name: str, logits: FloatArray) -> list[int]:
    try:
        ids = as_ids(np.atleast_1d(np.asarray(index)))
    except Exception as error:  # objects convert themselves, and raise what they like
        raise InvalidInputError(f"'{name}' must be one or more token ids, got {shown(index)}.") from error
    if len(set(ids)) < len(ids):
        raise InvalidInputError(f"'{name}' names a token twice: {ids}.")
    if not ids or min(ids) < 0 or max(ids) >= logits.size:
        raise InvalidInputError(f"'{name}' is {ids}, which is no token of a vocabulary of {logits.size}.")
    return ids
