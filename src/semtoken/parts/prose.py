"""Words, phrases and sentences: where the libraries that know Unicode and languages put their boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from semtoken.parts.records import Found
from semtoken.support.extras import require
from semtoken.tokens.stopwords import english_stopwords

NEGATIONS = frozenset(
    (
        *("no", "not", "never", "none", "nothing", "nobody", "neither", "nor", "without", "cannot", "can't", "won't"),
        *("don't", "doesn't", "didn't", "isn't", "aren't", "wasn't", "weren't", "wouldn't", "couldn't", "shouldn't"),
        *("hasn't", "haven't", "hadn't"),
    )
)
_UNSPACED = "".join(
    rf"\p{{Script={script}}}" for script in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
)


@cache
def _patterns() -> tuple[Any, Any, Any]:
    regex = require("regex", extra="parts")
    boundary = regex.compile(r"\b", flags=regex.WORD | regex.V1)  # the boundaries of Unicode's annex 29
    return boundary, regex.compile(r"[\p{L}\p{N}]"), regex.compile(rf"[{_UNSPACED}]+\Z")


def words(text: str) -> list[tuple[int, int]]:
    """Character ranges of the words of a text, as Unicode's annex 29 has them.

    Scripts without blanks between words: a run of letters is one word.
    """
    boundary, letter, unspaced = _patterns()
    places = [0, *(match.start() for match in boundary.finditer(text)), len(text)]
    found: list[tuple[int, int]] = []
    joins = False  # the last word is a run without blanks
    for start, end in pairwise(dict.fromkeys(places)):
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


def find_words(text: str) -> Iterator[Found]:
    """Every word, as Unicode divides text."""
    for start, end in words(text):
        yield Found(start, end, "word", "meaning")


def find_phrases(text: str) -> Iterator[Found]:
    """The longest runs of content words between function words and punctuation; function words alone stand alone.

    A text without a content word is one phrase.
    """
    stopwords = english_stopwords()
    found: list[tuple[int, int]] = []
    last = -1  # end of the content word before
    for start, end in words(text):
        if text[start:end].lower() in stopwords:
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


def find_sentences(text: str, language: str) -> Iterator[Found]:
    """Every sentence; blanks around it are left out."""
    sentencex = require("sentencex", extra="parts")
    for sentence in sentencex.get_sentence_boundaries(language, text):
        start, end = sentence["start_index"], sentence["end_index"]
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            yield Found(first, first + len(piece.strip()), "sentence", "meaning", aggregate="weakest")


def negations(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of the words between start and end that turn a statement round ("not", "never")."""
    ranges = ((start + a, start + b) for a, b in words(text[start:end]))
    return [(a, b) for a, b in ranges if text[a:b].lower().replace("’", "'") in NEGATIONS]
