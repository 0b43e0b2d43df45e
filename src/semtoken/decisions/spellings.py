"""The spellings of options in tokens, and the probability that a model says each option.

An option's mass is the sum over its spellings: tokens that are it (`surface` equality: "Yes", " yes", "YES"), and the
tokenizer's own spellings of several tokens, each the product over its tokens. Where another option goes on from it
("New York", "New York City") it counts only as far as the model stops there.

In the lists of best tokens that a server gives with its answer tokens are known by their spelling alone, so an option's
mass is an interval. What the lists name counts on both ends, what they leave out and what the model might have gone on
to say counts at the upper end only. Each list is read, and behind the token that the server chose the next one, since
it shows how options go on that begin alike.

>>> from semtoken.core.engine_tokens import TopStep, TopToken
>>> yes, no = TopToken(math.log(0.7), text="Yes"), TopToken(math.log(0.2), text=" no")
>>> low, high = masses_from_top_tokens(["Yes", "No"], [TopStep(yes, [yes, no])], exact=False)
>>> low.round(3).tolist(), high.round(3).tolist()
([0.7, 0.2], [0.8, 0.3])
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
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.checked_list import OVERFULL, check_number, overfull
from semtoken.core.engine_tokens.top_steps import is_given, spelling
from semtoken.decisions.questions import plain_tokens
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
        """Whether the probability of the first token is the whole mass of a spelling."""
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


BLANKS = str.maketrans(dict.fromkeys("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}\N{LOWER ONE EIGHTH BLOCK}", " "))
"""The signs that some servers write for the blank before a word."""


@dataclass(frozen=True)
class _BestTokens:
    """The best tokens of one step: the probability of each spelling, and how much probability is not listed."""

    named: dict[bytes, tuple[float, float]]
    """Least and greatest: several tokens of one spelling may be meant or one of them."""
    chosen: bytes | None
    """The spelling of the token with which the text goes on; None if it has none."""
    chosen_probability: float
    rest: float
    """Probability of all tokens that are not named together, and"""
    most: float
    """that of each of them at most."""


def masses_from_top_tokens(
    texts: Sequence[str], steps: Sequence[TopStep], *, exact: bool
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bound of the probability of each of n options, [n] each in [0, 1], from lists of best tokens.

    Unless `exact`, an option counts also in upper or lower case and after a space. `InvalidInputError` if two options
    are spelled alike or one has no text, `InvalidLogits` if a number is no log-probability.
    """
    reading = _ListReading(texts, exact)
    for number, step in enumerate(steps):
        if not reading.take(_best_tokens(step, number, exact), last=number + 1 == len(steps)):
            break
    low = np.minimum(reading.low, 1.0)
    return low, np.minimum(np.maximum(low, reading.high), 1.0)


def masses_from_named_tokens(reader: OptionReader, step: TopStep) -> tuple[FloatArray, FloatArray] | None:
    """Lower and upper bound of the probability of each of n options, [n] each in [0, 1], from a list by token ids.

    None unless the list holds the probability of every token that the reader asks for. `InvalidLogits` if a number is
    no log-probability.
    """
    # The chosen token may be one of those that were asked for.
    listed = {token.id: token for token in (*step.top, step.chosen)}
    tokens = [listed.get(number) for number in reader.first_tokens.tolist()]
    given = [token for token in tokens if token is not None and is_given(token.log_prob)]
    for token in given:
        check_number(token, 0)
    if len(given) < len(tokens):
        return None
    total = math.fsum(math.exp(min(token.log_prob, 0.0)) for token in given)
    if total > OVERFULL:
        raise overfull(total, 0)
    logs = np.array([min(token.log_prob, 0.0) for token in given])
    return reader.masses_at_first((logs, logs))


class _ListReading:
    """The bounds that are known after some steps."""

    def __init__(self, texts: Sequence[str], exact: bool) -> None:
        self.surfaces = surfaces_of(texts, exact=exact)
        self.low, self.high = np.zeros(len(texts)), np.zeros(len(texts))
        self._exact = exact
        self._spelled = [{text} if exact else set(spelled_cases(text.strip())) for text in texts]
        self._longer = [[b for b in self.surfaces if b != a and b.startswith(a)] for a in self.surfaces]
        self._said = b""
        self._weight = 1.0
        self._number = 0
        self._settled: dict[int, int] = {}
        """The steps at which options were listed that have one spelling only, so that no other one counts."""

    def take(self, best: _BestTokens, *, last: bool) -> bool:
        """Take in the list behind what was said so far; returns whether the next one can say more."""
        for n in self._whole(self._said):
            # An exact option has one spelling: listed before as one token, it is not this longer way to say it.
            if self._settled.get(n, self._number - 1) == self._number - 1:
                self._ends_here(n, best)
        whole = {spelled: self._open(self._whole(self._said + spelled)) for spelled in best.named}
        if self._exact:
            self._settled |= {n: self._number for numbers in whole.values() for n in numbers}
        # An exact option is one token, and no unlisted token has more than the last of the list. Words have several.
        width = min(best.rest, best.most) if self._exact else best.rest
        for n in self._open(self._longer_options(self._said)):
            self.high[n] += self._weight * width
        for spelled, (least, greatest) in best.named.items():
            # The next list shows where this part goes, so it is not counted here.
            read_on = best.chosen_probability if not last and spelled == best.chosen else 0.0
            self._take_token(self._said + spelled, whole[spelled], least, greatest, read_on)
        if best.chosen is None:
            return False
        self._said += best.chosen
        self._weight *= best.chosen_probability
        self._number += 1
        return bool(self._longer_options(self._said))  # so it is where an option ends from which others go on

    def _open(self, numbers: list[int]) -> list[int]:
        return [n for n in numbers if n not in self._settled]

    def _take_token(self, text: bytes, whole: Sequence[int], least: float, greatest: float, read_on: float) -> None:
        """Take in the mass of one token, of which as much as `read_on` is seen more closely in the next list."""
        for n in whole:
            # Whether the model stops here is seen in the next list alone: until then, the mass is possible, but not
            # certain.
            if self._longer[n]:
                self.high[n] += self._weight * (greatest - read_on)
            else:
                self.low[n] += self._weight * least * (not self._said or self._is_usual(n, text))
                self.high[n] += self._weight * greatest
        for n in self._open(self._longer_options(text)):
            self.high[n] += self._weight * (greatest - read_on)

    def _is_usual(self, n: int, text: bytes) -> bool:
        """Whether an option is spelled as models do. One token may spell it in any case, several only so for sure."""
        return _decoded(text).lstrip() in self._spelled[n]

    def _ends_here(self, n: int, best: _BestTokens) -> None:
        """An option was said from which others go on: it counts as far as the model stops there."""
        rests = [other[len(self.surfaces[n]) :] for other in self._longer[n]]
        least_on = most_on = 0.0
        for spelled, (least, greatest) in best.named.items():
            text = _decoded(spelled) if self._exact else _decoded(spelled).lower()
            if text and any(r.startswith(text) or text.startswith(r) for r in rests):
                least_on, most_on = least_on + least, most_on + greatest
        self.low[n] += self._weight * max(0.0, 1.0 - most_on - best.rest) * self._is_usual(n, self._said)
        self.high[n] += self._weight * max(0.0, 1.0 - least_on)

    def _whole(self, text: bytes) -> list[int]:
        """The options that a text is."""
        said = self._surface(text) if self._exact else self._surface(text).rstrip()
        # Half a character at the end may become anything.
        if not said or _decoded(text).encode() != text:
            return []
        return [n for n, surface in enumerate(self.surfaces) if surface == said]

    def _longer_options(self, text: bytes) -> list[int]:
        """The options that a text begins, and is not yet."""
        said = self._surface(text)
        return [n for n, surface in enumerate(self.surfaces) if surface != said and surface.startswith(said)]

    def _surface(self, text: bytes) -> str:
        said = _decoded(text)
        return said if self._exact else said.lstrip().lower()


def _decoded(text: bytes) -> str:
    """A text as far as it is whole characters."""
    return text.decode("utf-8", "ignore")


def _best_tokens(step: TopStep, number: int, exact: bool) -> _BestTokens:
    every = list(step.top)
    if not any(_is_same(step.chosen, token) for token in every):
        every.append(step.chosen)
    for token in every:
        check_number(token, number)
    unknown = [_spelled(token) for token in step.top if not is_given(token.log_prob)]
    every = [token for token in every if is_given(token.log_prob)]
    spelled = [(_spelled(token), math.exp(min(token.log_prob, 0.0))) for token in every]
    total = sum(p for _, p in spelled)
    if total > OVERFULL:
        raise overfull(total, number)
    named: dict[bytes, tuple[float, float]] = {}
    for name, p in spelled:
        if name:
            least, greatest = named.get(name, (0.0, 0.0))
            # An exact option is one of the tokens spelled so, and the list does not say which; words are all of them.
            named[name] = (max(least, p) if exact else least + p, greatest + p)
    # A token that was drawn and is listed for that alone says nothing of those that are not.
    others = [p for (_, p), token in zip(spelled, every, strict=True) if not _is_same(step.chosen, token)]
    unnamed = [p for name, p in spelled if name is None]
    rest = max(0.0, 1.0 - total + sum(unnamed))
    for name in filter(None, unknown):  # listed without a number: it may have whatever the others leave
        least, greatest = named.get(name, (0.0, 0.0))
        named[name] = (least, greatest + rest)
    most = max([min(others, default=1.0), *unnamed, *(rest for name in unknown if name is None)])
    own = math.exp(min(step.chosen.log_prob, 0.0)) if is_given(step.chosen.log_prob) else 0.0
    return _BestTokens(named, (own and _spelled(step.chosen)) or None, own, rest, most)


def _spelled(token: TopToken) -> bytes | None:
    """The bytes that a token adds to the text; none for one that ends it, None where the server does not say."""
    # Control tokens come with an empty text: they end an answer, and spell nothing.
    if token.bytes is None and token.text is not None:
        return spelling((None, token.text.translate(BLANKS), None)) if token.text else b""
    return token.bytes


def _is_same(chosen: TopToken, entry: TopToken) -> bool:
    if chosen.id is not None and entry.id is not None:
        return chosen.id == entry.id
    # Engines round the two numbers apart (float32, or a few decimals in JSON).
    return chosen[2:] == entry[2:] and math.isclose(chosen.log_prob, entry.log_prob, rel_tol=1e-5, abs_tol=1e-6)


def tokens_to_read(texts: Sequence[str], most: int) -> int:
    """The number of tokens to ask a server for: enough to spell the longest option, and `most` at most."""
    # A token spells a character or more. Where a character takes several tokens, the probability stays an interval.
    return min(most, max(map(len, texts)))
