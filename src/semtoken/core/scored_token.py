"""The tokens of a scored answer: their probabilities, what counted as agreeing with them, what else was likely.

A `Flag` is a note for the reader of a score.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from semtoken.choices import Equality
from semtoken.errors import InvalidInputError
from semtoken.support.inputs import shown
from semtoken.support.text import number

Source = Literal["cluster", "prefix", "neutral", "other"]
"""The relation of an alternative to the chosen token, whether or not that counts; `other`: none."""
NO_MEANING = (
    "This answer was scored without clusters, so what means the same was not summed. Give clusters when you score: "
    "preset='paper', or clusters with another preset."
)

ROUNDING = 1e-12
"""Relative difference of two masses of the same tokens that were summed in different order."""


@dataclass(frozen=True)
class Flag:
    """Something about an answer or its score that its reader should know."""

    code: str
    """The flag's name for programs: "no_alternatives", "shared_vocabulary" and so on."""
    message: str
    """One sentence for people."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another likely token of a step, whether or not it counts as agreeing with the chosen one."""

    id: int
    """Id of the token in the vocabulary."""
    text: str
    """Text of the token decoded by itself."""
    probability: float
    """Its next-token probability, in [0, 1]."""
    source: Source
    """Its relation to the chosen token. `cluster`: it is in the same cluster. `prefix`: it is spelled alike, or spells
    the beginning of the text from the chosen token on. `neutral`: it is a function word, white space or a special
    token. `other`: none of these."""
    counted: bool = True
    """True if its probability is part of the chosen token's agreeing probability."""


@dataclass(frozen=True)
class MassShares:
    """The shares of an agreeing probability, or of a confidence, by source. The four add up to it.

    A token's agreeing probability is such a sum as it stands. The confidence of an answer is a product; what it gains
    over the plain sequence probability is shared out by how much each source raises the logs of the steps.
    """

    own: float
    """The probability of the chosen tokens themselves."""
    cluster: float
    """The probability of other tokens in the clusters of the chosen ones."""
    prefix: float
    """The probability of tokens that are spelled like the chosen ones, or spell the beginning of the text from these
    on."""
    function_words: float
    """The probability of function words, white space and special tokens. A chosen token of these kinds counts as
    certain; all that its own probability lacks of 1 is here."""


EndProbability: TypeAlias = tuple[float, float, float]
"""A probability in [0, 1]: lower bound, estimate and upper bound. The estimate is that of the listed tokens alone. All
three are the same where all tokens were known."""


@dataclass(frozen=True)
class ValueEnds:
    """The probability that a value before a token ends there, for each kind of value; None where no such value can
    end.
    """

    number: EndProbability | None = None
    """A number in JSON ends: no digit and none of . e E + - follows."""
    digits: EndProbability | None = None
    """A number in prose ends: no digit follows."""
    quote: EndProbability | None = None
    """A string ends: a quotation mark follows."""
    array: EndProbability | None = None
    """An array ends: a bracket follows, given that a bracket or a comma does."""


class TokenMark(NamedTuple):
    """The fields of `ScoredToken` that are known before its whole record is made."""

    start: int
    end: int
    log_probability: float
    log_agreeing_probability: float
    log_agreeing_bounds: tuple[float, float] | None


@dataclass(frozen=True, repr=False, slots=True)
class ScoredToken:
    """One token of an answer, with its probabilities, what counted as agreeing with it, and what else was likely."""

    id: int
    """Id of the token in the vocabulary."""
    text: str
    """Text of the token decoded by itself."""
    start: int
    """First character of the token in the answer's text."""
    end: int
    """One past its last character; tokens that share a character share its range."""
    log_probability: float
    """Natural log of its next-token probability, <= 0."""
    log_agreeing_probability: float
    """Natural log of the probability mass that the rules count as agreeing with it, <= 0; 0 for a neutral token."""
    log_surface_probability: float
    """Natural log of the probability of all tokens of the same spelling up to case and spaces (the equality `surface`),
    <= 0."""
    log_meaning_probability: float | None
    """Log-probability of all that counts as the token under the paper's rules: its cluster, the beginnings of what
    follows, and function words. None if the answer was scored without clusters."""
    neutral: bool
    """True if it counts as certain under the rules, since it is a function word, white space or a special token."""
    cluster_probability: float
    """Mass of the token and of those of its cluster that count, in [0, 1]."""
    prefix_probability: float
    """Further mass, in [0, 1], of tokens that are spelled alike, or spell the beginning of the text from this token
    on."""
    neutral_probability: float
    """Further mass, in [0, 1], of function words, white space and special tokens."""
    alternatives: tuple[Alternative, ...]
    """Up to eight other tokens of at least 1%, counted or not, most probable first."""
    value_ends: ValueEnds | None = None
    """The probability that a number, a string or an array ends before this token; None where none can end."""
    log_agreeing_bounds: tuple[float, float] | None = None
    """An interval around the exact `log_agreeing_probability`, where only the k best tokens of the step are known;
    else None."""
    log_probability_bounds: tuple[float, float] | None = None
    """The same around the exact `log_probability`."""
    log_surface_bounds: tuple[float, float] | None = None
    """The same around the exact `log_surface_probability`."""
    log_meaning_bounds: tuple[float, float] | None = None
    """The same around the exact `log_meaning_probability`; None without clusters, too."""
    ambiguous_probability: float = 0.0
    """Mass of listed tokens whose names fit tokens inside and outside the consistent set: in the upper bound only."""
    unmapped_probability: float = 0.0
    """Mass of listed tokens whose names fit no token of the vocabulary: in the upper bound only."""
    function_word: bool = False
    """True if it is a function word, white space or a special token, which the paper's rules call certain wherever it
    stands."""

    def __repr__(self) -> str:
        counted = "neutral" if self.neutral else f"counted={self.agreeing_probability:.4g}"
        return f"ScoredToken({self.text!r}, probability={self.probability:.4g}, {counted})"

    @property
    def probability(self) -> float:
        """Next-token probability of the token, in [0, 1]."""
        return math.exp(self.log_probability)

    @property
    def agreeing_probability(self) -> float:
        """Probability mass consistent with the token, in [0, 1]."""
        return math.exp(self.log_agreeing_probability)

    @property
    def surface_probability(self) -> float:
        """Probability mass of the same spelling, in [0, 1]."""
        return math.exp(self.log_surface_probability)

    @property
    def meaning_probability(self) -> float | None:
        """Probability mass that agrees under the paper's rules, in [0, 1]; None if scored without clusters."""
        return None if self.log_meaning_probability is None else math.exp(self.log_meaning_probability)

    def log_probability_under(self, equality: Equality) -> float:
        """Natural log of the probability mass that agrees under an equality, <= 0.

        `InvalidInputError` if there is no such equality, or it is `meaning` and the answer was scored without clusters.
        """
        match equality if isinstance(equality, str) else None:
            case "exact":
                return self.log_probability
            case "surface":
                return self.log_surface_probability
            case "meaning" if self.log_meaning_probability is not None:
                return self.log_meaning_probability
            case "meaning":
                raise InvalidInputError(NO_MEANING)
        raise InvalidInputError(f"equality must be 'meaning', 'surface' or 'exact'. Got {shown(equality)} instead.")

    @property
    def borrowed(self) -> MassShares:
        """The sources of the agreeing probability: the token's own, and three from which the rest came."""
        own = self.probability
        if self.neutral:
            return MassShares(own, 0.0, 0.0, 1.0 - own)
        cluster = self.cluster_probability - own
        if cluster <= ROUNDING * own:  # a token that is alone in its cluster
            cluster = 0.0
        return MassShares(own, cluster, self.prefix_probability, self.neutral_probability)

    @property
    def agreeing_bounds(self) -> tuple[float, float]:
        """An interval that contains the exact `agreeing_probability`; a point where that itself is exact."""
        low, high = self.log_agreeing_bounds or (self.log_agreeing_probability, self.log_agreeing_probability)
        return math.exp(low), math.exp(high)


def share_confidence(tokens: Sequence[ScoredToken], confidence: float) -> MassShares:
    """Divide a confidence among its sources: each step's gain in logs is shared in proportion to their mass."""
    own = min(math.exp(math.fsum(token.log_probability for token in tokens)), confidence)
    gains = [0.0, 0.0, 0.0]
    for token in tokens:
        parts = token.borrowed
        lent = (parts.cluster, parts.prefix, parts.function_words)
        total = math.fsum(lent)
        if total <= 0:
            continue
        # By how much what is lent raises the step's log: ln((own + lent) / own), finite where the token itself has
        # nothing.
        gain = math.log1p(total / max(parts.own, sys.float_info.min))
        gains = [so_far + gain * part / total for so_far, part in zip(gains, lent, strict=True)]
    total = math.fsum(gains)
    shares = [gain / total * (confidence - own) if total else 0.0 for gain in gains]
    return MassShares(own, *shares)


def describe_alternatives(token: ScoredToken, *, least: float = 0.001) -> str:
    """The other likely tokens: `' USA' 0.213 (cluster), ' Canada' 0.101 (cluster, not counted), ...`."""
    return ", ".join(
        f"{other.text!r} {number(other.probability)} ({_role(other)})"
        for other in token.alternatives
        if other.probability >= least
    )


def _role(other: Alternative) -> str:
    if other.counted:
        return other.source
    return "not counted" if other.source == "other" else f"{other.source}, not counted"
