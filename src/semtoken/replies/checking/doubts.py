"""The most doubtful stretch of an answer, the model's alternatives to it, and a sentence that names them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.parts import Part
from semtoken.core.parts.json_values import is_json
from semtoken.core.parts.part import level_of
from semtoken.core.results import Alternative, ScoredAnswer
from semtoken.errors import MissingExtra
from semtoken.support.inputs import instance
from semtoken.support.text import percent, shortened

LEAST_RIVAL = 0.03
"""Other continuations below this probability are not named."""
MOST_RIVALS = 2
BLANK = f" \t\r\n{REPLACEMENT}"
"""A rival of these alone cannot be shown: a blank, or a piece of a character."""


@dataclass(frozen=True)
class Doubt:
    """A stretch of an answer with its confidence and the model's alternatives to it."""

    text: str
    """The stretch as the answer has it."""
    start: int
    """The number of its first character in the answer, from 0."""
    end: int
    """The number of its last character, plus one."""
    confidence: float
    """The confidence of the model in it, in [0, 1]."""
    alternatives: tuple[tuple[str, float], ...]
    """Likely alternatives at its least certain token, with probabilities: the stretch up to there and the other token,
    which may be the beginning of a longer word."""
    path: str | None = None
    """JSON Pointer of the field, for answers that are JSON."""


def doubts_of(response: ScoredAnswer) -> list[Doubt]:
    """The stretches of an answer whose confidence is known, the most doubtful first: the fields of an answer that is
    JSON, the phrases of any other, or its words where the library that finds phrases is not installed.
    """
    known = [part for part in parts_to_check(response) if part.confidence is not None and part.end > part.start]
    known.sort(key=lambda part: (part.confidence or 0.0, part.start))
    rivals = rivals_of(response, known)
    return [
        Doubt(part.text, part.start, part.end, part.confidence or 0.0, others, part.path)
        for part, others in zip(known, rivals, strict=True)
    ]


def doubt_of(response: ScoredAnswer) -> Doubt | None:
    """The most doubtful stretch of an answer; None where every one is fairly sure, or the answer is blank."""
    return worst_of(doubts_of(instance(response, ScoredAnswer, "response")))


def worst_of(doubts: Sequence[Doubt]) -> Doubt | None:
    """The most doubtful stretch of an answer; None if each is fairly sure."""
    worst = next(iter(doubts), None)
    return worst if worst is not None and level_of(worst.confidence) else None


def sentence_of(response: ScoredAnswer, doubt: Doubt | None) -> str:
    """One sentence or two for people: the doubtful stretch, and the model's alternatives to it."""
    if response.empty:
        return "The answer is empty."
    cut = " It was cut off." if response.truncated else ""
    if doubt is None:
        return _without_doubt(response) + cut
    where = f"{doubt.path} " if doubt.path else ""
    said = f"In doubt: {where}“{shortened(doubt.text)}” ({percent(doubt.confidence)})."
    if not doubt.alternatives:
        return said + cut
    others = ", ".join(f"“{shortened(text, 40)}” {percent(share)}" for text, share in doubt.alternatives)
    return f"{said} Also likely there: {others}.{cut}"


def _without_doubt(response: ScoredAnswer) -> str:
    """A sentence on an answer of which no part is in doubt, although its tokens between them may be."""
    if not level_of(response.confidence):
        return "No part stands out: the model was fairly sure of each."
    marks = [mark for mark in response.marks if response.text[mark.start : mark.end].strip()]
    weakest = min(marks, key=lambda mark: mark.log_agreeing_probability, default=None)
    if weakest is None or not level_of(share := math.exp(weakest.log_agreeing_probability)):
        return "No part stands out, but the model was not sure of the whole."
    return (
        f"No part stands out; least sure is “{response.text[weakest.start : weakest.end].strip()}” ({percent(share)})."
    )


def in_message(doubts: tuple[Doubt, ...], spelled: str, said: str) -> tuple[tuple[Doubt, ...], str]:
    """Move stretches from the text that the tokens spell to that of the message, and return them with their text.

    That is for tokens that spell pieces of characters (U+FFFD). Of any others, and where the two texts do not fit, the
    stretches and the text stay as they were.
    """
    places = _places_in(said, spelled) if REPLACEMENT in spelled and said else None
    if places is None:
        return doubts, spelled
    moved = [(doubt, places[doubt.start], places[doubt.end]) for doubt in doubts]
    return tuple(replace(doubt, text=said[a:b], start=a, end=b) for doubt, a, b in moved if b > a), said


def _places_in(said: str, spelled: str) -> list[int] | None:
    """The places of each spelled character, and of the end, in a text that has characters in place of U+FFFD."""
    places: list[int] = []
    at = 0
    for piece in re.findall(f"{REPLACEMENT}+|[^{REPLACEMENT}]+", spelled):
        if piece[0] == REPLACEMENT:
            places += [at] * len(piece)
            continue
        start = said.find(piece, at)
        if start < 0:
            return None
        places += range(start, start + len(piece))
        at = start + len(piece)
    return [*places, len(said)]


def parts_to_check(response: ScoredAnswer) -> list[Part]:
    """The parts of an answer that a reader would look at one by one."""
    if is_json(response.text):
        return [part for part in response.parts("field") if part.present]
    try:
        return list(response.parts("phrase"))
    except MissingExtra:
        return list(response.parts(lambda text: [match.span() for match in re.finditer(r"\S+", text)]))


def rivals_of(response: ScoredAnswer, parts: Sequence[Part]) -> list[tuple[tuple[str, float], ...]]:
    """Likely alternatives at the least certain token of each part, with probabilities; see `Doubt.alternatives`."""
    weakest = [part.weakest_token for part in parts if part.weakest_token is not None]
    listed = iter(response.alternatives_at(weakest))
    return [() if part.weakest_token is None else _rivals(response, part, next(listed)) for part in parts]


def _rivals(response: ScoredAnswer, part: Part, others: Sequence[Alternative]) -> tuple[tuple[str, float], ...]:
    start = response.marks[part.weakest_token or 0].start
    before = response.text[part.start : start] if start > part.start else ""
    likely = (
        ((before + other.text).strip(), other.probability)
        for other in others
        if not other.counted and other.probability >= LEAST_RIVAL and other.text.strip(BLANK)
    )
    return tuple(likely)[:MOST_RIVALS]
