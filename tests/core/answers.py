"""Answers for these tests: token bytes and log masses, written down or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from semtoken.clustering.tokenizers import character_ranges
from semtoken.core.parts.part import AnswerTokens


def answer_of(
    pieces: Sequence[bytes],
    exact: Sequence[float],
    meaning: Sequence[float] | None = None,
    surface: Sequence[float] | None = None,
    neutral: Sequence[bool] | None = None,
    endings: Mapping[str, Mapping[int, tuple[float, float]]] | None = None,
    forced: Sequence[bool] | None = None,
) -> AnswerTokens:
    """An answer whose tokens are spelled by bytes."""
    ranges = np.array(character_ranges(pieces), dtype=np.int64).reshape(-1, 2)
    n = len(pieces)
    return AnswerTokens(
        text=b"".join(pieces).decode("utf-8", "replace"),
        starts=ranges[:, 0],
        ends=ranges[:, 1],
        exact=np.array(exact, dtype=float),
        surface=np.array(exact if surface is None else surface, dtype=float),
        meaning=np.array(exact if meaning is None else meaning, dtype=float),
        neutral=np.zeros(n, dtype=bool) if neutral is None else np.array(neutral),
        digits=np.array([any(48 <= byte <= 57 for byte in piece) for piece in pieces], dtype=bool),
        forced=np.zeros(n, dtype=bool) if forced is None else np.array(forced),
        endings=endings or {},
    )
