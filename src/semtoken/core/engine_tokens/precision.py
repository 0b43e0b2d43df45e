"""The precision with which an engine writes log-probabilities, and the error that each may have as a result."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from semtoken.core.engine_tokens.top_steps import NOT_GIVEN
from semtoken.support.arrays import FloatArray

ROUNDING = 1e-5
"""The error that any log-probability may have: engines compute in float32."""
ALL_DECIMALS, ALL_DIGITS = 7, 8
"""From this many decimals or digits on, a number is written in full."""
BFLOAT16, FLOAT16 = 2.0**-7, 2.0**-10
MANY_NUMBERS = 10  # fewer numbers of one digit each were written by hand rather than rounded,
FEW_DECIMALS = 2  # unless there are more decimals than this: -0.0001 was rounded
CLOSE = 2e-7  # relative error of a number that was computed in float32
PRINTED = 5e-9  # the same of a float32 that is printed with nine digits
FEW = 3  # numbers that are looked at one by one; mostly the first decides
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
    """The error that any log-probability may have, whatever its size."""
    digits: int | None = None
    """The number of significant digits that log-probabilities are rounded to: each may be off by a unit of the last
    one. None if they are not."""
    relative: float = 0.0
    """The error that a log-probability may have as a share of itself, where they are in half precision; else 0."""

    @cached_property
    def even(self) -> bool:
        """True if the error does not depend on the size of the number."""
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
    """The precision of an engine's log-probabilities, judged by those of an answer that have come so far.

    Numbers may be rounded, or cut off, to decimals, to significant digits, to bfloat16 or to float16. As long as all of
    them fit, that may have happened. A single number in full precision fits in one of some thousand cases: its
    interval is then wider than it need be.
    """

    def __init__(self) -> None:
        self._numbers = 0
        """The count of those looked at: all, or as many as it took to see that they are written in full."""
        self._decimals = 0
        self._digits = 0
        self._largest = 0.0
        self._halves = {BFLOAT16: True, FLOAT16: True}
        """Formats by their relative error: whether all numbers fit."""
        self._in_full = False
        self._waiting: list[float] = []
        """Numbers that came and have not been looked at."""

    def add(self, log_probs: Sequence[float]) -> None:
        """Take the log-probabilities of further steps into account."""
        if not self._in_full:
            self._waiting += log_probs

    @property
    def in_full(self) -> bool:
        """True if some number is known to be written in full, which no later one changes."""
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
        if self._digits <= 1 and self._decimals <= FEW_DECIMALS and self._numbers < MANY_NUMBERS:
            return Rounding(relative=relative)
        unit = 10.0**-self._decimals if self._decimals < ALL_DECIMALS else 0.0
        largest_unit = unit_of(self._largest, self._digits) if self._digits < ALL_DIGITS else 0.0
        # Decimals alone explain the numbers, unless the largest is rounded more coarsely than that by its digits.
        digits = self._digits if largest_unit > unit * EDGE else None
        return Rounding(ROUNDING + unit, digits, relative)


def is_in_full(number: float) -> bool:
    """True if one number alone shows that numbers are written in full: it is no multiple of a decimal or a digit, and
    of no half precision. The answer is that of `written` and `fits_half` for arrays, in a tenth of the time; false for
    a number that may be a stand-in, or too small for float16.
    """
    size = -number
    if not SMALLEST_HALF < size < -LEAST_GIVEN:
        return False
    close = CLOSE * size if abs(number - _SINGLE.unpack(_SINGLE.pack(number))[0]) <= PRINTED * size else 0.0
    first = math.floor(math.log10(size * EDGE))
    # Units of 0 to 6 decimals, and of 1 to 7 significant digits.
    for exponent in range(min(1 - ALL_DECIMALS, first + 2 - ALL_DIGITS), max(first, 0) + 1):
        unit = 10.0**exponent
        error = abs(number - round(number / unit) * unit)
        if error <= 1e-6 * unit or error <= close <= unit / 4:
            return False
    half: float = _HALF.unpack(_HALF.pack(number))[0]
    return abs(number - half) > CLOSE * size  # then it is no bfloat16 either


def written(log_probs: npt.ArrayLike) -> tuple[int, int]:
    """The number of decimals, and that of significant digits, with which all these numbers can be written.

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
    """For each number, True if it is a multiple of its unit, as exactly as it can be if it went through float32."""
    error, close = np.abs(numbers - np.round(numbers / units) * units), CLOSE * np.abs(numbers)
    # Printed from float32, 0.1 is 0.10000000149: no multiple of a tenth in double precision, and one all the same.
    single = np.abs(numbers - numbers.astype(np.float32)) <= PRINTED * np.abs(numbers)
    # where float32 is as coarse as the unit, it proves nothing
    return np.asarray((error <= 1e-6 * units) | ((error <= close) & (close <= units / 4) & single))


def fits_half(log_probs: npt.ArrayLike, relative: float) -> bool:
    """True if all numbers can be of `BFLOAT16` or `FLOAT16` (`relative`), up to the digits float32 is printed with."""
    values = np.array(log_probs, dtype=np.float64)
    if relative == FLOAT16:
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16).astype(np.float64)
    else:  # the upper half of the bits of a float32
        bits = values.astype(np.float32).view(np.uint32)
        halves = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    return bool((np.abs(values - halves) <= CLOSE * np.abs(values)).all())
