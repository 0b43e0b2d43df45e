"""Flags of answers whose score rests on the probability of other tokens than their own."""

from __future__ import annotations

from collections.abc import Iterator

from semtoken.results import Alternative, ScoredResponse, ScoredToken
from semtoken.support.text import number
from semtoken.tokens.rules import SAME_LETTERS
from semtoken.tokens.scored_token import Flag
from semtoken.tokens.vocabulary import normalize

DECIDES = 0.5
"""An answer is flagged if at least this share of its confidence comes from one source other than its own tokens."""
CONFIDENT = 0.1
"""An answer of less confidence gets no flag: it is doubtful either way."""
RIVAL = 0.1
"""Another token of at least this probability is a rival of the chosen one."""


def borrowed_flags(response: ScoredResponse) -> tuple[Flag, ...]:
    """Flags of an answer whose score rests on tokens other than its own; none for most answers.

    `carried_by_cluster`, `carried_by_function_words`
        The confidence is at least 0.1, and at least half of it is the probability of tokens in the clusters of the
        chosen ones, or of function words, white space and special tokens.
    `rivals_counted`
        At some step another word of at least 0.1 counted as agreeing only because it shares the chosen token's
        cluster: "Sydney" beside "Canberra". Tokens that share their first three characters are no rivals.
    """
    flags = []
    confidence = 1.0 - response.uncertainty
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
