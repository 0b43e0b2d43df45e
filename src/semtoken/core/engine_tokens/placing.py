"""Placing a text in a list of steps, by laying the bytes of the tokens against the text of a message.

Engines strip blanks, cut texts at stop strings, and name pieces of characters by nothing or by bytes.
"""

from __future__ import annotations

import codecs
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias, TypeVar

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.engine_tokens.token_names import MARKUP
from semtoken.core.engine_tokens.top_steps import TopStep, spelling

K = TypeVar("K")
Span: TypeAlias = tuple[int, int]
"""The first of some steps in a row, and one past the last."""
SHOWN = 60  # characters of a text in a message
MARK_AT_END = re.compile(rf"(?:{MARKUP.pattern})\s*$")
CLOSED = re.compile(r"</[^<>\s]+>\s*$|<\|message\|>\s*$")
"""The end of a reasoning, directly before an answer."""
LONGEST_CUT = 64  # characters of a token that may stand before a stop string


@dataclass(frozen=True)
class SpelledText:
    """The text that a step adds; a character that several steps spell belongs to the last of them."""

    text: str | None
    """The text; None where the engine does not say: an id alone, a piece of a character without its bytes."""
    at_most: float = 0
    """The most characters that an unknown piece may stand for."""
    goes_on: bool = False
    """True if it ends inside a character."""
    broken: bool = False
    """True if the engine gives its bytes, and they make no character with those before."""


def pieces_of(steps: Iterable[TopStep]) -> list[SpelledText]:
    """The text that each step adds."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[SpelledText] = []
    for step in steps:
        spelled = spelling(step.names[0])
        if spelled is None:
            # Bytes of a character that were begun are lost with a step that does not say what it spells.
            decoder.reset()
            _, name, _ = step.names[0]
            by_ids = name is None and not any(text or spelled for _, text, spelled in step.names)
            pieces.append(SpelledText(None, math.inf if by_ids else len(name or REPLACEMENT) + 1))
            continue
        text = decoder.decode(spelled)
        goes_on = bool(decoder.getstate()[0])
        broken = REPLACEMENT in text
        pieces.append(SpelledText(None, len(text) + 1, broken=True) if broken else SpelledText(text, goes_on=goes_on))
    if pieces and pieces[-1].goes_on:  # engines write U+FFFD for such an end, or nothing
        pieces[-1] = SpelledText(None, len(pieces[-1].text or "") + 1, broken=True)
    return pieces


def text_of_pieces(pieces: Iterable[SpelledText]) -> str:
    """The text that some steps spell; U+FFFD where it is not known."""
    return "".join(REPLACEMENT if piece.text is None else piece.text for piece in pieces)


def find_text(pieces: Sequence[SpelledText], text: str, *, last: bool = True) -> Span | None:
    """Start and end of the steps that spell a text: the last such steps, or the first. None if no steps do."""
    spans = find_texts(pieces, text)
    return spans[-1 if last else 0] if spans else None


def find_texts(pieces: Sequence[SpelledText], text: str) -> list[Span]:
    """All places at which steps spell a text, in their order; of very many, the first and the last.

    Blanks at both ends of the text may be missing, as engines strip them. Where nothing else fits, the last step may
    say more than the text, as engines cut it at a stop string. Steps that say what they spell come before those that
    do not, and no text rests on the latter alone, unless the engine names no step at all. Of places that unknown steps
    could fill, the last.
    """
    target = text.strip()
    if not target:
        return []
    # In a message a U+FFFD stands for bytes that are lost, so that no text of the steps is equal to it.
    known = [] if REPLACEMENT in target else _known_places(pieces, target)
    if known and _opens(pieces, known[0]):
        return [(_from_first_byte(pieces, _past_blanks(pieces, 0)), known[0][1])]
    # Unknown steps may stand for anything: they are followed only where nothing else spells the text.
    if known or all(piece.text is not None for piece in pieces):
        return known
    nameless = not _says_any(pieces)
    for matcher in (Matcher(target, cut=False), Matcher(target, cut=True)):
        starts = matcher.starts(pieces)
        opening = _past_blanks(pieces, 0)
        if starts[:1] == [opening]:
            end = matcher.end(pieces, opening)
            if _opens(pieces, (opening, end)) and (nameless or _says_any(pieces[opening:end])):
                return [(_from_first_byte(pieces, opening), end)]
        known_starts = [i for i in starts if pieces[i].text is not None]
        ends = ((i, matcher.end(pieces, i)) for i in _few(known_starts or starts))
        spans = [(_from_first_byte(pieces, i), end) for i, end in ends if _says_any(pieces[i:end])]
        if spans:
            return spans if known_starts else spans[-1:]
    return []


def _known_places(pieces: Sequence[SpelledText], target: str) -> list[Span]:
    """The places at which steps that all say what they spell make up a text: uncut, or else cut in the last of them."""
    texts = [REPLACEMENT if piece.text is None else piece.text for piece in pieces]
    whole, at = "".join(texts), [0, *accumulate(map(len, texts))]
    uncut: list[Span] = []
    cut: list[Span] = []
    for i, piece in enumerate(pieces):
        begin = at[i] + len(texts[i]) - len(texts[i].lstrip())  # its blanks may be missing in the text
        if piece.text is None or begin == at[i + 1] or not whole.startswith(target, begin):
            continue
        end = bisect_left(at, begin + len(target))
        rest, held = whole[begin + len(target) : at[end]], begin + len(target) - at[end - 1]
        if not rest.strip():
            uncut.append((_from_first_byte(pieces, i), end))
        # Engines cut a text where a stop string begins, which may be inside a token.
        elif held <= LONGEST_CUT:
            cut.append((_from_first_byte(pieces, i), end))
    return list(_few(uncut or cut))


def _opens(pieces: Sequence[SpelledText], span: Span) -> bool:
    """Return True if the steps before some steps say nothing, and behind them there is a terminator at most."""
    start, end = _past_blanks(pieces, 0), _past_blanks(pieces, span[1])
    behind = text_of_pieces(pieces[end:]).replace(REPLACEMENT, "")
    silent = all(piece.text is None for piece in pieces[start : span[0]])
    return silent and end >= len(pieces) - 1 and not _without_marks(behind)


MOST_PLACES = 32
"""The most places of a text that are looked at. Of more, those in the middle are as good as each other."""


def _few(places: Sequence[K]) -> Sequence[K]:
    """The first and the last of some places."""
    half = MOST_PLACES // 2
    return places if len(places) <= MOST_PLACES else (*places[:half], *places[-half:])


def _says_any(pieces: Sequence[SpelledText]) -> bool:
    """Return True if some of the pieces say what they spell, apart from blanks."""
    return any(piece.text is not None and piece.text.strip() for piece in pieces)


class Matcher:
    """Finds out where runs of token texts stand in one text.

    Sets of positions in the text are the bits of a number, so that all ways to place unknown pieces are followed at
    once, in time proportional to steps times text whatever they hold.
    """

    def __init__(self, target: str, *, cut: bool) -> None:
        self._target = target
        self._cut = cut
        self._end = 1 << len(target)
        self._places: dict[str, int] = {}

    def starts(self, pieces: Sequence[SpelledText]) -> list[int]:
        """All steps from which on the pieces spell the text, and anything after it; steps of blanks are left out."""
        start_steps = []
        after = self._end
        for i in range(len(pieces) - 1, -1, -1):
            piece = pieces[i]
            if piece.text is None:
                before = _shifted(after, -self._width(piece))
            else:
                stripped = piece.text.lstrip()  # its blanks may be missing at the beginning of the text
                before = self._fitting_places(piece.text, after >> len(piece.text))
                before |= self._fitting_places(stripped, after >> len(stripped)) & 1
            if before & 1 and (piece.text is None or piece.text.strip()):
                start_steps.append(i)
            after = before | self._end
        return start_steps[::-1]

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
            if not at or (at == self._end and piece.text is not None):
                break
        return end

    def _fitting_places(self, text: str, fitting: int) -> int:
        """The places where a piece may stand: from which the rest fits, or where the end of the text cuts it."""
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


class AnswerPlace(NamedTuple):
    """The place of the answer in a list of steps, from `start` to before `end`, with what casts doubt on it."""

    start: int = 0
    end: int = 0
    before: bool = False
    """True if the steps before it are neither markers nor blanks."""
    behind: bool = False
    """True if those behind it are neither its terminator nor the text at which the engine stopped."""
    problem: str | None = None


def end_of_answer(
    pieces: Sequence[SpelledText], end: int, answer: str, *, at_token: bool = False, called: bool = False
) -> int:
    """One past the last step that counts: the steps that the message holds count, and the terminator behind them.

    `end` is one past the step that ends the text of the message, its blanks aside. Special tokens are terminators, and
    steps without names, which may also be pieces of a character that the message lost. Without them, the next step is
    the terminator, whatever it spells, if a token ended the answer (`at_token`). If tools are `called`, the message
    goes on.
    """
    blanks = len(answer) - len(answer.rstrip())
    while blanks > 0 and end < len(pieces) and (text := pieces[end].text) and not text.strip():
        end, blanks = end + 1, blanks - len(text)
    if called:
        return end
    after = at = _past_blanks(pieces, end)
    while at < len(pieces) and pieces[at].text is None:
        end, at = at + 1, _past_blanks(pieces, at + 1)
    if at < len(pieces) and not _without_marks(pieces[at].text or REPLACEMENT):
        return at + 1
    return end if at > after else min(end + at_token, len(pieces))


def place_of_answer(
    pieces: Sequence[SpelledText], answer: str, stops: Sequence[str] = (), *, called: bool
) -> AnswerPlace:
    """Find the steps of an answer behind those of the reasoning, by what stands around them.

    Before it there are markers and blanks, and behind it a terminator, blanks, or a text at which the engine stopped
    (if tools are `called`, whatever calls them). If several places are as good as each other, none is taken.
    """
    spans = find_texts(pieces, answer)
    if not spans:
        return AnswerPlace(problem=_mismatch(text_of_pieces(pieces), answer))
    texts = [REPLACEMENT if piece.text is None else piece.text for piece in pieces]
    whole, at = "".join(texts), [0, *accumulate(map(len, texts))]
    places = []
    for start, end in spans:
        nameless = next((i for i in range(end, len(pieces)) if pieces[i].text is not None), len(pieces))
        before, behind = whole[: at[start]], whole[at[max(end, nameless - 1)] :]
        known = not _without_marks(before) or bool(MARK_AT_END.search(before))
        ends = (
            called
            or not _without_marks(behind.replace(REPLACEMENT, "", 1))
            or any(_begins_with(whole[len(whole[: at[end]].rstrip()) :], stop) for stop in stops)
        )
        places.append(AnswerPlace(start, end, before=not known, behind=not ends))
    best = min(place.before + place.behind for place in places)
    good = [place for place in places if place.before + place.behind == best]
    # The end of a reasoning before it marks the answer, however often the reasoning has said the same.
    closed = [place for place in good if CLOSED.search(whole[: at[place.start]])]
    if called or closed:
        return closed[-1] if closed else good[0]
    if len(good) > 1:
        return AnswerPlace(
            problem=f"The answer {_shown(answer)} fits {len(good)} places of the list of log-probabilities, and "
            "nothing says which is its own: ask for the reasoning in a field of its own, or without a stop string."
        )
    return good[0]


def _begins_with(behind: str, stop: str) -> bool:
    """Return True if the text behind an answer begins with a stop string, which may be blank; other blanks aside."""
    blanks = behind[: len(behind) - len(behind.lstrip())]
    return behind.lstrip().startswith(stop.strip()) if stop.strip() else stop in blanks


def _without_marks(text: str) -> str:
    return MARKUP.sub("", text).strip()


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _mismatch(spelled: str, answer: str) -> str:
    """The first place where tokens and message differ."""
    at = next(
        (i for i, (a, b) in enumerate(zip(spelled, answer, strict=False)) if a != b), min(len(spelled), len(answer))
    )
    begin = max(0, at - SHOWN // 3)
    return (
        f"The log-probabilities do not spell the message: from character {begin} on it says "
        f"{answer[begin : begin + SHOWN]!r}, the tokens {spelled[begin : begin + SHOWN]!r}. Steps are missing or "
        "merged, a parser changed the text, the message begins with a prefill (give the request), or the list names "
        "the likeliest tokens for the chosen ones (mlx-lm above temperature 0): ask at temperature 0, without "
        "streaming, without a reasoning or tool parser, or ask the engine itself instead of a gateway."
    )
