"""Where in the steps of a reply a text is spelled: the tokens' bytes laid against the text of the message."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from semtoken.top_logprobs import TopStep, TopToken

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MOST_COMPARISONS = 1_000_000  # of a token with a text, before a reply that was made to be slow is given up
LONGEST_CUT = 64  # characters of a token that may stand before a stop string, if a piece before it is unknown


@dataclass(frozen=True)
class Piece:
    """What a step adds to the text; a character that several steps spell belongs to the last of them."""

    text: str | None
    """None where the engine does not say: an id alone, a piece of a character without its bytes."""
    at_most: float = 0
    """How many characters an unknown piece may stand for."""
    goes_on: bool = False
    """It ends inside a character."""


def pieces_of(steps: Iterable[TopStep]) -> list[Piece]:
    """What each step adds to the text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[Piece] = []
    for step in steps:
        spelled = spelling(step.chosen)
        if spelled is None:
            decoder.reset()
            pieces.append(Piece(None, _width(step.chosen)))
            continue
        text = decoder.decode(spelled)
        goes_on = bool(decoder.getstate()[0])
        pieces.append(Piece(None, len(text) + 1) if REPLACEMENT in text else Piece(text, goes_on=goes_on))
    if pieces and pieces[-1].goes_on:  # engines write U+FFFD for such an end, or nothing
        pieces[-1] = Piece(None, len(pieces[-1].text or "") + 1)
    return pieces


def spelling(token: TopToken) -> bytes | None:
    """The bytes of a token as far as its engine tells them."""
    if token.bytes is not None:
        return token.bytes
    if not token.text or REPLACEMENT in token.text:
        return None
    return token.text.encode("utf-8", "surrogatepass")


def _width(token: TopToken) -> float:
    return math.inf if token.text is None else len(token.text) + 1


def joined(pieces: Iterable[Piece]) -> str:
    """The text of some steps; U+FFFD for what is unknown."""
    return "".join(REPLACEMENT if piece.text is None else piece.text for piece in pieces)


def find_text(pieces: Sequence[Piece], text: str, *, last: bool = True) -> tuple[int, int] | None:
    """Start and end of the steps that spell a text: the last such steps, or the first.

    Blanks at both ends of the text may be missing, as engines strip them; the last step may say more than the text,
    as engines cut it at a stop string.
    """
    matcher = Matcher(pieces, text.strip())
    whole = matcher.end_from(0)
    if whole is not None and whole >= len(pieces) - 1:
        return 0, _past_blanks(pieces, whole)
    known = [i for i, piece in enumerate(pieces) if piece.text is not None and piece.text.strip()]
    unknown = [i for i, piece in enumerate(pieces) if piece.text is None]
    for starts in (known, unknown):
        for start in reversed(starts) if last else starts:
            end = matcher.end_from(start)
            if end is not None:
                return _from_first_byte(pieces, start), _past_blanks(pieces, end)
    return None


class Matcher:
    """Compares runs of pieces with one text, and stops when that takes too long."""

    def __init__(self, pieces: Sequence[Piece], target: str) -> None:
        self.pieces = pieces
        self.target = target
        self.left = MOST_COMPARISONS

    def end_from(self, start: int) -> int | None:
        """One past the step at which the pieces from `start` have spelled the text; None if they spell another."""
        position, unknown = 0, 0.0
        for i in range(start, len(self.pieces)):
            self.left -= 1
            if self.left < 0:
                return None
            piece = self.pieces[i]
            text = piece.text
            if text is None:
                unknown += piece.at_most
                continue
            text = text if position else text.lstrip()
            if not text:
                continue
            found = self._next(text, position, unknown)
            if found is None:
                return i if position + unknown >= len(self.target) else None
            position, unknown = found + len(text), 0.0
            if position >= len(self.target):
                return i + 1
        return len(self.pieces) if position + unknown >= len(self.target) else None

    def _next(self, text: str, position: int, unknown: float) -> int | None:
        """Where the next known piece stands in the text, at most `unknown` characters further on."""
        latest = min(len(self.target), position + int(min(unknown, len(self.target))))
        found = self.target.find(text, position, latest + len(text))
        if found >= 0:
            return found
        earliest = max(position, latest - LONGEST_CUT, len(self.target) - len(text))
        for at in range(latest, earliest - 1, -1):
            if at < len(self.target) and text.startswith(self.target[at:]):
                return at
        return None


def _from_first_byte(pieces: Sequence[Piece], start: int) -> int:
    """`start` moved back over the steps that begin its first character."""
    head = pieces[start].text
    unknown = head is None or not head[:1].isascii()
    while start and (pieces[start - 1].goes_on or (unknown and pieces[start - 1].text is None)):
        start -= 1
    return start


def _past_blanks(pieces: Sequence[Piece], end: int) -> int:
    """`end` moved past the steps of blanks that follow."""
    while end < len(pieces) and (text := pieces[end].text) is not None and text and not text.strip():
        end += 1
    return end
