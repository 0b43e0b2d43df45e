"""The elements of a large array of JSON in a file, one by one, in memory for a few of them."""

from __future__ import annotations

import codecs
import errno
import json
from collections.abc import Iterator
from typing import Any

from semtoken.support.files.safe_files import LARGEST_REPLIES, MEBIBYTE

DECODER = json.JSONDecoder()
BEHIND = (",", "]", " ", "\n", "\r", "\t")
"""The characters that may stand behind an element."""
PIECE = 2**20
"""Characters that are read at a time."""


class Elements:
    """The texts of the elements of an array, from a file in UTF-8 that begins with one."""

    def __init__(self, file: Any) -> None:
        self._reader = codecs.getreader("utf-8")(file)
        self._text = ""
        """The text that has been read from the element at hand on, and a little before it."""
        self._at = 0
        """The place at which the element at hand begins."""
        self.is_whole = False
        """True if the array was read to its end, and nothing is behind it."""

    def __iter__(self) -> Iterator[str]:
        """The elements, as far as they are JSON."""
        self._next()
        self._at += 1  # behind the bracket
        while self._next() != "]":
            end = self._end()
            if end is None:
                return
            yield self._text[self._at : end]
            self._at = end
            follows = self._next()
            self._at += follows == ","
            if (follows == ",") == (self._next() == "]"):
                return
        self._at += 1
        self.is_whole = self._next() == ""

    def rest(self) -> str:
        """The array from the element at hand on, as a text of JSON; all of it while that is the first."""
        while self._more():
            pass
        return f"[{self._text[self._at :]}"

    def _next(self) -> str:
        """Go to the next sign that is no blank; empty at the end of the file."""
        while True:
            while self._at < len(self._text) and self._text[self._at].isspace():
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _end(self) -> int | None:
        """The end of the element at hand; None if it is no JSON."""
        while True:
            try:
                _, end = DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                if not self._more():
                    return None
            else:
                if self._text[end : end + 1] in BEHIND or not self._more():  # else a number may go on
                    return end

    def _more(self) -> bool:
        """Read on, at least as much as is at hand, so that a long element is tried a few times only."""
        piece = self._reader.read(max(PIECE, len(self._text) - self._at))
        if len(self._text) - self._at > LARGEST_REPLIES:
            raise OSError(errno.EFBIG, f"an element is larger than {LARGEST_REPLIES // MEBIBYTE:,} MiB")
        if piece:
            self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)
