"""Answers for these tests: token bytes and log masses, written down or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from semtoken.clustering.tokenizers import character_ranges
from semtoken.core.parts.answers import AnswerTokens
from semtoken.core.parts.part import Ending
from semtoken.core.scored_token import EndProbability


def answer_of(
    pieces: Sequence[bytes],
    exact: Sequence[float],
    meaning: Sequence[float] | None = None,
    surface: Sequence[float] | None = None,
    neutral: Sequence[bool] | None = None,
    endings: Mapping[Ending, Mapping[int, EndProbability]] | None = None,
    forced: Sequence[bool] | None = None,
) -> AnswerTokens:
    """An answer whose tokens are spelled by bytes."""
    ranges = character_ranges(pieces)
    return AnswerTokens(
        text=b"".join(pieces).decode("utf-8", "replace"),
        starts=[start for start, _ in ranges],
        ends=[end for _, end in ranges],
        exact=exact,
        surface=exact if surface is None else surface,
        meaning=exact if meaning is None else meaning,
        neutral=[False] * len(pieces) if neutral is None else neutral,
        digits=[any(48 <= byte <= 57 for byte in piece) for piece in pieces],
        forced=[False] * len(pieces) if forced is None else forced,
        endings=endings or {},
    )


def letters(text: str | bytes) -> AnswerTokens:
    """An answer in which each byte is a token of its own."""
    raw = text.encode() if isinstance(text, str) else text
    return answer_of([bytes([byte]) for byte in raw], [-0.1] * len(raw))
