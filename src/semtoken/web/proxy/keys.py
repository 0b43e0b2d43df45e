"""The keys of a request, made unreadable where the upstream repeats them in the message of an error."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qsl

KEY_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})
KEY_FIELDS = frozenset({"key", "api_key", "api-key"})
"""Fields of a query that hold a key, as Gemini's."""
SHORTEST = 8  # shorter ones, such as "none", stand for no key, and are words of many messages
SHOWN = 4
"""The last characters of a key, which stay readable, so that its owner knows which one it was."""


def keys_of(headers: Iterable[tuple[str, str]], query: str) -> list[bytes]:
    """The keys in the headers and the query of a request, longer ones first, a password in each of its forms."""
    keys = {value for name, value in parse_qsl(query) if name.lower() in KEY_FIELDS}
    for name, value in headers:
        if name.lower() in KEY_HEADERS:
            scheme, _, key = value.rpartition(" ")
            keys.add(key)
            if scheme.lower() == "basic":
                user_and_password = _decoded(key)
                keys |= {user_and_password, user_and_password.partition(":")[2]}
    return sorted((key.encode() for key in keys if len(key) >= SHORTEST), key=len, reverse=True)


def without_keys(message: bytes, keys: Sequence[bytes]) -> bytes:
    """A message of as many bytes in which of each key only the end can be read."""
    for key in keys:
        message = message.replace(key, b"*" * (len(key) - SHOWN) + key[-SHOWN:])
    return message


def _decoded(credentials: str) -> str:
    """User and password of basic authentication; empty if it is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
