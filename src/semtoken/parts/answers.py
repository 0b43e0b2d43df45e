"""From a scored answer to what parts are computed from."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from semtoken.parts.part import AnswerTokens, Ending, Equality, FloatArray
from semtoken.tokens.scored import Flag, ScoredToken, TokenMark

CERTAIN = -1e-7
"""A token of at least this log-probability under a grammar was the only one that it allowed."""
CONSTRAINED = "constrained"
"""Code of the flag of an answer that a grammar or a list of allowed tokens shaped."""
_ENDS: tuple[Ending, ...] = ("number", "digits", "quote", "array")


class AnswerWithTokens(Protocol):
    """What parts are computed from; `ScoredResponse`, which is made of more, is one."""

    @property
    def text(self) -> str:
        """The answer as text."""

    @property
    def tokens(self) -> Sequence[ScoredToken]:
        """Its tokens in order."""

    @property
    def flags(self) -> Sequence[Flag]:
        """What a reader of its score should know."""

    @property
    def signature(self) -> str:
        """Clusters and settings of its score in one line."""


def answer_tokens(answer: AnswerWithTokens, *, constrained: bool | None = None) -> AnswerTokens:
    """The log masses and character ranges of a scored answer.

    Parameters
    ----------
    answer
        Any scored answer.
    constrained
        Whether a grammar shaped it. Default: what the answer's flags say.
    """
    tokens = answer.tokens
    if constrained is None:
        constrained = any(flag.code == CONSTRAINED for flag in answer.flags)
    exact = _floats(token.log_probability for token in tokens)
    return AnswerTokens(
        text=answer.text,
        starts=np.array([token.start for token in tokens], dtype=np.int64),
        ends=np.array([token.end for token in tokens], dtype=np.int64),
        exact=exact,
        surface=_floats(token.log_surface_probability for token in tokens),
        meaning=_floats(
            math.nan if token.log_meaning_probability is None else token.log_meaning_probability for token in tokens
        ),
        neutral=np.array([token.neutral or token.function_word for token in tokens], dtype=bool),
        digits=np.array([any(map(str.isdigit, token.text)) for token in tokens], dtype=bool),
        forced=(exact >= CERTAIN) & constrained,
        prose=_equality_of_rules(answer.signature),
        bounds=_bounds(tokens),
        endings=_endings(tokens),
    )


def tokens_touching(
    tokens: Sequence[TokenMark | ScoredToken], spans: Iterable[tuple[int, int]]
) -> list[Sequence[TokenMark | ScoredToken]]:
    """The tokens of an answer that share a character with each of some character ranges."""
    starts, ends = [token.start for token in tokens], [token.end for token in tokens]
    return [tokens[bisect_right(ends, start) : bisect_left(starts, end)] for start, end in spans]


def log_product(tokens: Sequence[TokenMark | ScoredToken]) -> tuple[float, float, float]:
    """Log of the product of what agrees with some tokens, and bounds below and above the exact one."""
    own = [token.log_agreeing_probability for token in tokens]
    bounds = [token.log_agreeing_bounds or (log, log) for token, log in zip(tokens, own, strict=True)]
    return math.fsum(own), math.fsum(low for low, _ in bounds), math.fsum(high for _, high in bounds)


def _equality_of_rules(signature: str) -> Equality:
    """The equality that the rules of an answer come nearest to, from the line that names them."""
    switches = signature.split("|")
    if "clustering:off" not in switches:
        return "meaning"
    return "surface" if "spelling:same" in switches else "exact"


def _floats(values: Iterable[float]) -> FloatArray:
    return np.fromiter(values, dtype=np.float64)


def _bounds(tokens: Sequence[ScoredToken]) -> dict[Equality, tuple[FloatArray, FloatArray]]:
    """Intervals around the masses where only the best tokens are known."""
    known: dict[Equality, list[tuple[float, float] | None]] = {
        "surface": [token.log_surface_bounds for token in tokens],
        "meaning": [token.log_meaning_bounds for token in tokens],
    }
    values = {"surface": "log_surface_probability", "meaning": "log_meaning_probability"}
    found: dict[Equality, tuple[FloatArray, FloatArray]] = {}
    for name, pairs in known.items():
        if any(pairs):
            points = ((getattr(token, values[name]),) * 2 for token in tokens)
            told = [pair or point for pair, point in zip(pairs, points, strict=True)]
            found[name] = _floats(low for low, _ in told), _floats(high for _, high in told)
    return found


def _endings(tokens: Sequence[ScoredToken]) -> dict[Ending, dict[int, tuple[float, float]]]:
    found: dict[Ending, dict[int, tuple[float, float]]] = {}
    for step, token in enumerate(tokens):
        ends = token.value_ends
        for name in _ENDS if ends is not None else ():
            bounds = getattr(ends, name)
            if bounds is not None:
                found.setdefault(name, {})[step] = bounds
    return found
