"""The spellings of options in tokens, and the probability that a model says each option.

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

from semtoken.clustering.vocabulary import Vocabulary, normalize
from semtoken.decisions.prompts import plain_tokens
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray, IdArray

Path: TypeAlias = tuple[int, ...]
"""Tokens after a prompt; () is the prompt's end."""
LogMasses: TypeAlias = tuple[FloatArray, FloatArray]
"""Log-probabilities of some tokens at one place: the least and the greatest that they can be, equal where known."""

WORTH_READING = 0.01
"""A spelling is read to its end if its first token has at least this share of the probability of the option's likeliest
first token.
"""


@dataclass(frozen=True, eq=False)
class OptionSpelling:
    """The token sequences that spell one option."""

    paths: tuple[Path, ...]
    """Tokens that are the whole option, and sequences of several tokens."""
    going_on: IdArray
    """Tokens with which another option goes on from this one; usually none."""

    def ends_at_once(self, path: Path) -> bool:
        """Return True if the probability of the first token is the whole mass of a spelling."""
        return len(path) == 1 and not self.going_on.size


def spellings_of(texts: Sequence[str], tokenizer: Any, vocabulary: Vocabulary, *, exact: bool) -> list[OptionSpelling]:
    """The token sequences that spell each option; unless `exact`, also in upper or lower case and after a space.

    `InvalidInputError` if two options are spelled alike, or one cannot be written with this tokenizer.
    """
    surfaces = surfaces_of(texts, exact=exact)
    return [
        OptionSpelling(
            _paths(text, surface, tokenizer, vocabulary, exact), _going_on(surface, surfaces, vocabulary, exact)
        )
        for text, surface in zip(texts, surfaces, strict=True)
    ]


def surfaces_of(texts: Sequence[str], *, exact: bool) -> list[str]:
    """The part of each text that counts: all of it, or all but case and surrounding blanks.

    `InvalidInputError` if two of them are equal, or one is empty.
    """
    surfaces = [text if exact else normalize(text) for text in texts]
    first: dict[str, int] = {}
    for place, surface in enumerate(surfaces):
        if not surface.strip():
            raise InvalidInputError(f"Option {place} has no text, so nothing that the model says can mean it.")
        if surface in first:
            raise InvalidInputError(
                f"The options {texts[first[surface]]!r:.60} and {texts[place]!r:.60} cannot be told apart by their "
                "words: they differ at most in case or spaces. Name them otherwise, or read labels."
            )
        first[surface] = place
    return surfaces


def _paths(text: str, surface: str, tokenizer: Any, vocabulary: Vocabulary, exact: bool) -> tuple[Path, ...]:
    variants = [text] if exact else [t for variant in spelled_cases(text.strip()) for t in (variant, f" {variant}")]
    sequences = {tuple(map(int, plain_tokens(tokenizer, variant))) for variant in variants}
    if exact:
        tokens = [ids for ids in sequences if len(ids) == 1]
    else:
        tokens = [(token,) for token in vocabulary.tokens_of(surface).tolist()]
    # A tokenizer without a character writes its unknown token instead, which reads back as another text.
    longer = sorted(ids for ids in sequences if len(ids) > 1 and _surface(vocabulary.decode(ids), exact) == surface)
    if not tokens and not longer:
        raise InvalidInputError(f"The option {text!r:.60} cannot be written with the tokens of this model.")
    return (*tokens, *longer)


def spelled_cases(text: str) -> list[str]:
    """A text as models may write it: unchanged, in small letters, in capitals, or with a capital first."""
    return list(dict.fromkeys([text, text.lower(), text.upper(), text.capitalize()]))


def _surface(text: str, exact: bool) -> str:
    return text.removeprefix(" ") if exact else normalize(text)


def _going_on(surface: str, surfaces: Sequence[str], vocabulary: Vocabulary, exact: bool) -> IdArray:
    """Tokens that begin, or hold, the rest of a longer option."""
    rests = [other[len(surface) :] for other in surfaces if other != surface and other.startswith(surface)]
    if not rests:
        return np.empty(0, dtype=np.int64)
    pieces, tokens = _sorted_pieces(vocabulary, exact)
    longest = vocabulary.longest_piece
    going_on: set[int] = set()
    # A token may hold the beginning of what is missing, whole or not ...
    for head in {rest[:k] for rest in rests for k in range(1, min(len(rest), longest) + 1)}:
        going_on.update(tokens[bisect_left(pieces, head) : bisect_right(pieces, head)])
    # ... or all of it and more. In a sorted list, texts that begin alike lie side by side, up to the highest character.
    for rest in {rest for rest in rests if len(rest) <= longest}:
        going_on.update(tokens[bisect_left(pieces, rest) : bisect_left(pieces, rest + chr(0x10FFFF))])
    return np.array(sorted(going_on), dtype=np.int64)


@lru_cache(maxsize=4)
def _sorted_pieces(vocabulary: Vocabulary, exact: bool) -> tuple[list[str], list[int]]:
    """The tokens' texts inside a text in alphabetical order, and their ids."""
    pieces = vocabulary.inner_texts if exact else [piece.lower() for piece in vocabulary.inner_texts]
    tokens = sorted((token for token, piece in enumerate(pieces) if piece), key=pieces.__getitem__)
    return [pieces[token] for token in tokens], tokens


@dataclass(eq=False)
class OptionReader:
    """Computes the masses of one question's options after one prompt, with two look-ups of probabilities.

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
        return np.array(sorted({path[0] for option in self.spellings for path in option.paths}), dtype=np.int64)

    def first(self, masses: LogMasses) -> dict[Path, IdArray]:
        """Add the log-probabilities of `first_tokens`; returns what to look up next, by place."""
        low, high = masses
        self._start = dict(zip(self.first_tokens.tolist(), zip(low.tolist(), high.tolist(), strict=True), strict=True))
        self._read = [self._worth_reading(option) for option in self.spellings]
        wanted: dict[Path, set[int]] = {}
        for option, paths in zip(self.spellings, self._read, strict=True):
            for path in paths:
                for k in range(1, len(path)):
                    wanted.setdefault(path[:k], set()).add(path[k])
                if option.going_on.size:
                    # How often the model goes on is known only behind the option itself.
                    wanted.setdefault(path, set()).update(option.going_on.tolist())
        return {path: np.array(sorted(tokens), dtype=np.int64) for path, tokens in wanted.items()}

    def _worth_reading(self, option: OptionSpelling) -> list[Path]:
        """The spellings whose end is known at once, and of the others those that are likely enough to be read on."""
        heads = [self._start[path[0]][1] for path in option.paths]
        least = max(heads) + math.log(WORTH_READING)
        pairs = zip(option.paths, heads, strict=True)
        return [path for path, head in pairs if option.ends_at_once(path) or head >= least]

    def masses(self, further: Mapping[Path, Mapping[int, tuple[float, float]]]) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the mass of each option, [n] each, from the look-ups."""
        both = [self._mass(*pair, further) for pair in zip(self.spellings, self._read, strict=True)]
        low, high = (np.array([pair[end] for pair in both]) for end in (0, 1))
        # Rounding alone can bring a sum above 1, or an upper end below its lower one.
        return np.minimum(low, 1.0), np.minimum(np.maximum(low, high), 1.0)

    def masses_at_first(self, masses: LogMasses) -> tuple[FloatArray, FloatArray]:
        """Bounds of the mass of each option, [n] each, from the log-probabilities of `first_tokens` only.

        Spellings of several tokens count at the upper end, as far as their first token. No option may go on from
        another.
        """
        self.first(masses)
        self._read = [[path for path in option.paths if option.ends_at_once(path)] for option in self.spellings]
        return self.masses({})

    def _mass(
        self, option: OptionSpelling, read: Sequence[Path], further: Mapping[Path, Mapping[int, tuple[float, float]]]
    ) -> tuple[float, float]:
        low = high = 0.0
        for path in read:
            ends = [self._start[path[0]], *(further[path[:k]][path[k]] for k in range(1, len(path)))]
            least, greatest = (math.exp(math.fsum(pair[side] for pair in ends)) for side in (0, 1))
            if option.going_on.size:
                on = [further[path][token] for token in option.going_on.tolist()]
                # What goes on counts for the longer option. Where more may go on, less of this one is left, so the ends
                # cross.
                least *= max(0.0, 1 - math.fsum(math.exp(pair[1]) for pair in on))
                greatest *= max(0.0, 1 - math.fsum(math.exp(pair[0]) for pair in on))
            low, high = low + least, high + greatest
        # The spellings that are not read on only widen the interval.
        unread = {path[0] for path in option.paths} - {path[0] for path in read}
        return low, high + math.fsum(math.exp(self._start[token][1]) for token in unread)
