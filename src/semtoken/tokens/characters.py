"""Which characters of a text each of its tokens spells, where tokens may hold pieces of characters and broken ones."""

from __future__ import annotations

import codecs
from collections.abc import Iterable


def character_ranges(pieces: Iterable[bytes | None], errors: str = "replace") -> list[tuple[int, int]]:
    """First character of each token, and one past its last one, in the text that all of them spell together.

    Parameters
    ----------
    pieces
        UTF-8 bytes of each token; None for a token that is one replacement character whatever stands beside it.
    errors
        The decoder's rule for broken bytes, which gives one character for a broken sequence or for each of its bytes.

    Returns
    -------
    list of (int, int)
        Tokens that share a character all hold it, also if it is a broken one. A token without bytes has an empty range.
    """
    reading = _Reading(errors)
    for piece in pieces:
        reading.add(piece)
    return reading.finished()


class _Reading:
    """The ranges so far, and the bytes of a character that is not whole yet."""

    def __init__(self, errors: str) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._ranges: list[tuple[int, int]] = []
        self._characters = 0
        """How many are whole, or known to be broken."""
        self._waiting: list[int] = []
        """The token of each byte that is waiting for the rest of its character."""

    def add(self, piece: bytes | None) -> None:
        """Take in the next token."""
        token, length = len(self._ranges), 1 if piece is None else _length(piece)
        self._ranges.append((self._characters, self._characters))
        if length is not None and not self._waiting:
            self._characters += length
            self._ranges[token] = self._ranges[token][0], self._characters
            return
        for byte in piece or b"":
            self._waiting.append(token)
            self._settle(len(self._decoder.decode(bytes([byte]))), len(self._decoder.getstate()[0]))

    def finished(self) -> list[tuple[int, int]]:
        """All ranges, once every token was taken in."""
        self._settle(len(self._decoder.decode(b"", True)), 0)
        return self._ranges

    def _settle(self, gained: int, left: int) -> None:
        """Give the characters that the decoder has just gained to the tokens of their bytes; some bytes still wait."""
        spelled = self._waiting[: len(self._waiting) - left]
        self._waiting = self._waiting[len(spelled) :]
        if not gained:
            return
        if gained > 1 and gained < len(spelled):  # a broken sequence, and the byte that breaks it
            self._spell(spelled[:-1], gained - 1)
            spelled, gained = spelled[-1:], 1
        self._spell(spelled, gained)

    def _spell(self, tokens: list[int], characters: int) -> None:
        """Some bytes spell one character, or one each."""
        for number, token in enumerate(tokens):
            character = self._characters + (0 if characters == 1 else number)
            start, end = self._ranges[token]
            self._ranges[token] = (character if start == end else start), character + 1
        self._characters += characters


def _length(piece: bytes) -> int | None:
    """How many characters a token spells by itself; None if it begins or ends inside one."""
    try:
        return len(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return None
