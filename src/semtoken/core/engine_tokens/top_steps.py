"""One decoding step as an engine lists it: the token it chose and the most probable ones. Plain records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.errors import InvalidLogits
from semtoken.support.untrusted import as_number

NOT_GIVEN = -9999.0
"""Stands for a log-probability that the engine did not give; vLLM and SGLang write it themselves."""
ABOVE_ZERO = 1e-3
"""The most by which rounding may lift a log-probability above 0."""


WRITTEN_NUMBER = re.compile(r"-?(\d+(\.\d*)?(e[-+]?\d+)?|inf(inity)?|nan)", re.IGNORECASE)
"""A number as a text: the JSON of Protobuf writes "-Infinity" and "NaN" so, and some APIs all numbers."""


def is_given(log_prob: float) -> bool:
    """True if a log-probability says something: -9999 (engines' "very unlikely" or "not known") and -inf do not."""
    return log_prob > NOT_GIVEN + 1


STAND_INS = frozenset({-100.0, -999.0, -1000.0})
"""The numbers that some engines write for a chosen token whose log-probability they do not know or have clipped."""


def is_own(log_prob: float) -> bool:
    """True if the number of a chosen token says something: no sampler chooses what is as unlikely as a stand-in."""
    return is_given(log_prob) and log_prob not in STAND_INS


Name: TypeAlias = tuple[int | None, str | None, bytes | None]
"""The name that an engine gives a token: its id, text and bytes, as far as it gives them."""
SPELLED = itemgetter(2)
"""Gives the bytes of a name."""

NAMELESS: Name = (None, None, None)
"""A token of which its engine says nothing, so that it may be any."""


def is_unnamed(name: Name) -> bool:
    """Return True if the engine's text does not identify the token: it is empty, or a part of a character."""
    _, text, spelled = name
    return not spelled and (not text or REPLACEMENT in text)


def ends_inside(name: Name) -> bool:
    """Return True if a token may end inside a character, as far as its name shows; see `without_borrowed_names`."""
    _, text, spelled = name
    return not spelled and (not text or text.endswith(REPLACEMENT))


def is_borrowed(name: Name) -> bool:
    """Return True for a name that may be of a whole character, of which the token is the last piece.

    See `without_borrowed_names`.
    """
    token_id, text, _ = name
    return token_id is None and is_unnamed(name) and bool((text or "").strip(REPLACEMENT))


def spellings(names: Iterable[Name]) -> list[bytes | None]:
    """The bytes that each of some tokens spells; None where its engine does not give them."""
    return [
        spelled
        if spelled is not None
        # JSON can hold half of a surrogate pair, which plain UTF-8 refuses to encode.
        else (None if not text or REPLACEMENT in text else text.encode("utf-8", "surrogatepass"))
        for _, text, spelled in names
    ]


def spelling(name: Name) -> bytes | None:
    """The bytes that one token spells; None if its engine does not give them."""
    return spellings([name])[0]


def may_be_one(chosen: Name, entry: Name) -> bool | None:
    """True if an entry of a list is the chosen token; None where only the ids, which are not given, would show it."""
    if chosen[0] is not None and entry[0] is not None:
        return chosen[0] == entry[0]
    # All pieces of characters without bytes are called U+FFFD, whichever they are.
    if is_unnamed(chosen) and is_unnamed(entry):
        return None
    if chosen[2] is not None and entry[2] is not None:
        # Equal bytes do not make one token: some vocabularies have a byte token and another one for the same character.
        return None if chosen[2] == entry[2] else False
    return None if chosen[1] is not None and chosen[1] == entry[1] else False


def is_same_number(one: float, other: float) -> bool:
    """Return True if two log-probabilities are one, to the digits that the shorter one is written with."""
    if abs(one - other) < ABOVE_ZERO:
        return True
    # With one decimal, different tokens often have one number.
    decimals = min(len(repr(number).partition(".")[2]) for number in (one, other))
    return decimals > 1 and abs(one - other) <= 10.0**-decimals


class TopToken(NamedTuple):
    """One token of a step, named as its engine named it: by id, by bytes, by text, or by several of them."""

    log_prob: float
    """Natural log of its next-token probability, <= 0; `NOT_GIVEN` where the engine does not give it."""
    id: int | None = None
    """The token's id in the model's vocabulary. It is None where the engine does not give it."""
    text: str | None = None
    """The token's text as the engine spells it. It is None where the engine does not give it."""
    bytes: bytes | None = None
    """The UTF-8 bytes that it spells; None where the engine does not give them."""

    @property
    def name(self) -> str:
        """The token as messages show it."""
        if self.text is not None:
            return repr(self.text)
        if self.id is not None:
            return f"id {self.id}"
        return "without a name" if self.bytes is None else repr(self.bytes)


class TopStep:
    """One decoding step: the token that was chosen, and the most probable ones as the engine listed them.

    The chosen token may be among these or not. Names and numbers stand in two columns, its own first. A step has twenty
    of them and more, and records are made of them only when they are asked for.
    """

    __slots__ = ("log_probs", "names")

    def __init__(self, chosen: TopToken, top: Sequence[TopToken]) -> None:
        self.names: tuple[Name, ...] = (chosen[1:], *(token[1:] for token in top))
        self.log_probs: tuple[float, ...] = (chosen.log_prob, *(token.log_prob for token in top))

    @classmethod
    def of_columns(cls, names: tuple[Name, ...], log_probs: tuple[float, ...]) -> TopStep:
        """A step from the names and the natural log-probabilities of its tokens, the chosen token's first."""
        step = cls.__new__(cls)
        step.names, step.log_probs = names, log_probs
        return step

    @property
    def chosen(self) -> TopToken:
        """The token that was chosen."""
        return TopToken(self.log_probs[0], *self.names[0])

    @property
    def top(self) -> tuple[TopToken, ...]:
        """The most probable tokens, as the engine listed them."""
        return tuple(TopToken(value, *name) for value, name in zip(self.log_probs[1:], self.names[1:], strict=True))

    def renamed(self, names: Iterable[Name]) -> TopStep:
        """A copy of the step with other names for its tokens."""
        return TopStep.of_columns(tuple(names), self.log_probs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopStep):
            return NotImplemented
        return self.log_probs == other.log_probs and self.names == other.names

    def __hash__(self) -> int:
        return hash((self.names, self.log_probs))

    def __repr__(self) -> str:
        return f"TopStep(chosen={self.chosen}, top={self.top})"


class Entry(NamedTuple):
    """A token of a step, held against the chosen one."""

    name: Name
    log_prob: float
    probability: float
    tells: bool
    """True if its number says something; minus infinity does."""
    may_be_own: bool
    """True if its number says something where it is that of the chosen token (`is_own`)."""
    is_chosen: bool | None
    """True if it is the chosen token; None where only the ids, which are not given, would show it."""
    close: bool
    """True if it has the chosen token's number, to the digits that the shorter one is written with."""
    named_alike: bool
    """True if its name, or a number that is close, says that it may be the chosen token."""


def entries_of(step: TopStep, shift: float = 0.0) -> list[Entry]:
    """The chosen token of a step, and the entries of its list.

    `shift` is added to log-probabilities, since some of the probability belongs to no token.
    """
    chosen, own = step.names[0], step.log_probs[0]
    entries = []
    for name, log_prob in zip(step.names, step.log_probs, strict=True):
        is_chosen, close = may_be_one(chosen, name), is_same_number(log_prob, own)
        named_alike = is_chosen is not False and (close or not is_unnamed(name))
        tells, probability = is_given(log_prob) or log_prob == -math.inf, math.exp(min(log_prob + shift, 0.0))
        entries.append(Entry(name, log_prob, probability, tells, is_own(log_prob), is_chosen, close, named_alike))
    return entries


class StepList(NamedTuple):
    """The steps of one list of log-probabilities, and the reason if they cannot be scored."""

    steps: tuple[TopStep, ...] = ()
    missing: tuple[int, ...] = ()
    """Positions of the steps without a log-probability."""
    fault: str | None = None
    """The reason why there are no steps although the engine sent some."""

    @property
    def problem(self) -> str | None:
        """The reason why the steps cannot be scored; None if they can."""
        if self.fault or not self.missing:
            return self.fault
        return (
            f"{len(self.missing)} of {len(self.steps)} steps have no log-probability, the first of them step "
            f"{self.missing[0]}: the engine left them out."
        )

    @staticmethod
    def chained(parts: Sequence[StepList]) -> StepList:
        """The steps of several lists, one after the other."""
        if len(parts) == 1:
            return parts[0]
        steps: list[TopStep] = []
        missing: list[int] = []
        for part in parts:
            missing += [len(steps) + i for i in part.missing]
            steps += part.steps
        return StepList(tuple(steps), tuple(missing), next((part.fault for part in parts if part.fault), None))


def as_log_prob(value: Any, where: str) -> float:
    """Return a value that must be a natural log of a probability, which may be minus infinity.

    Above 0 by no more than rounding (`ABOVE_ZERO`) it becomes 0; `InvalidLogits` if it is NaN or above that,
    `InvalidInputError` if it is no number.
    """
    if isinstance(value, float) and math.isnan(value):
        raise InvalidLogits(f"{where} must be a log-probability, at most 0. Got nan instead.")
    number = as_number(value, where)
    if number > ABOVE_ZERO:
        raise InvalidLogits(
            f"{where} must be a log-probability, at most 0. Got {number:.6g} instead: the engine gives logits or "
            "probabilities; start it with its default kind of log-probabilities."
        )
    return min(number, 0.0)


def log_prob_or_none(value: Any, where: str) -> float | None:
    """Return a log-probability as `as_log_prob` does; None for null, NaN and infinity, where it is missing."""
    if isinstance(value, str) and WRITTEN_NUMBER.fullmatch(value):
        value = float(value)
    if value is None or (isinstance(value, float) and (math.isnan(value) or value == math.inf)):
        return None
    return as_log_prob(value, where)
