"""From a scored answer to what parts are computed from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from semtoken.parts.records import AnswerTokens, FloatArray
from semtoken.results import ScoredResponse, ScoredToken

CERTAIN = -1e-7
"""A token of at least this log-probability under a grammar was the only one that it allowed."""
CONSTRAINED = "constrained"
"""Code of the flag of an answer that a grammar or a list of allowed tokens shaped."""


def answer_tokens(answer: ScoredResponse, *, constrained: bool | None = None) -> AnswerTokens:
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
    surface = _floats(token.log_surface_probability for token in tokens)
    bounds = {}
    if any(token.log_meaning_bounds for token in tokens):
        bounds["meaning"] = _bounds([token.log_meaning_bounds for token in tokens], tokens, "log_meaning_probability")
        bounds["surface"] = _bounds([token.log_surface_bounds for token in tokens], tokens, "log_surface_probability")
    return AnswerTokens(
        text=answer.text,
        starts=np.array([token.start for token in tokens], dtype=np.int64),
        ends=np.array([token.end for token in tokens], dtype=np.int64),
        exact=exact,
        surface=np.maximum(surface, exact),
        meaning=_floats(token.log_meaning_probability for token in tokens),
        neutral=np.array([token.function_word for token in tokens], dtype=bool),
        digits=np.array([any(map(str.isdigit, token.text)) for token in tokens], dtype=bool),
        forced=(exact >= CERTAIN) & constrained,
        bounds=bounds,
        endings=_endings(tokens),
    )


def _floats(values: Iterable[float]) -> FloatArray:
    return np.fromiter(values, dtype=np.float64)


def _bounds(
    pairs: list[tuple[float, float] | None], tokens: tuple[ScoredToken, ...], name: str
) -> tuple[FloatArray, FloatArray]:
    known = [pair or (getattr(token, name),) * 2 for pair, token in zip(pairs, tokens, strict=True)]
    return _floats(low for low, _ in known), _floats(high for _, high in known)


def _endings(tokens: tuple[ScoredToken, ...]) -> dict[str, dict[int, tuple[float, float]]]:
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for step, token in enumerate(tokens):
        ends = getattr(token, "value_ends", None)
        for name in ("number", "digits", "quote", "array") if ends is not None else ():
            bounds = getattr(ends, name)
            if bounds is not None:
                found.setdefault(name, {})[step] = bounds
    return found
