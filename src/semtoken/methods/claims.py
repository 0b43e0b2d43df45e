"""Methods that ask, token by token, whether the alternatives would have changed the claim: CCP."""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.clustering.function_words import english_stopwords
from semtoken.errors import InvalidInputError
from semtoken.methods.table import (
    CONTRADICTION,
    ENTAILMENT,
    NEUTRAL,
    Rows,
    booleans,
    log_probs,
    log_sum_exp,
    method,
    nli_classes,
    same_count,
)
from semtoken.support.arrays import is_tensor
from semtoken.support.inputs import listed, one_of
from semtoken.support.inputs import text as checked_text

_AROUND_A_TOKEN = string.punctuation + string.whitespace


def token_text(text: str) -> str:
    """The text of a decoded token as the NLI model sees it: ASCII punctuation and white space stripped at both ends.

    `InvalidInputError` if it is not a text.
    """
    return checked_text(text, "text").strip(_AROUND_A_TOKEN)


def is_function_word_text(text: str) -> bool:
    """Return True if the text of a decoded token, stripped as by `token_text` and lower-cased, is an English stop word.

    >>> is_function_word_text(" The"), is_function_word_text(" Oslo")
    (True, False)
    """
    return token_text(text).lower() in english_stopwords()


def _alternatives(g: Any) -> dict[str, Any]:
    return {
        "alternative_logprobs_chosen_first": g.top_log_probs,
        "nli_chosen_to_alternative": g.nli_chosen_to_alternative,
        "nli_alternative_to_chosen": g.nli_alternative_to_chosen,
        "is_function_word": np.array([is_function_word_text(text) for text in g.token_texts]),
    }


@method(
    title="CCP",
    family="claims",
    needs=("token_texts", "top_log_probs", "nli_chosen_to_alternative", "nli_alternative_to_chosen"),
    arguments=_alternatives,
    range=(-1.0, 0.0),
    reference="Fadeeva et al., Findings of ACL 2024, arXiv:2403.04696",
    semantic_aware=True,
    external_model_free=False,
    overhead="high",
)
def ccp(
    alternative_logprobs_chosen_first: Rows,
    nli_chosen_to_alternative: Rows,
    nli_alternative_to_chosen: Rows,
    is_function_word: npt.ArrayLike | None = None,
    *,
    directions: str = "both",
    scale: str = "negative_product",
) -> float:
    """Claim-conditioned probability: of the alternatives that speak to the claim, what share agrees.

    CCP_t = sum of p over entailing alternatives / sum over entailing or contradicting ones,
    U = -prod_t CCP_t, computed in log space. Neutral alternatives count nowhere; the chosen token always
    entails itself.

    Parameters
    ----------
    alternative_logprobs_chosen_first : T arrays of shapes (k_t,)
        Natural logs of the best alternatives of each step of the greedy answer, the chosen token first.
    nli_chosen_to_alternative : T arrays of shapes (k_t,)
        NLI class with the chosen token's text as premise: 0, 1, 2 or "contradiction", "neutral",
        "entailment". The first entry is not used.
    nli_alternative_to_chosen : T arrays of shapes (k_t,)
        The same with the alternative as premise.
    is_function_word : bool array of shape (T,), optional
        Steps that count as certain: function words (`is_function_word_text`), or whatever else should be
        skipped. None: no step is skipped, as in LM-Polygraph's sequence-level score.
    directions : {"both", "chosen_to_alternative"}
        Two equal classes give that class, one entailing and one contradicting give neutral, otherwise the
        one that is not neutral. One direction only is what LM-Polygraph did before November 2024.
    scale : {"negative_product", "negative_log_product"}
        -prod CCP_t in [-1, 0], or -sum log CCP_t in [0, inf): the same order, without underflow in long
        answers.

    Returns
    -------
    float
        Higher is riskier; -1 (or 0) if no alternative contradicts. Negative by design.

    References
    ----------
    Fadeeva et al. 2024, "Fact-checking the output of large language models via token-level uncertainty
    quantification", CCP. Choices as in LM-Polygraph's `ClaimConditionedProbability`.

    Examples
    --------
    >>> classes = [["entail", "contra", "contra"]]
    >>> round(ccp([[-0.916291, -1.203973, -1.609438]], classes, classes), 6)
    -0.444444
    """
    one_of("directions", directions, ("both", "chosen_to_alternative"))
    one_of("scale", scale, ("negative_product", "negative_log_product"))
    rows = listed(alternative_logprobs_chosen_first, "alternative_logprobs_chosen_first")
    forward = listed(nli_chosen_to_alternative, "nli_chosen_to_alternative")
    backward = listed(nli_alternative_to_chosen, "nli_alternative_to_chosen")
    steps = len(rows)
    if steps == 0:
        raise InvalidInputError("'alternative_logprobs_chosen_first' is empty: give at least one step.")
    same_count("nli_chosen_to_alternative", len(forward), "the log-probabilities", steps)
    same_count("nli_alternative_to_chosen", len(backward), "the log-probabilities", steps)
    skipped = np.zeros(steps, bool) if is_function_word is None else booleans(is_function_word, "is_function_word")
    same_count("is_function_word", skipped.size, "the log-probabilities", steps)
    log_factors = []
    for step in range(steps):
        factor = _log_agreement(rows[step], forward[step], backward[step], directions, step)
        # Computed for skipped steps as well, so that bad input is refused wherever it is.
        log_factors.append(0.0 if skipped[step] else factor)
    log_product = math.fsum(log_factors)
    return -log_product + 0.0 if scale == "negative_log_product" else -math.exp(log_product) + 0.0


def _log_agreement(
    alternatives: npt.ArrayLike, forward: npt.ArrayLike, backward: npt.ArrayLike, directions: str, step: int
) -> float:
    """Logarithm of CCP_t, at most 0."""
    log_p = log_probs(alternatives, f"alternative_logprobs_chosen_first[{step}]")
    if log_p[0] == -math.inf:
        raise InvalidInputError(
            f"'alternative_logprobs_chosen_first[{step}]' gives the chosen token the probability 0."
        )
    ahead = nli_classes(_plain(forward), f"nli_chosen_to_alternative[{step}]")
    back = nli_classes(_plain(backward), f"nli_alternative_to_chosen[{step}]")
    same_count(f"nli_chosen_to_alternative[{step}]", ahead.size, "its log-probabilities", log_p.size)
    same_count(f"nli_alternative_to_chosen[{step}]", back.size, "its log-probabilities", log_p.size)
    classes = ahead
    if directions != "chosen_to_alternative":
        # One entails and the other contradicts: LM-Polygraph takes that as neutral.
        opposite = np.abs(ahead - back) == ENTAILMENT - CONTRADICTION
        classes = np.where(opposite, NEUTRAL, np.where(ahead == NEUTRAL, back, ahead))
    # The chosen token, whatever a model says of a text beside itself. So no sum below is empty.
    classes[0] = ENTAILMENT
    agreeing = log_sum_exp(log_p[classes == ENTAILMENT])
    return min(agreeing - log_sum_exp(log_p[classes != NEUTRAL]), 0.0)


def _plain(classes: Any) -> Any:
    """A list in place of an array or a tensor; classes may be numbers or names."""
    return classes.tolist() if isinstance(classes, np.ndarray) or is_tensor(classes) else classes
