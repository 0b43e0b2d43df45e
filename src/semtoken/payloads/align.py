"""Where in the steps of a reply a text is spelled: the tokens' bytes laid against the text of the message."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from semtoken.engine_tokens.spellings import spelling
from semtoken.engine_tokens.top_steps import Name, TopStep
from semtoken.tokens.tokenizers import REPLACEMENT

LONGEST_CUT = 64  # characters of a token that may stand before a stop string


@dataclass(frozen=True)
class SpelledText:
    """What a step adds to the text; a character that several steps spell belongs to the last of them."""

    text: str | None
    """None where the engine does not say: an id alone, a piece of a character without its bytes."""
    at_most: float = 0
    """How many characters an unknown piece may stand for."""
    goes_on: bool = False
    """It ends inside a character."""


def pieces_of(steps: Iterable[TopStep]) -> list[SpelledText]:
    """What each step adds to the text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[SpelledText] = []
    for step in steps:
        spelled = spelling(step.names[0])
        if spelled is None:
            decoder.reset()
            pieces.append(SpelledText(None, _width(step.names[0])))
            continue
        text = decoder.decode(spelled)
        goes_on = bool(decoder.getstate()[0])
        pieces.append(SpelledText(None, len(text) + 1) if REPLACEMENT in text else SpelledText(text, goes_on=goes_on))
    if pieces and pieces[-1].goes_on:  # engines write U+FFFD for such an end, or nothing
        pieces[-1] = SpelledText(None, len(pieces[-1].text or "") + 1)
    return pieces


def _width(name: Name) -> float:
    _, text, _ = name
    return math.inf if text is None else len(text) + 1


def joined(pieces: Iterable[SpelledText]) -> str:
    """The text of some steps; U+FFFD for what is unknown."""
    return "".join(REPLACEMENT if piece.text is None else piece.text for piece in pieces)


def find_text(pieces: Sequence[SpelledText], text: str, *, last: bool = True) -> tuple[int, int] | None:
    """Start and end of the steps that spell a text: the last such steps, or the first.

    Blanks at both ends of the text may be missing, as engines strip them. Where nothing else fits, the last step may
    say more than the text, as engines cut it at a stop string.
    """
    target = text.strip()
    if not target:
        return None
    whole = _whole(pieces, target)
    if whole is not None:
        return whole
    for matcher in (Matcher(target, cut=False), Matcher(target, cut=True)):
        starts = matcher.starts(pieces)
        opening = _past_blanks(pieces, 0)
        if starts[:1] == [opening]:
            end = _past_blanks(pieces, matcher.end(pieces, opening))
            if end >= len(pieces) - 1:
                return _from_first_byte(pieces, opening), end
        for kind in (str, type(None)):
            fitting = [i for i in starts if isinstance(pieces[i].text, kind)]
            if fitting:
                start = fitting[-1 if last else 0]
                end = matcher.end(pieces, start)
                return _from_first_byte(pieces, start), _past_blanks(pieces, end)
    return None


def _whole(pieces: Sequence[SpelledText], target: str) -> tuple[int, int] | None:
    """Start and end if all pieces spell the text and nothing else, a terminator aside: what `Matcher` finds then."""
    texts = [piece.text or REPLACEMENT for piece in pieces]
    for end in (len(texts), len(texts) - 1):
        if "".join(texts[:end]).strip() == target and REPLACEMENT not in target:
            return _from_first_byte(pieces, _past_blanks(pieces, 0)), end
    return None


class Matcher:
    """Lays runs of pieces against one text.

    Sets of positions in the text are the bits of a number, so that all ways to place unknown pieces are followed at
    once, in time proportional to steps times text whatever they hold.
    """

    def __init__(self, target: str, *, cut: bool) -> None:
        self._target = target
        self._cut = cut
        self._end = 1 << len(target)
        self._places: dict[str, int] = {}

    def starts(self, pieces: Sequence[SpelledText]) -> list[int]:
        """Every step from which on the pieces spell the text, and then whatever; blank ones left out."""
        found = []
        after = self._end
        for i in range(len(pieces) - 1, -1, -1):
            piece = pieces[i]
            if piece.text is None:
                before = _shifted(after, -self._width(piece))
            elif stripped := piece.text.lstrip():
                before = self._placed(piece.text, after >> len(piece.text)) & ~1
                before |= self._placed(stripped, after >> len(stripped)) & 1
            else:
                before = (self._placed(piece.text, after >> len(piece.text)) & ~1) | (after & 1)
            if before & 1 and (piece.text is None or piece.text.strip()):
                found.append(i)
            after = before | self._end
        return found[::-1]

    def end(self, pieces: Sequence[SpelledText], start: int) -> int:
        """One past the last step up to which the pieces from `start` spell the text."""
        end, at = start, 1
        for i in range(start, len(pieces)):
            piece = pieces[i]
            if piece.text is None:
                at = _shifted(at, self._width(piece)) & (2 * self._end - 1)
            else:
                text = piece.text.lstrip() if at == 1 else piece.text
                at = ((at & self._places_of(text)) << len(text)) | (self._end if at & self._cuts(text) else 0)
            if at & self._end:
                end = i + 1
            if not at:
                break
        return end

    def _placed(self, text: str, fitting: int) -> int:
        """Where a piece may stand: at a place from which the rest fits, or cut by the end of the text."""
        return (self._places_of(text) & fitting) | self._cuts(text)

    def _places_of(self, text: str) -> int:
        """Every place of a piece in the text."""
        if text not in self._places:
            marks = bytearray(len(self._target) // 8 + 1)
            at = self._target.find(text)
            while at >= 0:
                marks[at // 8] |= 1 << at % 8
                at = self._target.find(text, at + 1)
            self._places[text] = int.from_bytes(marks, "little")
        return self._places[text]

    def _cuts(self, text: str) -> int:
        """The places at the end of the text where a piece begins but does not end; only its blanks may be cut off."""
        length, kept = len(self._target), text.rstrip()
        if not self._cut:
            return 1 << (length - len(kept)) if 0 < len(kept) < len(text) and self._target.endswith(kept) else 0
        shortest = max(length - min(len(text) - 1, LONGEST_CUT), 0)
        return sum(1 << at for at in range(shortest, length) if text.startswith(self._target[at:]))

    def _width(self, piece: SpelledText) -> int:
        return int(min(piece.at_most, len(self._target)))


def _shifted(places: int, by: int) -> int:
    """The places and all that lie up to `by` further on, or before."""
    width, reached = abs(by), 0
    while reached < width:
        step = min(reached + 1, width - reached)
        places |= places << step if by > 0 else places >> step
        reached += step
    return places


def _from_first_byte(pieces: Sequence[SpelledText], start: int) -> int:
    """`start` moved back over the steps that begin its first character."""
    head = pieces[start].text
    unknown = head is None or not head[:1].isascii()
    while start and (pieces[start - 1].goes_on or (unknown and pieces[start - 1].text is None)):
        start -= 1
    return start


def _past_blanks(pieces: Sequence[SpelledText], end: int) -> int:
    """`end` moved past the steps of blanks that follow."""
    while end < len(pieces) and (text := pieces[end].text) and not text.strip():
        end += 1
    return end
