"""Replies as JSON text or as the objects of a client, turned into plain values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from semtoken.errors import InvalidInputError


def plain(reply: Any) -> Any:
    """Convert a client library's object to plain values, or raise `InvalidInputError`; other values stay unchanged."""
    # By far the most common, and asking a client's object for its attributes may do work.
    if type(reply) in (dict, list, str, bytes):
        return reply
    dump = getattr(reply, "model_dump", None)
    if dump is None or isinstance(reply, Mapping | type):
        return reply
    try:
        return dump(warnings=False)
    except Exception as error:  # whatever a foreign class raises
        raise InvalidInputError(f"A {type(reply).__name__} cannot be turned into plain values: {error}") from error


def load_json(text: str | bytes) -> Any:
    """Parse JSON with the same result as `json.loads` and the same errors, and several times as fast."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text)  # takes more: NaN and infinity, halves of characters


def json_or_none(text: str | bytes) -> Any:
    """The value of a JSON text; None where it is none, and for null."""
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return None


_PRINTED = re.compile(r"\s*(?:\[?\{\s*'|\w+\()")
PRINTED = " So Python prints values: save `reply.model_dump_json()` or `json.dumps(reply)` instead."
LINES = " If it holds a reply on each line, give one of them, or the file to `semtoken check`."


def parse_reply(text: str | bytes, what: str = "The reply") -> Any:
    """Parse JSON text, which messages call `what`; `InvalidInputError` if it is none."""
    try:
        return load_json(text)
    except json.JSONDecodeError as error:
        advice = PRINTED if _PRINTED.match(error.doc) else LINES if error.msg == "Extra data" else ""
        where = f"{error.msg} at line {error.lineno}, column {error.colno}."
        raise InvalidInputError(f"{what} is not JSON: {where}{advice}") from error
    except RecursionError:
        raise InvalidInputError(f"{what} is no usable JSON: it is nested too deeply.") from None
    except ValueError as error:  # bytes that are no UTF-8, numbers of thousands of digits
        raise InvalidInputError(f"{what} is not JSON: {error}.") from error
