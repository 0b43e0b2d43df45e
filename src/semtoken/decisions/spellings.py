"""How options are spelled in tokens, and the probability that a model says each of them.

An option's mass is the sum over its spellings: tokens that are it (`surface` equality: "Yes", " yes", "YES"), and the
tokenizer's own spellings of several tokens, each the product over its tokens. Where another option goes on from it
("New York", "New York City") it counts only as far as the model stops there.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from semtoken.decisions.prompts import plain_tokens
from semtoken.errors import InvalidInput
from semtoken.support.arrays import FloatArray, IdArray
from semtoken.tokens.vocabulary import Vocabulary, normalize

Path: TypeAlias = tuple[int, ...]
"""Tokens behind a prompt; () is the prompt's end."""
LogMasses: TypeAlias = tuple[FloatArray, FloatArray]
"""Log-probabilities of some tokens at one place: the least and the greatest that they can be, equal where known."""

WORTH_READING = 0.01
"""A spelling is read to its end if its first token has at least this share of the probability of the option's likeliest
first token.
"""


@dataclass(frozen=True, eq=False)
class OptionSpelling:
    """The token sequences that spell one option."""

    tokens: IdArray
    """Tokens that are the whole option."""
    longer: tuple[Path, ...]
    """Its spellings of several tokens."""
    going_on: IdArray
    """Tokens with which another option goes on from this one; usually none."""


def spellings_of(texts: Sequence[str], tokenizer: Any, vocabulary: Vocabulary, *, exact: bool) -> list[OptionSpelling]:
    """The token sequences that spell each of some options.

    Parameters
    ----------
    texts
        What the model is to say for each option.
    tokenizer, vocabulary
        The tokenizer and the vocabulary of the model.
    exact
        True: an option counts only as it is spelled. False: also in upper or lower case and behind a blank.

    Raises
    ------
    InvalidInput
        Two of them cannot be told apart, or one cannot be written with this tokenizer.
    """
    surfaces = surfaces_of(texts, exact=exact)
    return [
        OptionSpelling(
            tokens=_single_tokens(text, surface, tokenizer, vocabulary, exact),
            longer=_longer(text, surface, tokenizer, vocabulary, exact),
            going_on=_going_on(surface, surfaces, vocabulary, exact),
        )
        for text, surface in zip(texts, surfaces, strict=True)
    ]


def surfaces_of(texts: Sequence[str], *, exact: bool) -> list[str]:
    """The part of each text that counts: all of it, or all but case and surrounding blanks.

    Raises
    ------
    InvalidInput
        Two of them are equal, or one is empty.
    """
    surfaces = [text if exact else normalize(text) for text in texts]
    first: dict[str, int] = {}
    for place, surface in enumerate(surfaces):
        if not surface.strip():
            raise InvalidInput(f"Option {place} has no text, so nothing that the model says can mean it.")
        if surface in first:
            raise InvalidInput(
                f"The options {texts[first[surface]]!r:.60} and {texts[place]!r:.60} cannot be told apart by their "
                "words: they differ in case or blanks at most. Name them otherwise, or read labels."
            )
        first[surface] = place
    return surfaces


def _single_tokens(text: str, surface: str, tokenizer: Any, vocabulary: Vocabulary, exact: bool) -> IdArray:
    if exact:
        ids = _canonical(text, tokenizer)
        return np.array(ids if len(ids) == 1 else (), dtype=np.int64)
    return vocabulary.tokens_of(surface)


def _longer(text: str, surface: str, tokenizer: Any, vocabulary: Vocabulary, exact: bool) -> tuple[Path, ...]:
    variants = [text] if exact else [t for one in spelled_cases(text.strip()) for t in (one, f" {one}")]
    found = {ids for one in variants if len(ids := _canonical(one, tokenizer)) > 1}
    spelled = {ids for ids in found if _surface(vocabulary.decode(ids), exact) == surface}
    if not spelled and not _single_tokens(text, surface, tokenizer, vocabulary, exact).size:
        raise InvalidInput(f"The option {text!r:.60} cannot be written with the tokens of this model.")
    return tuple(sorted(spelled))


def spelled_cases(text: str) -> list[str]:
    """A text as models may write it: unchanged, in small letters, in capitals, or with a capital first."""
    return list(dict.fromkeys([text, text.lower(), text.upper(), text.capitalize()]))


def _surface(text: str, exact: bool) -> str:
    return text.removeprefix(" ") if exact else normalize(text)


def _canonical(text: str, tokenizer: Any) -> Path:
    return tuple(int(token) for token in plain_tokens(tokenizer, text))


def _going_on(surface: str, surfaces: Sequence[str], vocabulary: Vocabulary, exact: bool) -> IdArray:
    """Tokens that begin, or hold, the rest of a longer option."""
    rests = [other[len(surface) :] for other in surfaces if other != surface and other.startswith(surface)]
    if not rests:
        return np.empty(0, dtype=np.int64)
    pieces, tokens = _sorted_pieces(vocabulary, exact)
    longest = vocabulary.longest_piece
    found: set[int] = set()
    for head in {rest[:k] for rest in rests for k in range(1, min(len(rest), longest) + 1)}:
        found.update(tokens[bisect_left(pieces, head) : bisect_right(pieces, head)])
    for rest in {rest for rest in rests if len(rest) <= longest}:
        found.update(tokens[bisect_left(pieces, rest) : bisect_left(pieces, rest + chr(0x10FFFF))])
    return np.array(sorted(found), dtype=np.int64)


@lru_cache(maxsize=4)
def _sorted_pieces(vocabulary: Vocabulary, exact: bool) -> tuple[list[str], list[int]]:
    """The tokens' texts inside a text in alphabetical order, and their ids."""
    pieces = vocabulary.inner_texts if exact else [piece.lower() for piece in vocabulary.inner_texts]
    tokens = sorted((token for token, piece in enumerate(pieces) if piece), key=pieces.__getitem__)
    return [pieces[token] for token in tokens], tokens


@dataclass(eq=False)
class OptionReader:
    """Computes the masses of one question's options behind one prompt, with two look-ups of probabilities.

    First the prompt's end is looked at, and `first` says where to look next; then `masses` puts all together.
    """

    spellings: Sequence[OptionSpelling]
    _start: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Least and greatest log-probability of each first token."""
    _read: list[list[Path]] = field(default_factory=list)
    """The spellings of each option that are read to their end."""

    @property
    def first_tokens(self) -> IdArray:
        """The tokens whose probability at the end of the prompt is needed, ascending."""
        each = [[*one.tokens.tolist(), *(path[0] for path in one.longer)] for one in self.spellings]
        return np.array(sorted({token for tokens in each for token in tokens}), dtype=np.int64)

    def first(self, found: LogMasses) -> dict[Path, IdArray]:
        """Add the log-probabilities of `first_tokens`; returns what to look up next, by place."""
        low, high = found
        self._start = dict(zip(self.first_tokens.tolist(), zip(low.tolist(), high.tolist(), strict=True), strict=True))
        self._read = [self._worth_reading(one) for one in self.spellings]
        wanted: dict[Path, set[int]] = {}
        for one, paths in zip(self.spellings, self._read, strict=True):
            for path in paths:
                for k in range(1, len(path)):
                    wanted.setdefault(path[:k], set()).add(path[k])
                if one.going_on.size:
                    wanted.setdefault(path, set()).update(one.going_on.tolist())
        return {path: np.array(sorted(tokens), dtype=np.int64) for path, tokens in wanted.items()}

    def _worth_reading(self, one: OptionSpelling) -> list[Path]:
        """Spellings whose end has to be seen: those of several tokens, and all of an option that others go on from."""
        singles = [(token,) for token in one.tokens.tolist()] if one.going_on.size else []
        heads = [self._start[token][1] for token in [*one.tokens.tolist(), *(path[0] for path in one.longer)]]
        least = max(heads, default=-math.inf) + math.log(WORTH_READING)
        return [path for path in [*singles, *one.longer] if self._start[path[0]][1] >= least]

    def masses(self, further: Mapping[Path, Mapping[int, tuple[float, float]]]) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the mass of each option, [n] each, from the look-ups."""
        both = [
            self._mass(one, paths, further, other)
            for one, paths, other in zip(self.spellings, self._read, self._others(), strict=True)
        ]
        low, high = (np.array([pair[end] for pair in both]) for end in (0, 1))
        return np.minimum(low, 1.0), np.minimum(np.maximum(low, high), 1.0)

    def _others(self) -> list[set[int]]:
        """The first tokens of the spellings of each option that are not read, which only widen its interval."""
        found = []
        for one, paths in zip(self.spellings, self._read, strict=True):
            singles = set(one.tokens.tolist())  # where others go on from them, they are read like longer spellings
            starts = {path[0] for path in one.longer} | (singles if one.going_on.size else set())
            read = {path[0] for path in paths} | (set() if one.going_on.size else singles)
            found.append(starts - read)
        return found

    def _mass(
        self,
        one: OptionSpelling,
        paths: Sequence[Path],
        further: Mapping[Path, Mapping[int, tuple[float, float]]],
        unread: set[int],
    ) -> tuple[float, float]:
        low = high = 0.0
        whole = [] if one.going_on.size else [(token,) for token in one.tokens.tolist()]
        for path in {*whole, *paths}:
            ends = [self._start[path[0]], *(further[path[:k]][path[k]] for k in range(1, len(path)))]
            least, greatest = (math.exp(math.fsum(pair[side] for pair in ends)) for side in (0, 1))
            if one.going_on.size and path in further:
                on = [further[path][token] for token in one.going_on.tolist()]
                least *= max(0.0, 1 - math.fsum(math.exp(pair[1]) for pair in on))
                greatest *= max(0.0, 1 - math.fsum(math.exp(pair[0]) for pair in on))
            low, high = low + least, high + greatest
        return low, high + math.fsum(math.exp(self._start[token][1]) for token in unread)
