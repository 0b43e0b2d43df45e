"""The default rule whole, to be read from top to bottom beside `published_rule`, the paper's.

The package scores by faster code (`score_logits` and `score_logprobs` under the preset `default`), which is tested
to agree with this file. With what probability did the model mean what it wrote? At each step those tokens count that
are spelled as the chosen one up to case and spaces: " Paris", "Paris" and "paris" are one word. Blanks, special tokens
and pieces of characters agree with themselves alone. Nothing here knows a model or a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from semtoken.core.published_rule import softmax

Decode = Callable[[Sequence[int]], str]
"""Text of some token ids; special tokens have none."""
PIECE = "\N{REPLACEMENT CHARACTER}"
"""Stands in the text of a token that is a piece of a character."""


def uncertainty(logits: npt.ArrayLike, token_ids: Sequence[int], decode: Decode) -> float:
    """S = 1 - prod_i p(tokens that are spelled as token i), where all logits are known.

    In [0, 1], higher is riskier; 1 for an empty answer. `logits` [n, V] are raw, of the n steps of an answer;
    `token_ids` [n] are its tokens, its terminator included; `decode` is the tokenizer's own.
    """
    if not decode(token_ids).strip():
        return 1.0
    chances = softmax(np.asarray(logits, dtype=np.float64))
    texts = [decode([token]) for token in range(chances.shape[1])]
    masses = [
        math.fsum(chances[step, token] for token in agreeing(chosen, texts)) for step, chosen in enumerate(token_ids)
    ]
    # Sums of floating-point numbers may exceed 1 by rounding, and no uncertainty is negative.
    return 1.0 - min(math.prod(masses), 1.0)


def agreeing(chosen: int, texts: Sequence[str]) -> list[int]:
    """The ids of the tokens that agree with the chosen one, itself included."""
    return [token for token, text in enumerate(texts) if token == chosen or same(texts[chosen], text)]


def same(one: str, other: str) -> bool:
    """Return True if two different tokens with these texts are spelled alike."""
    spelled = spelling(one)
    return spelled != "" and PIECE not in spelled and spelled == spelling(other)


def spelling(text: str) -> str:
    """A text as the rule compares it: in lower case, without blanks around it."""
    return text.strip().lower()


Listed = tuple[str, float, Mapping[str, float]]
"""The list of an engine for a step: the text of the chosen token, its log-probability, and those of the best tokens by
their texts, the chosen one among them or not."""


def sequence_uncertainty_interval(steps: Sequence[Listed]) -> tuple[float, float]:
    """An interval that holds the uncertainty of an answer of which only the best tokens of each step are known.

    Each step is a mass that surely agrees, and one that may: what the list leaves out can be spelled in any way.
    """
    if not "".join(text for text, _, _ in steps).strip():
        return 1.0, 1.0
    least, most = zip(*(mass_bounds(*step) for step in steps), strict=True)
    return 1.0 - math.prod(most), 1.0 - math.prod(least)


def mass_bounds(chosen: str, log_prob: float, best: Mapping[str, float]) -> tuple[float, float]:
    """The least and the greatest probability of what agrees with a chosen token, each in [0, 1]."""
    # An engine may list the chosen token once more with another number: its own is the one that counts.
    others = {text: math.exp(value) for text, value in best.items() if text != chosen}
    own = math.exp(log_prob)
    agreed = own + math.fsum(chance for text, chance in others.items() if same(chosen, text))
    # Rounded probabilities may add up to a little more than 1.
    unlisted = max(1.0 - own - math.fsum(others.values()), 0.0)
    if not same(chosen, chosen):  # no other token can be spelled like it
        return own, own
    return agreed, min(agreed + unlisted, 1.0)
