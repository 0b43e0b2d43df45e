"""Replies as they come, JSON or the objects of a client, as plain dicts and lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from semtoken.errors import InvalidInput

try:
    import msgspec  # several times as fast as Python's own, and optional
except ImportError:
    msgspec = None  # type: ignore[assignment]


def plain(reply: Any) -> Any:
    """A client's object as plain values; everything else as it is."""
    if type(reply) in (dict, list, str, bytes):
        return reply
    dump = getattr(reply, "model_dump", None)
    if dump is None or isinstance(reply, Mapping | type):
        return reply
    try:
        return dump(warnings=False)
    except Exception as error:  # whatever a foreign class raises
        raise InvalidInput(f"A {type(reply).__name__} cannot be turned into plain values: {error}") from error


def loaded(text: str | bytes) -> Any:
    """What `json.loads` makes of JSON, at a fraction of the time where msgspec is installed.

    Raises
    ------
    ValueError, RecursionError
        As `json.loads`.
    """
    if msgspec is not None:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError):
            pass  # Python's own takes more: NaN and infinity, halves of characters
    return json.loads(text)


def parsed(text: str | bytes) -> Any:
    """JSON text as values.

    Raises
    ------
    InvalidInput
        It is not JSON.
    """
    try:
        return loaded(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"The reply is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except RecursionError:
        raise InvalidInput("The reply is no usable JSON: it is nested too deeply.") from None
    except ValueError as error:  # bytes that are no UTF-8, numbers of thousands of digits
        raise InvalidInput(f"The reply is not JSON: {error}.") from error
