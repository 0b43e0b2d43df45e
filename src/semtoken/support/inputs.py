"""Options, texts and lists of users, converted or refused in one place; arrays are `semtoken.support.arrays`' business.

Functions take the value and the name of the argument, for the message, and raise `InvalidInputError`.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

from semtoken.errors import InvalidInputError

T = TypeVar("T")


def one_of(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Raise `InvalidInputError` for an option that is not allowed; the message lists those that are."""
    allowed = tuple(allowed)
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInputError(f"'{name}' must be one of {', '.join(map(repr, allowed))}, got {shown(value)}.")


def flag(value: Any, name: str) -> bool:
    """Return a value that must be True or False; 1 and 0 are rejected."""
    if not isinstance(value, bool):
        _refuse(name, "True or False", value)
    return bool(value)


def whole(value: Any, name: str, *, low: int | None = None, high: int | None = None) -> int:
    """Return a value that must be a whole number in [low, high]."""
    try:
        if isinstance(value, bool):
            raise TypeError
        # NumPy's whole numbers, too, but no float, whose fraction `int` would drop.
        number = operator.index(value)
    except Exception:
        _refuse(name, "a whole number", value)
    if (low is not None and number < low) or (high is not None and number > high):
        _refuse(name, f"a whole number {_range(low, high)}", value)
    return number


def real(value: Any, name: str, *, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a value that must be a finite real number in [low, high]."""
    # In Python True is 1, and `temperature=True` is a mistake.
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        _refuse(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        _refuse(name, "a finite number", value)
    if not math.isfinite(number) or not low <= number <= high:
        bounds = (None if math.isinf(low) else low, None if math.isinf(high) else high)
        _refuse(name, f"a finite number {_range(*bounds)}".rstrip(), value)
    return number


def text(value: Any, name: str) -> str:
    """Return a value that must be a text."""
    if not isinstance(value, str):
        _refuse(name, "a text", value)
    return str(value)


def place(value: Any, name: str) -> Path:
    """Return a value that must be the path of a file or a folder."""
    try:
        encoded = os.fsencode(value)
        if not encoded or b"\0" in encoded:
            raise ValueError
        return Path(value)
    except Exception:  # another object, nothing (which `Path` takes for the working directory), a NUL, half a character
        _refuse(name, "a path", value)


def split_address(url: str) -> SplitResult:
    """The parts of an address; `InvalidInputError` if it is none (`http://[bad/`) or its port is no number below
    65,536.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # asking checks it
        if " " in url or not url.isprintable():
            raise ValueError("it holds a space or a control character")
    except ValueError as error:
        raise InvalidInputError(f"{url!r:.200} is no address: {error}.") from error
    return parts


def shown_address(url: str) -> str:
    """An address as messages may show it: without user name, password, parameters and fragment.

    >>> shown_address("https://me:secret@api.example:8443/v1?key=secret")
    'https://api.example:8443/v1'
    """
    parts = split_address(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def listed(value: Any, name: str) -> list[Any]:
    """The items of a list, tuple, array or other sequence; texts and dicts are rejected."""
    if isinstance(value, str | bytes | bytearray | dict | set | frozenset):
        _refuse(name, "a list", value)
    try:
        return list(value)
    except Exception:
        _refuse(name, "a list", value)


def instance(value: Any, kind: type[T], name: str) -> T:
    """Return a value that must be an object of this class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__.startswith(tuple("AEIOU")) else "a"
        _refuse(name, f"{article} {kind.__name__}", value)
    return value


def shown(value: Any) -> str:
    """A value as text for an error message, shortened and always safe to print."""
    try:
        return f"{value!r:.60}"
    except Exception:
        return f"an object of {type(value).__name__}"


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f"of at most {high:g}"
    return f"of at least {low:g}" if high is None else f"from {low:g} to {high:g}"


def _refuse(name: str, wanted: str, value: Any) -> NoReturn:
    raise InvalidInputError(f"'{name}' must be {wanted}, got {shown(value)}.")


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs twice; None if none does."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
