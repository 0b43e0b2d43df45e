"""Texts in UTF-8 and UTF-16, with a byte order mark or without; YAML of others, of a bounded size."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.support.extras import require
from semtoken.support.files.safe_files import read_file

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_utf8(data: bytes) -> bool:
    """Return True if bytes are UTF-8 without a byte order mark."""
    if data.startswith((codecs.BOM_UTF8, *_UTF16)) or b"\0" in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def encoding_of(beginning: bytes) -> str:
    """The encoding of a text by its first bytes: that of its byte order mark, else UTF-16 or UTF-8.

    >>> encoding_of(b"id"), encoding_of("id".encode("utf-16-le")), encoding_of("id".encode("utf-16"))
    ('utf-8-sig', 'utf-16-le', 'utf-16')
    """
    if beginning.startswith(_UTF16) and len(beginning) > len(codecs.BOM_UTF16):
        return "utf-16"
    if b"\0" in beginning[:2]:  # ASCII characters have a zero beside them
        return "utf-16-be" if beginning[0] == 0 else "utf-16-le"
    return "utf-8-sig"


def decoded(data: bytes) -> str:
    """The text of a file; `ValueError` if it is neither UTF-8 nor UTF-16, with the place: "not UTF-8 at byte 7"."""
    encoding = encoding_of(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        name = "UTF-8" if encoding == "utf-8-sig" else "UTF-8 nor UTF-16"
        raise ValueError(f"not {name} at byte {error.start}, and so no text") from error


MOST_VALUES = 1_000_000
"""Most values in a YAML file, with each one counted as often as the file names it."""


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; `InvalidInputError` if it cannot be read, is no YAML or has over `MOST_VALUES`
    values.
    """
    yaml = require("yaml", extra="bench")
    text = read_file(path)
    try:
        content = yaml.safe_load(text)
        if _values(content, {}) > MOST_VALUES:
            raise InvalidInputError(f"{path} holds more than {MOST_VALUES:,} values.")
    except InvalidInputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = " ".join(str(error).replace('in "<byte string>", ', "at ").split())
        raise InvalidInputError(f"{path} is not YAML: {said[:300]}.") from error
    return content


def _values(content: Any, known: dict[int, float]) -> float:
    """Count the values, infinitely many where one holds itself; `known` are those counted before."""
    if not isinstance(content, dict | list):
        return 1
    if id(content) not in known:
        # Until it is counted: an alias in it that leads back to it makes it endless.
        known[id(content)] = float("inf")
        inside = [*content, *content.values()] if isinstance(content, dict) else content
        known[id(content)] = 1 + sum(_values(member, known) for member in inside)
    return known[id(content)]
