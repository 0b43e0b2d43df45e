"""The ends of values: the probability, at the step after a number, a string or an array, that it ends there.

The digits of an amount may all be sure while its length is not. The step after the value shows it, by the mass of
the tokens that do not go on with it. Few steps follow a value, and few tokens go on with one, so that this costs next
to nothing; it cannot be computed later, when the row of logits is gone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.scored_token import EndProbability, ValueEnds
from semtoken.support.arrays import BoolArray, FloatArray, IdArray

_DIGIT = frozenset(b"0123456789")
_NUMBER = frozenset(b"0123456789.eE+-")
_CLOSES = re.compile(rb'"?\s*\]|"?\s+\Z')
_GOES_ON = re.compile(rb'"?\s*,')
_QUOTE = frozenset(b'"')
_BEGINNINGS = _NUMBER | _QUOTE | frozenset(b"], \t\n\r\x0b\x0c")
"""First characters of the tokens that are looked at more closely."""
_VALUE_END = frozenset(b'"0123456789el]}')
"""Last characters of JSON values."""


KINDS = ("number", "digit", "quote", "closes", "goes_on")
"""The classes of tokens that `Endings` distinguishes, in the order of the masses that `Endings.from_masses` takes."""


class Endings:
    """The tokens of a vocabulary that end or continue a value, such as a number, that comes before them.

    Five masks (bool [V]) say how tokens begin: `digit` with a digit, `number` with a character of a JSON number,
    `quote` with a quotation mark, `closes` with the bracket that closes an array (or they are blanks, which may come
    before one), and `goes_on` with a comma. In the last two a quotation mark and blanks may come first.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        begins = np.array([_begins(piece) for piece in vocabulary.pieces], dtype=np.int64)
        self.digit, self.number, self.quote, self.closes, self.goes_on = (begins & 1 << bit > 0 for bit in range(5))
        # One more entry, the last, for no token at all.
        last = np.array([piece[-1] if piece else 0 for piece in (*vocabulary.pieces, b"")], dtype=np.uint8)
        after_digit, after_value = np.isin(last, list(_DIGIT)), np.isin(last, list(_VALUE_END))
        # In indented JSON a line end comes between the last item and the bracket.
        closes_array, closes_line = self.closes.copy(), self.closes.copy()
        for token in np.flatnonzero(self.closes).tolist():
            closes_array[token] = b"]" in vocabulary.pieces[token]
            closes_line[token] = b"\n" in vocabulary.pieces[token]
        self.leaves = np.asarray(after_digit + 2 * after_value, dtype=np.int64)
        """The class of each token's last character, [V + 1] sums of 1 for a digit and 2 for a character with which a
        JSON value may end. The last entry is for no token at all."""
        self.asks = np.stack(
            [
                (behind & 1) * ~self.digit + 2 * self.quote + 4 * (closes_array | (closes_line & (behind >= 2)))
                for behind in range(4)
            ],
            axis=1,
        )
        """The values that may end at each token, by the entry in `leaves` of the token before it: [V, 4] sums, like
        those of `what_may_end`."""
        self._ids: dict[int, IdArray] = {}

    def what_may_end(self, before: IdArray, tokens: IdArray) -> IdArray:
        """The kinds of values that may end at each of n steps, [n] sums of 1 (a number), 2 (a string) and 4 (an array).

        `tokens` [n] were chosen there; `before` [n] are those before them, -1 for none.
        """
        return np.asarray(self.asks[tokens, self.leaves[before]])

    def ids_asked(self, asked: int) -> IdArray:
        """The tokens whose probabilities say whether values of these kinds end, ascending; empty for none."""
        if asked not in self._ids:
            number, quote, array = bool(asked & 1), bool(asked & 2), bool(asked & 4)
            wanted = (self.number & number) | (self.quote & quote) | ((self.closes | self.goes_on) & array)
            self._ids[asked] = np.flatnonzero(wanted)
        return self._ids[asked]

    def from_masses(self, asked: int, masses: Sequence[float]) -> ValueEnds | None:
        """The probability of each end that is asked for, from the exact masses of the five `KINDS`; None where no token
        says so.
        """
        if not len(self.ids_asked(asked)):
            return None
        number, digit, quote, closes, goes_on = (min(mass, 1.0) for mass in masses)
        exact = (1.0 - number, 1.0 - digit, quote, _share(closes, goes_on))
        return _asked_for(asked, *((end, end, end) for end in exact))

    def from_list(
        self, asked: int, ids: IdArray, probabilities: FloatArray, *, off: float, complete: bool
    ) -> ValueEnds:
        """The probability of each end that is asked for, from a list of best tokens, or of all if it is `complete`.

        The log of each of the `probabilities` may be off by `off`, since numbers are rounded.
        """
        less, more = math.exp(-off), math.exp(off)

        def mass(tokens: BoolArray) -> float:
            return float(probabilities[tokens[ids]].sum())

        def end(tokens: BoolArray) -> EndProbability:
            listed, high = mass(tokens), 1.0 - mass(~tokens) * less
            estimate = min(listed, 1.0)
            return min(listed * less, 1.0), estimate, max(min(high, listed * more) if complete else high, estimate)

        total = float(probabilities.sum())
        # Listed probabilities may have been rounded up, so that more is missing than they leave of 1.
        missing, unseen = (0.0, 0.0) if complete else (max(1.0 - total, 0.0), max(1.0 - total * less, 0.0))
        closes, goes_on = mass(self.closes), mass(self.goes_on)
        array = None
        if closes + goes_on + unseen > 0.0:
            least, most = _share(closes * less, goes_on * more + unseen), _share(closes * more + unseen, goes_on * less)
            array = least, _share(closes, goes_on + missing), most
        return _asked_for(asked, end(~self.number), end(~self.digit), end(self.quote), array)


def _share(mass: float, other: float) -> float:
    """The share that one of two masses has in both."""
    return mass / (mass + other) if mass else 0.0


def _asked_for(
    asked: int, number: EndProbability, digits: EndProbability, quote: EndProbability, array: EndProbability | None
) -> ValueEnds:
    return ValueEnds(
        number if asked & 1 else None,
        digits if asked & 1 else None,
        quote if asked & 2 else None,
        array if asked & 4 else None,
    )


@lru_cache(maxsize=4)
def endings_of(vocabulary: Vocabulary) -> Endings:
    """The `Endings` of a vocabulary, kept for the last four."""
    return Endings(vocabulary)


def _begins(piece: bytes) -> int:
    """The class of a token's beginning, as a sum of 1, 2, 4, 8 and 16 for the masks of `Endings` in their order."""
    if not piece or piece[0] not in _BEGINNINGS:
        return 0
    bits = (piece[0] in _DIGIT) + 2 * (piece[0] in _NUMBER) + 4 * (piece[0] in _QUOTE)
    return bits + 8 * bool(_CLOSES.match(piece)) + 16 * bool(_GOES_ON.match(piece))
