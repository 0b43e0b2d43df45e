"""From the log masses of an answer's tokens to the confidence of a part of it: pure arithmetic.

For the n tokens of a part with log masses q_i <= 0: product = exp(sum q), weakest = exp(min q), mean = exp(sum q / n).
"""

from __future__ import annotations

import math

import numpy as np

from semtoken.parts.part import AnswerTokens, Equality, FloatArray, Found, IdArray, Part
from semtoken.tokens.scored import Flag

NO_TOKENS = Flag("no_tokens", "No token spells this part: its confidence is that of its end, or 1.")
NEUTRAL_ONLY = Flag("neutral_only", "The part holds function words only: they are scored by their spelling here.")
ENDS_INSIDE = Flag("closing_in_value", "The token that ends the value also spells what follows it.")
TEXT_CUT = Flag("cut_off", "The text was cut off: the object is not complete.")


def part_of(answer: AnswerTokens, found: Found, *, complete: bool = True) -> Part:
    """The confidence of one stretch of an answer."""
    tokens = _tokens(answer, found)
    scored = tokens[~answer.forced[tokens]]
    equality, flags = found.equality, list(found.flags)
    neutral = answer.neutral[scored]
    if equality == "meaning" and len(scored) and neutral.all():
        equality = "surface"
        flags.append(NEUTRAL_ONLY)
    if not len(tokens) and found.members is None:
        flags.append(NO_TOKENS)
    if not complete:
        flags.append(TEXT_CUT)
    masses = _masses(answer, equality, scored)
    closing_token = answer.closing_token(found.end) if found.ending else None
    inside = closing_token is not None and closing_token in tokens
    if inside:
        flags.append(ENDS_INSIDE)
    known = None if inside or closing_token is None else _known_end(answer, found, closing_token)
    counts = known is not None and (found.closing_in_confidence or not len(tokens))
    low, high = (_masses(answer, equality, scored, side) for side in (0, 1))
    return Part(
        start=found.start,
        end=found.end,
        text=answer.text[found.start : found.end],
        kind=found.kind,
        path=found.path,
        confidence=_aggregate(found.aggregate, masses, known[0] if known and counts else 1.0),
        aggregate=found.aggregate,
        product=_aggregate("product", masses),
        weakest=_aggregate("weakest", masses),
        weakest_token=int(scored[np.argmin(masses)]) if len(scored) else None,
        mean=math.exp(math.fsum(masses) / len(masses)) if len(masses) else 1.0,
        closing=known[0] if known else None,
        closing_token=closing_token,
        equality=equality,
        tokens=tuple(tokens.tolist()),
        neutral_share=float(neutral.mean()) if equality == "meaning" and len(scored) else 0.0,
        bounds=(
            _aggregate(found.aggregate, low, known[0] if known and counts else 1.0),
            _aggregate(found.aggregate, high, known[1] if known and counts else 1.0),
        ),
        flags=tuple(flags),
        value=found.value,
        complete=complete,
        forced=len(tokens) - len(scored),
        call=found.call,
    )


def _tokens(answer: AnswerTokens, found: Found) -> IdArray:
    if found.members is None:
        return answer.touching(found.start, found.end)
    if not found.members:
        return np.empty(0, dtype=np.int64)
    return np.unique(np.concatenate([answer.touching(start, end) for start, end in found.members]))


def _known_end(answer: AnswerTokens, found: Found, step: int) -> tuple[float, float] | None:
    return None if found.ending is None else answer.endings.get(found.ending, {}).get(step)


def _masses(answer: AnswerTokens, equality: Equality, tokens: IdArray, side: int | None = None) -> FloatArray:
    """Log masses of some tokens: the values told, or one side of the intervals around them."""

    def known(name: Equality, values: FloatArray) -> FloatArray:
        bounds = None if side is None else answer.bounds.get(name)
        return (values if bounds is None or side is None else bounds[side])[tokens]

    if equality == "meaning":
        return known("meaning", answer.meaning)
    exact, surface = known("exact", answer.exact), known("surface", answer.surface)
    if equality == "mixed":
        return np.where(answer.digits[tokens], exact, surface)
    return exact if equality == "exact" else surface


def _aggregate(name: str, masses: FloatArray, closing: float = 1.0) -> float:
    if name == "weakest":
        return min(math.exp(masses.min()) if len(masses) else 1.0, closing)
    return math.exp(math.fsum(masses)) * closing
