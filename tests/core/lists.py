"""Lists of the best tokens for these tests, a few words each: by ids, texts and bytes, with or without a vocabulary."""

from __future__ import annotations

import math

import numpy as np

from semtoken import ScoredAnswer, Vocabulary
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken

EXACT = ScoringRules(equality="exact")


def words(*pieces: str | bytes, byte_tokens: tuple[int, ...] = ()) -> Vocabulary:
    """A vocabulary of these tokens."""
    spelled = tuple(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)
    nothing, one_byte = np.zeros(len(pieces), dtype=bool), np.isin(np.arange(len(pieces)), byte_tokens)
    return Vocabulary(tuple(piece.decode("utf-8", "replace") for piece in spelled), spelled, nothing, one_byte)


CITIES = words("Oslo", "Rome", " Oslo")
HALVES = words("Oslo", "Rome", b"\xc3", b"\xa9", "Lima")


def token(
    probability: float, text: str | None = None, spelled: bytes | None = None, *, id: int | None = None
) -> TopToken:
    """An entry of a list; the probability 0 may be given."""
    return TopToken(math.log(probability) if probability else -math.inf, id, text, spelled)


def in_bytes(probability: float, text: str) -> TopToken:
    return token(probability, text, text.encode())


def step(*listed: TopToken) -> TopStep:
    """The first of the listed tokens was chosen."""
    return TopStep(listed[0], listed)


def agreeing(scored: ScoredAnswer) -> tuple[float, float]:
    """The least and the largest mass that may agree with an answer of one token."""
    return 1 - scored.sequence_uncertainty_interval[1], 1 - scored.sequence_uncertainty_interval[0]


def codes(scored: ScoredAnswer) -> list[str]:
    return [flag.code for flag in scored.flags]
