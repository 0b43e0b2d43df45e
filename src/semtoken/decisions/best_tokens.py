"""The probabilities of options by the lists of best tokens that a server gives with its answer.

Tokens are known there by their spelling alone, so an option's mass is an interval. What the lists name counts on both
ends, what they leave out and what the model might have gone on to say counts at the upper end only. Each list is read,
and behind the token that the server chose the next one, since it shows how options go on that begin alike.

>>> from semtoken.core.engine_tokens import TopStep, TopToken
>>> yes, no = TopToken(math.log(0.7), text="Yes"), TopToken(math.log(0.2), text=" no")
>>> low, high = masses_from_top_tokens(["Yes", "No"], [TopStep(yes, [yes, no])], exact=False)
>>> low.round(3).tolist(), high.round(3).tolist()
([0.7, 0.2], [0.8, 0.3])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.checked_list import OVERFULL, check_number, overfull
from semtoken.core.engine_tokens.top_steps import is_given, spelling
from semtoken.decisions.spellings import OptionReader, spelled_cases, surfaces_of
from semtoken.support.arrays import FloatArray

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
        """True if an option is spelled as models do. One token may spell it in any case, several only so for sure."""
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
