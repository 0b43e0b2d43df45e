"""Words, phrases and sentences: where the libraries that know Unicode and languages put their boundaries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from semtoken.errors import OverBudget
from semtoken.parts.budget import Budget
from semtoken.parts.part import Found
from semtoken.support.extras import require
from semtoken.tokens.stopwords import is_function_word, plain_word

NEGATIONS = frozenset(
    (
        *("no", "not", "never", "none", "nothing", "nobody", "neither", "nor", "without", "cannot", "can't", "won't"),
        *("don't", "doesn't", "didn't", "isn't", "aren't", "wasn't", "weren't", "wouldn't", "couldn't", "shouldn't"),
        *("hasn't", "haven't", "hadn't"),
    )
)
LONGEST_PIECE = 4_000  # characters
SHORT = 1_000  # characters, whose words are found within a millisecond
_MAY_END = re.compile(r"\n\n+|[.!?\u3002]\s+")
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
_UNSPACED = "".join(rf"\p{{Script={script}}}" for script in _SCRIPTS)
_SHARED = "".join(rf"\p{{Script_Extensions={script}}}" for script in _SCRIPTS)
"""The letters and marks among these are those that several scripts use, such as the long vowel mark in タワー."""


@cache
def _patterns() -> tuple[Any, Any, Any]:
    import regex

    boundary = regex.compile(r"\b", flags=regex.WORD | regex.V1)  # the boundaries of Unicode's annex 29
    return (
        boundary,
        regex.compile(r"[\p{L}\p{N}]"),
        regex.compile(rf"(?:[{_UNSPACED}]|[[{_SHARED}]&&[\p{{L}}\p{{M}}]])+\Z", flags=regex.V1),
    )


def words(text: str, budget: Budget | None = None) -> list[tuple[int, int]]:
    """Character ranges of the words of a text, as Unicode's annex 29 has them.

    Scripts without blanks between words: a run of letters is one word.

    Raises
    ------
    OverBudget
        The text is too long, or takes too long.
    """
    budget = budget or Budget(text)
    boundary, letter, unspaced = _patterns()
    found: list[tuple[int, int]] = []
    joins = False  # the last word is a run without blanks
    for start, end in pairwise(dict.fromkeys([0, *_boundaries(boundary, text, budget), len(text)])):
        piece = text[start:end]
        if not letter.search(piece):
            continue
        run = unspaced.match(piece) is not None
        if run and joins and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
        joins = run
    return found


def _boundaries(boundary: Any, text: str, budget: Budget) -> list[int]:
    plain = _FLAG_LETTER.sub("\u2691", text)  # those of flags are no words, and cost the square of their number
    budget.spend()
    left = None if len(plain) <= SHORT else budget.seconds_left  # looking at the clock takes three quarters of the time
    try:
        matches = boundary.finditer(plain, timeout=left, concurrent=True)
        return [match.start() for match in matches]
    except TimeoutError:
        budget.timed_out()


def find_words(text: str, budget: Budget | None = None) -> Iterator[Found]:
    """Every word, as Unicode divides text."""
    for start, end in words(text, budget):
        yield Found(start, end, "word", "meaning")


def find_phrases(text: str, budget: Budget | None = None) -> Iterator[Found]:
    """The longest runs of content words between function words and punctuation; function words alone stand alone.

    A text without a content word is one phrase.
    """
    found: list[tuple[int, int]] = []
    last = -1  # end of the content word before
    for start, end in words(text, budget):
        if is_function_word(text[start:end]):
            last = -1
            continue
        if last >= 0 and not text[last:start].strip(" '’-"):
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
        last = end
    if not found and (stripped := text.strip()):
        begin = text.index(stripped)
        found = [(begin, begin + len(stripped))]
    for start, end in found:
        yield Found(start, end, "phrase", "meaning")


def phrases(text: str) -> list[tuple[int, int]]:
    """Character ranges of the phrases of an answer; one that is too long to be divided is one phrase."""
    try:
        return [(found.start, found.end) for found in find_phrases(text, Budget(text))]
    except OverBudget:
        return [(0, len(text))]


def find_sentences(text: str, language: str) -> Iterator[Found]:
    """Every sentence; blanks around it are left out."""
    sentencex = require("sentencex", extra="parts")
    found = (
        (begin + sentence["start_index"], begin + sentence["end_index"])
        for begin, end in _pieces(text)
        for sentence in sentencex.get_sentence_boundaries(language, text[begin:end])
    )
    for start, end in found:
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            yield Found(first, first + len(piece.strip()), "sentence", "meaning", aggregate="weakest")


def negations(text: str, start: int, end: int, budget: Budget | None = None) -> list[tuple[int, int]]:
    """Ranges of the words between start and end that turn a statement round ("not", "never")."""
    ranges = ((start + a, start + b) for a, b in words(text[start:end], budget))
    return [(a, b) for a, b in ranges if plain_word(text[a:b]) in NEGATIONS]


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Pieces of a long text that end where a sentence may end: dividing it costs the square of its length."""
    begin = 0
    while len(text) - begin > LONGEST_PIECE:
        *_, end = begin + LONGEST_PIECE, *(m.end() for m in _MAY_END.finditer(text, begin, begin + LONGEST_PIECE))
        yield begin, end
        begin = end
    yield begin, len(text)
