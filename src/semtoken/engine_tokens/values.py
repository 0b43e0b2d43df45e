"""Untrusted values: each is what it must be, or an error says where it is not."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

from semtoken.engine_tokens.top_steps import ABOVE_ZERO
from semtoken.errors import InvalidInput, InvalidLogits

T = TypeVar("T")


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """The value, which must be a JSON object."""
    if type(value) is dict or isinstance(value, Mapping):  # asking for the exact type is much faster
        return value
    raise _not("an object", value, where)


def as_list(value: Any, where: str) -> Sequence[Any]:
    """The value, which must be a JSON array."""
    if isinstance(value, list | tuple):
        return value
    raise _not("a list", value, where)


def as_text(value: Any, where: str) -> str:
    """The value, which must be a JSON string."""
    if isinstance(value, str):
        return value
    raise _not("text", value, where)


def as_id(value: Any, where: str) -> int:
    """A token id or an index: an integer from 0."""
    if isinstance(value, int | SupportsIndex) and not isinstance(value, bool) and operator.index(value) >= 0:
        return operator.index(value)
    raise _not("an integer from 0", value, where)


def as_bytes(value: Any, where: str) -> bytes:
    """A JSON array of numbers from 0 to 255, or bytes."""
    if isinstance(value, bytes):
        return value
    try:
        return bytes(as_list(value, where))
    except (TypeError, ValueError):
        raise _not("a list of numbers from 0 to 255", value, where) from None


def as_log_prob(value: Any, where: str) -> float:
    """A natural log of a probability; minus infinity is one."""
    if isinstance(value, float) and math.isnan(value):
        raise InvalidLogits(f"{where} must be a log-probability, at most 0. Got nan instead.")
    number = as_number(value, where)
    if number > ABOVE_ZERO:
        raise InvalidLogits(
            f"{where} must be a log-probability, at most 0. Got {number:.6g} instead: the engine gives logits or "
            "probabilities; start it with its default kind of log-probabilities."
        )
    return min(number, 0.0)


def as_number(value: Any, where: str) -> float:
    """A JSON number; NaN is none."""
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
    """None as it is, anything else through `read`."""
    return None if value is None else read(value, where)


def text_or_empty(value: Any, where: str) -> str:
    """A JSON string; "" for null."""
    return "" if value is None else as_text(value, where)


def _not(wanted: str, value: Any, where: str) -> InvalidInput:
    shown = repr(value) if isinstance(value, int | float | str | None) else type(value).__name__
    return InvalidInput(f"{where} must be {wanted}. Got {shown[:80]} instead.")
