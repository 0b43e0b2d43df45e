"""One decoding step as an engine lists it: the token it chose and the most probable ones. Plain records.

The functions at the end read untrusted values: each is what it must be, or an error says where it is not.

How exactly an engine writes its log-probabilities, and by how much each of them may be off for it.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.errors import InvalidInputError, InvalidLogits
from semtoken.support.arrays import FloatArray

NOT_GIVEN = -9999.0
"""Stands for a log-probability that the engine did not give; vLLM and SGLang write it themselves."""
ABOVE_ZERO = 1e-3
"""How far above 0 rounding may lift a log-probability."""


def is_given(log_prob: float) -> bool:
    """Whether a log-probability says something: -9999 (engines' "very unlikely" or "not known") and -inf do not."""
    return log_prob > NOT_GIVEN + 1


STAND_INS = frozenset({-100.0, -999.0, -1000.0})
"""What some engines write for a chosen token whose log-probability they do not know or have clipped."""


def is_own(log_prob: float) -> bool:
    """Whether the number of a chosen token says something: no sampler chooses what is as unlikely as a stand-in."""
    return is_given(log_prob) and log_prob not in STAND_INS


Name: TypeAlias = tuple[int | None, str | None, bytes | None]
"""What an engine calls a token: its id, text and bytes, as far as it gives them."""


def is_unnamed(name: Name) -> bool:
    """Whether the engine's text does not identify the token, since it is a part of a character."""
    _, text, spelled = name
    return not spelled and (text is None or REPLACEMENT in text)


def spelling(name: Name) -> bytes | None:
    """The bytes that a token spells; None if its engine does not give them."""
    _, text, spelled = name
    if spelled is not None:
        return spelled
    return None if not text or REPLACEMENT in text else text.encode("utf-8", "surrogatepass")


def may_be_one(chosen: Name, entry: Name) -> bool | None:
    """Whether an entry of a list is the chosen token; None where only the ids, which are not given, would tell."""
    if chosen[0] is not None and entry[0] is not None:
        return chosen[0] == entry[0]
    if is_unnamed(chosen) and is_unnamed(entry):
        return None
    if chosen[2] is not None and entry[2] is not None:
        return None if chosen[2] == entry[2] else False
    return None if chosen[1] is not None and chosen[1] == entry[1] else False


def is_same_number(one: float, other: float) -> bool:
    """Whether two log-probabilities are one, to the digits that the shorter one is written with."""
    if abs(one - other) < ABOVE_ZERO:
        return True
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
        return f"id {self.id}" if self.id is not None else repr(self.bytes)


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
        """A step of columns, the chosen token's entries first."""
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
    """Whether its number says something; minus infinity does."""
    is_chosen: bool | None
    """Whether it is the chosen token; None where only the ids, which are not given, would tell."""
    close: bool
    """Whether it has the chosen token's number, to the digits that the shorter one is written with."""
    named_alike: bool
    """Whether its name, or a number that is close, says that it may be the chosen token."""


def entries_of(step: TopStep, shift: float = 0.0) -> list[Entry]:
    """The chosen token of a step, and the entries of its list.

    `shift` is what log-probabilities gain, since some of the probability is of no token.
    """
    chosen, own = step.names[0], step.log_probs[0]
    entries = []
    for name, log_prob in zip(step.names, step.log_probs, strict=True):
        is_chosen, close = may_be_one(chosen, name), is_same_number(log_prob, own)
        named_alike = is_chosen is not False and (close or not is_unnamed(name))
        tells, probability = is_given(log_prob) or log_prob == -math.inf, math.exp(min(log_prob + shift, 0.0))
        entries.append(Entry(name, log_prob, probability, tells, is_chosen, close, named_alike))
    return entries


class StepList(NamedTuple):
    """The steps of one list of log-probabilities, and the reason if they cannot be scored."""

    steps: tuple[TopStep, ...] = ()
    missing: tuple[int, ...] = ()
    """Positions of the steps without a log-probability."""
    fault: str | None = None
    """Why there are no steps although the engine sent some."""

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
        steps: list[TopStep] = []
        missing: list[int] = []
        for part in parts:
            missing += [len(steps) + i for i in part.missing]
            steps += part.steps
        return StepList(tuple(steps), tuple(missing), next((part.fault for part in parts if part.fault), None))


T = TypeVar("T")


def is_object(value: Any) -> bool:
    """Whether a value is a JSON object."""
    return type(value) is dict or isinstance(value, Mapping)  # asking for the exact type is much faster


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """Return a value that must be a JSON object; raise `InvalidInputError` if it is none."""
    if is_object(value):
        return value  # type: ignore[no-any-return]
    raise _not("an object", value, where)


def as_list(value: Any, where: str) -> Sequence[Any]:
    """Return a value that must be a JSON array; raise `InvalidInputError` if it is none."""
    if isinstance(value, list | tuple):
        return value
    raise _not("a list", value, where)


def as_text(value: Any, where: str) -> str:
    """Return a value that must be a JSON string; raise `InvalidInputError` if it is none."""
    if isinstance(value, str):
        return value
    raise _not("text", value, where)


def as_id(value: Any, where: str) -> int:
    """Return a value that must be a token id or an index, a whole number of at least 0; raise `InvalidInputError` if
    not.
    """
    if isinstance(value, int | SupportsIndex) and not isinstance(value, bool) and operator.index(value) >= 0:
        return operator.index(value)
    raise _not("an integer from 0", value, where)


def as_bytes(value: Any, where: str) -> bytes:
    """Convert bytes, or a JSON array of numbers from 0 to 255, to bytes; raise `InvalidInputError` for anything
    else.
    """
    if isinstance(value, bytes):
        return value
    try:
        return bytes(as_list(value, where))
    except (TypeError, ValueError):
        raise _not("a list of numbers from 0 to 255", value, where) from None


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
    if value is None or (isinstance(value, float) and (math.isnan(value) or value == math.inf)):
        return None
    return as_log_prob(value, where)


def as_number(value: Any, where: str) -> float:
    """Return a value that must be a JSON number other than NaN; raise `InvalidInputError` if it is none."""
    if type(value) is float and value == value:
        return value
    if isinstance(value, float | int | SupportsFloat) and not isinstance(value, bool):
        try:
            number = float(value)
        except (OverflowError, TypeError):
            raise _not("a number", value, where) from None
        if not math.isnan(number):
            return number
    raise _not("a number", value, where)


def optional(read: Callable[[Any, str], T], value: Any, where: str) -> T | None:
    """Apply a reader to a value, unless that is None."""
    return None if value is None else read(value, where)


def text_or_empty(value: Any, where: str) -> str:
    """Return a value that must be a JSON string or null; null becomes ""."""
    return "" if value is None else as_text(value, where)


def _not(wanted: str, value: Any, where: str) -> InvalidInputError:
    shown = repr(value) if isinstance(value, int | float | str | None) else type(value).__name__
    return InvalidInputError(f"{where} must be {wanted}. Got {shown[:80]} instead.")


ROUNDING = 1e-5
"""How far any log-probability may be off: engines compute in float32."""
ALL_DECIMALS, ALL_DIGITS = 7, 8
"""From this many decimals or digits on, a number is written in full."""
BFLOAT16, FLOAT16 = 2.0**-7, 2.0**-10
MANY_NUMBERS = 10  # fewer numbers of one digit each were written by hand rather than rounded
CLOSE = 2e-7  # relative error of a number that was computed in float32
PRINTED = 5e-9  # the same of a float32 that is printed with nine digits
FEW = 3  # numbers that are looked at one by one; mostly the first tells
LEAST_GIVEN = NOT_GIVEN + 1
DECIMALS = np.power(10.0, -np.arange(ALL_DECIMALS, dtype=np.float64))[:, None]
"""The value of each decimal."""
_SINGLE, _HALF = struct.Struct("f"), struct.Struct("e")
SMALLEST_HALF = 2.0**-14  # below it float16 has fewer digits
EDGE = 1.0 + 1e-9  # a number at the edge of a decade counts to the next one


@dataclass(frozen=True)
class Rounding:
    """The largest error that rounding can have caused in a log-probability: the sum of three parts."""

    off: float = ROUNDING
    """How far any log-probability may be off, whatever its size."""
    digits: int | None = None
    """The number of significant digits that log-probabilities are rounded to: each may be off by a unit of the last
    one. None if they are not."""
    relative: float = 0.0
    """By what share of itself a log-probability may be off, where they are in half precision; else 0."""

    @property
    def even(self) -> bool:
        """Whether the error does not depend on the size of the number."""
        return self.digits is None and not self.relative

    def beyond(self, log_probs: FloatArray) -> FloatArray:
        """The possible error of each log-probability in addition to `off`, [n], at least 0; 0 for minus infinity."""
        sizes = np.where(np.isfinite(log_probs), np.abs(log_probs), 0.0)
        more = self.relative * sizes
        if self.digits is not None:
            with np.errstate(divide="ignore"):
                more += np.where(sizes > 0, 10.0 ** (np.floor(np.log10(sizes * EDGE)) + 1 - self.digits), 0.0)
        return np.asarray(more)


IN_FULL = Rounding()
"""Precision of numbers that are written in full."""


class Precision:
    """How exactly the engine writes log-probabilities, judged by those of an answer that have come so far.

    Numbers may be rounded, or cut off, to decimals, to significant digits, to bfloat16 or to float16. As long as all of
    them fit, that may have happened. A single number in full precision fits in one of some thousand cases: its
    interval is then wider than it need be.
    """

    def __init__(self) -> None:
        self._numbers = 0
        """How many have been looked at: all, or as many as it took to see that they are written in full."""
        self._decimals = 0
        self._digits = 0
        self._largest = 0.0
        self._halves = {BFLOAT16: True, FLOAT16: True}
        """Formats by their relative error: whether all numbers fit."""
        self._in_full = False
        self._waiting: list[float] = []
        """Numbers that came and have not been looked at."""

    def add(self, log_probs: Sequence[float]) -> None:
        """Take the log-probabilities of one more step into account."""
        if not self._in_full:
            self._waiting += log_probs

    @property
    def in_full(self) -> bool:
        """Whether some number is known to be written in full, which no later one changes."""
        if self._waiting and not self._in_full:
            waiting, self._waiting = self._waiting, []
            self._in_full = any(map(is_in_full, waiting[:FEW]))
            if not self._in_full:
                self._look_at(np.array(waiting, dtype=np.float64))
        return self._in_full

    def _look_at(self, numbers: FloatArray) -> None:
        numbers = numbers[(numbers < 0) & (numbers > LEAST_GIVEN)]
        if not len(numbers):
            return
        self._numbers += len(numbers)
        self._largest = max(self._largest, -float(numbers.min()))
        decimals, digits = written(numbers)
        self._decimals, self._digits = max(self._decimals, decimals), max(self._digits, digits)
        for half, fits in self._halves.items():
            self._halves[half] = fits and fits_half(numbers, half)
        written_short = self._decimals < ALL_DECIMALS or self._digits < ALL_DIGITS
        self._in_full = not written_short and not any(self._halves.values())

    @property
    def rounding(self) -> Rounding:
        """The possible errors of the numbers: whole units of the last digit, since they may have been cut off."""
        if self.in_full or not self._numbers:
            return IN_FULL
        relative = max((half for half, fits in self._halves.items() if fits), default=0.0)
        if self._digits <= 1 and self._numbers < MANY_NUMBERS:
            return Rounding(relative=relative)
        unit = 10.0**-self._decimals if self._decimals < ALL_DECIMALS else 0.0
        largest_unit = unit_of(self._largest, self._digits) if self._digits < ALL_DIGITS else 0.0
        digits = self._digits if largest_unit > unit * EDGE else None
        return Rounding(ROUNDING + unit, digits, relative)


def is_in_full(number: float) -> bool:
    """Whether one number alone shows that numbers are written in full: it is no multiple of a decimal or a digit, and
    of no half precision. What `written` and `fits_half` say of an array, in a tenth of the time; false for a number
    that may be a stand-in, or too small for float16.
    """
    size = -number
    if not SMALLEST_HALF < size < -LEAST_GIVEN:
        return False
    close = CLOSE * size if abs(number - _SINGLE.unpack(_SINGLE.pack(number))[0]) <= PRINTED * size else 0.0
    first = math.floor(math.log10(size * EDGE))
    for exponent in (*range(1 - ALL_DECIMALS, 1), *range(first + 2 - ALL_DIGITS, first + 1)):
        unit = 10.0**exponent
        error = abs(number - round(number / unit) * unit)
        if error <= 1e-6 * unit or error <= close <= unit / 4:
            return False
    half: float = _HALF.unpack(_HALF.pack(number))[0]
    return abs(number - half) > CLOSE * size  # then it is no bfloat16 either


def written(log_probs: npt.ArrayLike) -> tuple[int, int]:
    """How many decimals, and how many significant digits, all these numbers can be written with.

    `ALL_DECIMALS` for more than six decimals, `ALL_DIGITS` for more than seven digits; 0 of both for no numbers.
    """
    numbers = np.asarray(log_probs, dtype=np.float64)
    if not len(numbers):
        return 0, 0
    first = np.floor(np.log10(np.where(numbers == 0, 1.0, np.abs(numbers)) * EDGE))  # the decade of the first digit
    by_digits = 10.0 ** (first - np.arange(ALL_DIGITS - 1)[:, None])
    by_decimals = np.broadcast_to(DECIMALS, (len(DECIMALS), len(numbers)))
    fits = _are_multiples(numbers, np.concatenate([by_decimals, by_digits]))
    return _least(fits[: len(DECIMALS)], 0), _least(fits[len(DECIMALS) :], 1)


def _least(fits: npt.NDArray[np.bool_], first: int) -> int:
    """The first row by which every column was true once, counted from `first`; one past the last if none is."""
    places = np.where(fits.any(axis=0), fits.argmax(axis=0), len(fits))
    return first + int(places.max(initial=0))


def unit_of(size: float, digits: int) -> float:
    """The value of the last significant digit of a positive number that is written with this many digits."""
    return 10.0 ** (math.floor(math.log10(size * EDGE)) + 1 - digits)


def _are_multiples(numbers: FloatArray, units: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether each number is a multiple of its unit, as exactly as it can be if it went through float32."""
    error, close = np.abs(numbers - np.round(numbers / units) * units), CLOSE * np.abs(numbers)
    single = np.abs(numbers - numbers.astype(np.float32)) <= PRINTED * np.abs(numbers)
    # where float32 is as coarse as the unit, it tells nothing
    return np.asarray((error <= 1e-6 * units) | ((error <= close) & (close <= units / 4) & single))


def fits_half(log_probs: npt.ArrayLike, relative: float) -> bool:
    """Whether all numbers can be of `BFLOAT16` or `FLOAT16` (`relative`), up to the digits float32 is printed with."""
    values = np.array(log_probs, dtype=np.float64)
    if relative == FLOAT16:
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16).astype(np.float64)
    else:  # the upper half of the bits of a float32
        bits = values.astype(np.float32).view(np.uint32)
        halves = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    return bool((np.abs(values - halves) <= CLOSE * np.abs(values)).all())
