"""Where values end: how probable it was, at the step after a number, a string or an array, that it ends there.

The digits of an amount may all be sure while its length is not. What tells is the step after the value: the mass of
the tokens that do not go on with it. Few steps follow a value, and few tokens go on with one, so that this costs next
to nothing; it cannot be computed later, when the row of logits is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from semtoken._arrays import FloatArray, IdArray
from semtoken.results import ValueEnds
from semtoken.vocabulary import BoolArray, Vocabulary

_DIGIT = frozenset(b"0123456789")
_NUMBER = frozenset(b"0123456789.eE+-")
_CLOSES = re.compile(rb'"?\s*\]|"?\s+\Z')
_GOES_ON = re.compile(rb'"?\s*,')
_VALUE_END = frozenset(b'"0123456789el]}')
"""Last characters of JSON values."""


@dataclass(frozen=True, eq=False)
class EndRequest:
    """Which values a step may end, and the tokens whose probabilities tell."""

    number: bool = False
    quote: bool = False
    array: bool = False
    ids: IdArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


NO_END = EndRequest()


class Endings:
    """The tokens of a vocabulary by what they do to a value that comes before them (five bool [V])."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        pieces = vocabulary.pieces
        self._pieces = pieces
        self.digit = _mask(piece[:1] and piece[0] in _DIGIT for piece in pieces)
        self.number = _mask(piece[:1] and piece[0] in _NUMBER for piece in pieces)
        self.quote = _mask(piece[:1] == b'"' for piece in pieces)
        self.closes = _mask(_CLOSES.match(piece) for piece in pieces)
        self.goes_on = _mask(_GOES_ON.match(piece) for piece in pieces)
        self._ids: dict[tuple[bool, bool, bool], IdArray] = {}

    def request(self, before: int | None, token: int) -> EndRequest:
        """What is needed of the row from which `token` was chosen after the token `before`."""
        last = self._pieces[before][-1:] if before is not None else b""
        piece = self._pieces[token]
        number = bool(last) and last[0] in _DIGIT and not self.digit[token]
        quote = bool(self.quote[token])
        array = bool(self.closes[token]) and (
            b"]" in piece or (b"\n" in piece and last[:1] != b"" and last[0] in _VALUE_END)
        )
        if not (number or quote or array):
            return NO_END
        return EndRequest(number, quote, array, self._wanted((number, quote, array)))

    def _wanted(self, kinds: tuple[bool, bool, bool]) -> IdArray:
        if kinds not in self._ids:
            number, quote, array = kinds
            wanted = (self.number & number) | (self.quote & quote) | ((self.closes | self.goes_on) & array)
            self._ids[kinds] = np.flatnonzero(wanted)
        return self._ids[kinds]

    def from_row(self, request: EndRequest, log_probs: FloatArray) -> dict[str, float]:
        """Probability of each end, from the log-probabilities of `request.ids`."""
        if not len(request.ids):
            return {}
        probabilities = np.exp(log_probs)

        def mass(tokens: BoolArray) -> float:
            return min(float(probabilities[tokens[request.ids]].sum()), 1.0)

        found: dict[str, float] = {}
        if request.number:
            found |= {"number": 1.0 - mass(self.number), "digits": 1.0 - mass(self.digit)}
        if request.quote:
            found["quote"] = mass(self.quote)
        if request.array:
            closes, goes_on = mass(self.closes), mass(self.goes_on)
            found["array"] = closes / (closes + goes_on) if closes else 0.0
        return found

    def from_list(
        self, request: EndRequest, ids: IdArray, probabilities: FloatArray, unseen: float
    ) -> ValueEnds | None:
        """Bounds of each end, from the listed tokens and the probability that is not listed or not clear."""

        def mass(tokens: BoolArray) -> float:
            return float(probabilities[tokens[ids]].sum())

        def around(low: float) -> tuple[float, float]:
            return min(max(low, 0.0), 1.0), min(max(low + unseen, 0.0), 1.0)

        if request is NO_END:
            return None
        number = digits = quote = array = None
        if request.number:
            number, digits = around(mass(~self.number)), around(mass(~self.digit))
        if request.quote:
            quote = around(mass(self.quote))
        if request.array:
            closes, goes_on = mass(self.closes), mass(self.goes_on)
            total = closes + goes_on + unseen
            array = (closes / total, min((closes + unseen) / total, 1.0)) if total else None
        return ValueEnds(number, digits, quote, array)


@lru_cache(maxsize=4)
def endings_of(vocabulary: Vocabulary) -> Endings:
    """The (cached) classes of a vocabulary's tokens."""
    return Endings(vocabulary)


def exact_ends(found: Mapping[str, float]) -> ValueEnds | None:
    """The record of a step whose whole row was known."""
    return ValueEnds(**{name: (value, value) for name, value in found.items()}) if found else None


def _mask(flags: Iterable[object]) -> BoolArray:
    return np.array([bool(flag) for flag in flags], dtype=bool)
