"""Flags for answers whose confidence is carried by mass that other tokens lent."""

from __future__ import annotations

from collections.abc import Iterator

from semtoken.results import Alternative, ScoredResponse, ScoredToken
from semtoken.scoring.rules import SAME_LETTERS
from semtoken.support.text import number
from semtoken.tokens.scored import Flag
from semtoken.tokens.vocabulary import normalize

DECIDES = 0.5
"""The share of the confidence from which on what was borrowed from one source decides."""
CONFIDENT = 0.1
"""An answer of less confidence is doubtful with what it borrowed and without."""
RIVAL = 0.1
"""The probability from which on another token is a rival of the chosen one."""


def borrowed_flags(response: ScoredResponse) -> tuple[Flag, ...]:
    """What a reader should know of the mass that other tokens lent to a score.

    `carried_by_cluster`, `carried_by_function_words`
        The confidence is at least 0.1, and at least half of it was lent by tokens of the chosen ones' clusters, or by
        function words, white space and special tokens.
    `rivals_counted`
        At some step another word of at least 0.1 counted as agreeing only because it shares the chosen token's
        cluster: "Sydney" beside "Canberra". Tokens that share their first three characters are no rivals.
    """
    flags = []
    confidence = response.confidence
    if confidence >= CONFIDENT:
        borrowed = response.borrowed
        carried = (
            ("carried_by_cluster", borrowed.cluster, "other tokens of the same clusters"),
            ("carried_by_function_words", borrowed.function_words, "function words, white space and special tokens"),
        )
        for code, mass, source in carried:
            if mass >= DECIDES * confidence:
                share = f"{number(mass)} of the confidence of {number(confidence)}"
                flags.append(Flag(code, f"{share} came from {source}, not from the answer's own tokens."))
    rivals = [(token, rival) for token in response.tokens if not token.neutral for rival in _rivals(token)]
    if rivals:
        token, rival = max(rivals, key=lambda pair: pair[1].probability)
        flags.append(
            Flag(
                "rivals_counted",
                f"{rival.text!r} ({number(rival.probability)}) counted as agreeing with {token.text!r} "
                f"({number(token.probability)}), since they share a cluster.",
            )
        )
    return tuple(flags)


def _rivals(token: ScoredToken) -> Iterator[Alternative]:
    """Likely other words that counted because of their cluster alone."""
    for other in token.alternatives:
        counted = other.source == "cluster" and other.counted and other.probability >= RIVAL
        if counted and normalize(other.text)[:SAME_LETTERS] != normalize(token.text)[:SAME_LETTERS]:
            yield other
