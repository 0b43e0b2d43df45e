"""From a scored answer to the log masses of its tokens, and from those to the confidence of a part.

For the n tokens of a part with log masses q_i <= 0: product = exp(sum q), weakest = exp(min q), mean = exp(sum q / n).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from semtoken.core.parts.part import Ending, FoundPart, Part, PartEquality
from semtoken.core.rules import recorded_equality
from semtoken.core.scored_token import EndProbability, Flag, ScoredToken, TokenMark

CERTAIN = -1e-7
"""A token of at least this log-probability under a grammar was the only one that it allowed."""
CONSTRAINED = "constrained"
"""Code of the flag of an answer that a grammar or a list of allowed tokens shaped."""
_ENDS: tuple[Ending, ...] = ("number", "digits", "quote", "array")


class AnswerWithTokens(Protocol):
    """The interface of answers whose parts can be scored; `ScoredAnswer` has it."""

    @property
    def text(self) -> str:
        """The answer as text."""

    @property
    def tokens(self) -> Sequence[ScoredToken]:
        """The tokens of the answer, in order."""

    @property
    def flags(self) -> Sequence[Flag]:
        """The flags of the answer."""

    @property
    def signature(self) -> str:
        """The rules behind the score in one line, with the clusters if the rules read them."""


@dataclass(frozen=True, eq=False)
class AnswerTokens:
    """Log masses and character ranges of the n tokens of an answer, from which parts are computed.

    Ranges in characters say the same as ranges in bytes: a part covers whole characters, and a token that holds some
    bytes of a character has the range of that character.
    """

    text: str
    """The text of the answer."""
    starts: Sequence[int]
    """First character of each token [n]; not decreasing."""
    ends: Sequence[int]
    """One past its last character [n]; equal to its start for tokens without text."""
    exact: Sequence[float]
    """log p of each token itself, <= 0 [n]."""
    surface: Sequence[float]
    """Log mass of the tokens of its spelling [n]."""
    meaning: Sequence[float]
    """Log mass of the tokens that mean the same [n]; NaN where the answer was scored without clusters."""
    neutral: Sequence[bool]
    """True for tokens that count as certain under `meaning`: function words, blanks, special tokens [n]."""
    digits: Sequence[bool]
    """True for tokens whose text holds a digit [n]."""
    forced: Sequence[bool]
    """True where a grammar left no choice [n]: such tokens are not in the aggregates, but counted in `Part.forced`."""
    prose: PartEquality = "meaning"
    """The equality of words, phrases, sentences and longer texts: that of the rules the answer was scored under."""
    bounds: Mapping[PartEquality, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    """Lower and upper log masses by equality, where only the best tokens of a step are known."""
    endings: Mapping[Ending, Mapping[int, EndProbability]] = field(default_factory=dict)
    """The probability that a value which came before ends at a step, by `Ending` and step."""

    def __len__(self) -> int:
        return len(self.starts)

    def touching(self, start: int, end: int) -> list[int]:
        """The tokens that share a character with start..end; for an empty range, those that contain the place."""
        near = range(bisect_right(self.ends, start), bisect_left(self.starts, end))
        return [token for token in near if self.starts[token] < self.ends[token]]

    def closing_token(self, end: int) -> int | None:
        """The token with the first character after a value, or the special token that ends the text there."""
        after = self.touching(end, end + 1) if end < len(self.text) else self.touching(0, 0)
        if after:
            return after[0]
        last = bisect_left(self.starts, len(self.text))
        return last if end >= len(self.text) and last < len(self) else None


def answer_tokens(answer: AnswerWithTokens, *, constrained: bool | None = None) -> AnswerTokens:
    """The log masses and character ranges of tokens; `constrained`: a grammar shaped them (default: as flags say)."""
    tokens = answer.tokens
    masses = replace(
        marked_tokens(answer, tokens, constrained),
        surface=[token.log_surface_probability for token in tokens],
        meaning=[
            math.nan if token.log_meaning_probability is None else token.log_meaning_probability for token in tokens
        ],
        neutral=[token.neutral or token.function_word for token in tokens],
        digits=[_has_digit(token.text) for token in tokens],
        endings=_endings(tokens),
    )
    bounds: dict[PartEquality, tuple[list[float], list[float]]] = {}
    if any(pairs := [token.log_probability_bounds for token in tokens]):
        bounds["exact"] = _bounds(pairs, masses.exact)
    if any(pairs := [token.log_surface_bounds for token in tokens]):
        bounds["surface"] = _bounds(pairs, masses.surface)
    if any(pairs := [token.log_meaning_bounds for token in tokens]):
        bounds["meaning"] = _bounds(pairs, masses.meaning)
    return replace(masses, bounds=bounds)


def marked_tokens(
    answer: AnswerWithTokens, marks: Sequence[TokenMark | ScoredToken], constrained: bool | None = None
) -> AnswerTokens:
    """The same from the marks of an answer that was scored by spelling, for parts of prose, without ends of values."""
    if constrained is None:
        constrained = any(flag.code == CONSTRAINED for flag in answer.flags)
    own, pairs = [mark.log_agreeing_probability for mark in marks], [mark.log_agreeing_bounds for mark in marks]
    return AnswerTokens(
        text=answer.text,
        starts=[mark.start for mark in marks],
        ends=[mark.end for mark in marks],
        exact=[mark.log_probability for mark in marks],
        surface=own,
        meaning=[math.nan] * len(marks),
        neutral=[False] * len(marks),
        digits=[_has_digit(answer.text[mark.start : mark.end]) for mark in marks],
        forced=[constrained and mark.log_probability >= CERTAIN for mark in marks],
        prose=recorded_equality(answer.signature),
        bounds={"surface": _bounds(pairs, own)} if any(pairs) else {},
    )


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _bounds(pairs: Sequence[tuple[float, float] | None], points: Sequence[float]) -> tuple[list[float], list[float]]:
    """Lower and upper ends of intervals around masses, where only the best tokens are known; else the masses."""
    intervals = [pair or (point, point) for pair, point in zip(pairs, points, strict=True)]
    return [low for low, _ in intervals], [high for _, high in intervals]


def tokens_touching(
    tokens: Sequence[TokenMark | ScoredToken], spans: Iterable[tuple[int, int]]
) -> list[Sequence[TokenMark | ScoredToken]]:
    """The tokens of an answer that share a character with each of some character ranges."""
    starts, ends = [token.start for token in tokens], [token.end for token in tokens]
    return [tokens[bisect_right(ends, start) : bisect_left(starts, end)] for start, end in spans]


def log_product(tokens: Sequence[TokenMark | ScoredToken]) -> tuple[float, float, float]:
    """The log of the product of the agreeing probabilities of some tokens, with lower and upper bound."""
    own = [token.log_agreeing_probability for token in tokens]
    bounds = [token.log_agreeing_bounds or (log, log) for token, log in zip(tokens, own, strict=True)]
    return math.fsum(own), math.fsum(low for low, _ in bounds), math.fsum(high for _, high in bounds)


def _endings(tokens: Sequence[ScoredToken]) -> dict[Ending, dict[int, EndProbability]]:
    by_ending: dict[Ending, dict[int, EndProbability]] = {}
    for step, token in enumerate(tokens):
        ends = token.value_ends
        for name in _ENDS if ends is not None else ():
            end = getattr(ends, name)
            if end is not None:
                by_ending.setdefault(name, {})[step] = end
    return by_ending


NO_TOKENS = Flag("no_tokens", "No token spells this part: its confidence is that of its end, or 1.")
NEUTRAL_ONLY = Flag("neutral_only", "The part holds function words only: they are scored by their spelling here.")
ENDS_INSIDE = Flag("closing_in_value", "The token that ends the value also spells what follows it.")
TEXT_CUT = Flag("cut_off", "The text was cut off: the object is not complete.")


def part_of(answer: AnswerTokens, found_part: FoundPart, equality: PartEquality, *, complete: bool) -> Part:
    """Compute the confidence of one stretch of an answer by an equality; flagged `cut_off` if its text is not
    `complete`.
    """
    tokens = _tokens(answer, found_part)
    scored = [token for token in tokens if not answer.forced[token]]
    flags = list(found_part.flags)
    neutral = sum(answer.neutral[token] for token in scored)
    # Of function words alone ("no", "not"), the paper's rule would call every part certain.
    if equality == "meaning" and scored and neutral == len(scored):
        equality = "surface"
        flags.append(NEUTRAL_ONLY)
    if not tokens and found_part.members is None:
        flags.append(NO_TOKENS)
    if not complete:
        flags.append(TEXT_CUT)
    closing_token = answer.closing_token(found_part.end) if found_part.ending else None
    inside = closing_token is not None and closing_token in tokens
    if inside:
        flags.append(ENDS_INSIDE)
    known = None
    if found_part.ending is not None and closing_token is not None and not inside:
        known = answer.endings.get(found_part.ending, {}).get(closing_token)
    # The digits of an amount may be sure while its length is not. An empty string has no tokens, so its end is its
    # confidence.
    least, end, most = 1.0, 1.0, 1.0
    if known is not None and (found_part.closing_in_confidence or not tokens):
        least, end, most = known
    masses, low, high = (_masses(answer, equality, scored, side) for side in (None, 0, 1))
    aggregate = _weakest if found_part.aggregate == "weakest" else _product
    return Part(
        start=found_part.start,
        end=found_part.end,
        text=answer.text[found_part.start : found_part.end],
        kind=found_part.kind,
        path=found_part.path,
        confidence=aggregate(masses, end),
        aggregate=found_part.aggregate,
        product=_product(masses),
        weakest=_weakest(masses),
        weakest_token=scored[masses.index(min(masses))] if scored else None,
        mean=math.exp(math.fsum(masses) / len(masses)) if masses else 1.0,
        closing=known[1] if known else None,
        closing_token=closing_token,
        equality=equality,
        tokens=tuple(tokens),
        neutral_share=neutral / len(scored) if equality == "meaning" and scored else 0.0,
        bounds=(aggregate(low, least), aggregate(high, most)),
        flags=tuple(flags),
        value=found_part.value,
        complete=complete,
        forced=len(tokens) - len(scored),
        call=found_part.call,
    )


def _tokens(answer: AnswerTokens, found_part: FoundPart) -> list[int]:
    if found_part.members is None:
        return answer.touching(found_part.start, found_part.end)
    return sorted({token for start, end in found_part.members for token in answer.touching(start, end)})


def _masses(
    answer: AnswerTokens, equality: PartEquality, tokens: Sequence[int], side: int | None = None
) -> list[float]:
    """Log masses of some tokens: the values themselves, or one side of the intervals around them."""
    if equality == "mixed":
        exact, surface = (_masses(answer, name, tokens, side) for name in ("exact", "surface"))
        return [exact[i] if answer.digits[token] else surface[i] for i, token in enumerate(tokens)]
    bounds = None if side is None else answer.bounds.get(equality)
    values: Sequence[float] = getattr(answer, equality) if bounds is None or side is None else bounds[side]
    return [values[token] for token in tokens]


def _weakest(masses: Sequence[float], end: float = 1.0) -> float:
    """The probability of the least certain token, or that the part ends there."""
    return min(math.exp(min(masses, default=0.0)), end)


def _product(masses: Sequence[float], end: float = 1.0) -> float:
    """The probability of the whole part, and that it ends there."""
    return math.exp(math.fsum(masses)) * end
