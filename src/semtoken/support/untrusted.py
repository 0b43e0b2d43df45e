"""Reads untrusted values, such as those of a reply in JSON: each is what it must be, or an error says where it is not.

The functions raise `InvalidInputError` for a value of another kind; `where` is its place, for the message.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

from semtoken.errors import InvalidInputError

T = TypeVar("T")


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """Return a value that must be a JSON object; raise `InvalidInputError` if it is none."""
    if type(value) is dict or isinstance(value, Mapping):  # asking for the exact type is much faster
        return value
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
    # In Python `true` is the number 1, in JSON it is none.
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


def as_number(value: Any, where: str) -> float:
    """Return a value that must be a JSON number other than NaN; raise `InvalidInputError` if it is none."""
    # Nearly all numbers take this short way; NaN is not equal to itself.
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
