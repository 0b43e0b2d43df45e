"""The keys of a request, made unreadable where the upstream repeats them in the message of an error."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote_plus

KEY_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})
KEY_FIELDS = frozenset({"key", "api_key", "api-key"})
"""Fields of a query that hold a key, as Gemini's."""
SHORTEST = 8
SHOWN = 4
"""The last characters of a key, which stay readable, so that its owner knows which one it was."""


def keys_of(headers: Iterable[tuple[str, str]], query: str) -> list[bytes]:
    """The keys in the headers and the query of a request, longer ones first, in each form that a message may hold.

    A password stands alone, with its user, and encoded; a field of the query as it was sent, too; and a slash with the
    backslash that some writers of JSON put before it.
    """
    keys = set()
    for field in query.split("&"):
        name, _, value = field.partition("=")
        if unquote_plus(name).lower() in KEY_FIELDS:
            keys |= {value, unquote_plus(value)}
    for name, value in headers:
        if name.lower() in KEY_HEADERS:
            scheme, _, key = value.rpartition(" ")
            keys.add(key)
            if scheme.lower() == "basic":
                user_and_password = _decoded(key)
                keys |= {user_and_password, user_and_password.partition(":")[2]}
    keys |= {key.replace("/", "\\/") for key in keys}
    return sorted((key.encode() for key in keys if _is_secret(key)), key=len, reverse=True)


class KeyFilter:
    """A message that comes in pieces, with as many bytes, in which of each key only the end can be read."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: longer ones first, one at least."""
        self._keys = keys
        self._any = re.compile(b"|".join(map(re.escape, keys)))
        self._held = b""

    def hidden(self, piece: bytes, *, last: bool = False) -> bytes:
        """The bytes to show now: all but an end that may be the beginning of a key, unless this piece is the last."""
        message = self._held + piece
        shown = len(message) if last else self._safe(message)
        self._held = message[shown:]
        return self._any.sub(_masked, message[:shown])

    def _safe(self, message: bytes) -> int:
        """The number of bytes before an end that may be the beginning of a key and belongs to no key before it."""
        safe = self._before_beginning(message, 0)
        for key in self._any.finditer(message):
            if key.start() < safe < key.end():
                safe = self._before_beginning(message, key.end())
        return safe

    def _before_beginning(self, message: bytes, start: int) -> int:
        for i in range(max(start, len(message) - len(self._keys[0]) + 1), len(message)):
            end = message[i:]
            if any(key.startswith(end) and key != end for key in self._keys):
                return i
        return len(message)


def _masked(key: re.Match[bytes]) -> bytes:
    return b"*" * (len(key[0]) - SHOWN) + key[0][-SHOWN:]


def _is_secret(key: str) -> bool:
    """True for a key that is no word, as "none" and "lm-studio" are: they stand for no key, and messages hold them."""
    return len(key) >= SHORTEST and not key.replace("-", "").isalpha()


def _decoded(credentials: str) -> str:
    """User and password of basic authentication; empty if it is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode()
    except ValueError:  # neither base64 nor text, or not even ASCII
        return ""
