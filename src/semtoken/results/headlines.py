"""The number on top of an answer: which one it is, its value, and one sentence that explains it.

Of a short answer it is the probability of what agrees with it. The same product over the tokens of a sentence is near
zero whatever the sentence says: there it is the probability of the weakest phrase times that of a typical token.
docs/results.md, "Which number stands on top?", says how this was chosen, and on how little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from semtoken.parts.answers import log_product, tokens_touching
from semtoken.parts.prose import LONG, phrases
from semtoken.support.text import percentage
from semtoken.support.thinking import thinking_end
from semtoken.tokens.scored_token import ScoredToken, TokenMark

SHORT_SAID = f"Probability of an answer that agrees with this one (under {LONG} tokens)."
LONG_SAID = f"Probability of the weakest phrase times that of a typical token ({LONG} tokens or more)."
"""What the confidence of a short answer is, and of a longer one."""
PHRASE_AND_MEAN = "phrase_and_mean"


@dataclass(frozen=True)
class Headline:
    """The number by which an answer is ranked unless another one is asked for, with a sentence about it."""

    name: str
    """The method, a key of `semtoken.methods.METHODS`: `stc` or `phrase_and_mean`."""
    value: float
    """The answer's uncertainty by that method, as in `ScoredResponse.scores`; higher is riskier. In [0, 1] for `stc`,
    at least 0 for `phrase_and_mean`."""
    confidence: float
    """The headline's confidence in [0, 1]: higher is surer, and short and long answers can be sorted by it together. It
    is no chance of being right: a calibrator gives that."""
    sentence: str
    """What the confidence is, in one sentence for people."""
    confidence_bounds: tuple[float, float] | None = None
    """An interval around the exact confidence, where only the best tokens of each step are known; None where it is
    exact."""

    @property
    def shown(self) -> str:
        """The confidence in percent, with bounds if there are any."""
        low, high = self.confidence_bounds or (self.confidence, self.confidence)
        bounds = "" if percentage(low) == percentage(high) else f" ({percentage(low)} to {percentage(high)})"
        return percentage(self.confidence) + bounds

    @property
    def line(self) -> str:
        """The confidence and what it is, as one line of text."""
        return f"confidence {self.shown}: {self.sentence[0].lower()}{self.sentence[1:-1]}"


def headline_of(
    text: str,
    marks: Callable[[], Sequence[TokenMark | ScoredToken]],
    n_tokens: int,
    log_score: float,
    log_score_bounds: tuple[float, float] | None = None,
) -> Headline:
    """The headline of a scored answer: of what follows the thinking, where the text marks any.

    Parameters
    ----------
    text
        The answer.
    marks
        Gives its tokens. It is not called for a short answer.
    n_tokens
        How many they are.
    log_score, log_score_bounds
        Log of the product of what agrees with each, -inf for a blank answer, and bounds around the exact one.
    """
    if thought := thinking_end(text, lambda: (text[token.start : token.end] for token in marks())):
        said = " " * thought + text[thought:]  # characters keep their places
        after = [token for token in marks() if token.start >= len(said) - len(said.lstrip())]
        product, low, high = log_product(after) if said.strip() else (-math.inf,) * 3
        given = None if log_score_bounds is None else (low, high)
        return headline_of(said, lambda: after, len(after), product, given)
    if n_tokens < LONG or log_score == -math.inf:
        bounds = None if log_score_bounds is None else (math.exp(log_score_bounds[0]), math.exp(log_score_bounds[1]))
        return Headline("stc", -math.expm1(log_score) + 0.0, math.exp(log_score), SHORT_SAID, bounds)
    tokens = marks()
    mean = math.fsum(token.log_probability for token in tokens) / n_tokens
    found = [log_product(touching) for touching in tokens_touching(tokens, phrases(text))]
    weakest, low, high = (min(logs) for logs in zip(*found, strict=True))
    bounds = None if low == high else (math.exp(low + mean), math.exp(high + mean))
    return Headline(PHRASE_AND_MEAN, -(weakest + mean) + 0.0, math.exp(weakest + mean), LONG_SAID, bounds)
