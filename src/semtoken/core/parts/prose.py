"""Words, phrases and sentences of a text.

Boundaries are where the libraries that know Unicode and languages put them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from semtoken.clustering.function_words import is_function_word, plain_word
from semtoken.core.parts.budget import Budget
from semtoken.core.parts.part import FoundPart
from semtoken.errors import BudgetExceededError
from semtoken.support.extras import require
from semtoken.support.thinking import thinking_end

Ranges = list[tuple[int, int]]
"""The beginning and end of stretches of a text, in characters."""
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
_INITIAL = re.compile(r"(?:^|\b[A-Z][\w'’-]* |\b[A-Z]\.[ -]?)[A-Z]\Z")
"""Letters that stand for a name, behind a capital word or at the beginning: "John F", "J", "J. K"."""
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
_UNSPACED = "".join(rf"\p{{Script={script}}}" for script in _SCRIPTS)
_SHARED = "".join(rf"\p{{Script_Extensions={script}}}" for script in _SCRIPTS)
"""The letters and marks among these are those that several scripts use, such as the long vowel mark in タワー."""


@cache
def _patterns() -> tuple[Any, Any, Any, Any]:
    import regex

    boundary = regex.compile(r"\b", flags=regex.WORD | regex.V1)  # the boundaries of Unicode's annex 29
    return (
        boundary,
        regex.compile(r"[\p{L}\p{N}]"),
        regex.compile(rf"(?:[{_UNSPACED}]|[[{_SHARED}]&&[\p{{L}}\p{{M}}]])+\Z", flags=regex.V1),
        # marks belong to their letters, as those of Thai and Hindi do; 27,000 is one word
        regex.compile(r"\w(?:[\w'’-]|(?<=\d)[.,](?=\d))*"),
    )


def words(text: str, budget: Budget | None = None) -> list[tuple[int, int]]:
    """Character ranges of the words of a text, as Unicode's annex 29 has them.

    In scripts without blanks between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) they come from ICU's
    dictionaries. `BudgetExceededError` if the text is too long, or takes too long.
    """
    budget = budget or Budget(text)
    boundary, letter, *_ = _patterns()
    ranges: list[tuple[int, int, bool]] = []  # the last value says whether it is a run without blanks
    for start, end in pairwise(dict.fromkeys([0, *_boundaries(boundary, text, budget), len(text)])):
        piece = text[start:end]
        if not (piece.isalnum() or letter.search(piece)):
            continue
        run = is_unspaced(piece)
        if run and ranges and ranges[-1][1:] == (start, True):
            ranges[-1] = (ranges[-1][0], end, True)
        else:
            ranges.append((start, end, run))
    return [word for start, end, run in ranges for word in (_divided(text, start, end) if run else [(start, end)])]


def _divided(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The words of a run of letters without blanks."""
    from icu4py.breakers import WordBreaker

    letter = _patterns()[1]
    for piece in WordBreaker(text[start:end], "und"):
        if letter.search(piece):
            yield start, start + len(piece)
        start += len(piece)


def is_unspaced(word: str) -> bool:
    """Return True if a word is of a script without blanks between words."""
    return not word.isascii() and _patterns()[2].match(word) is not None


def _boundaries(boundary: Any, text: str, budget: Budget) -> list[int]:
    plain = _FLAG_LETTER.sub("\u2691", text)  # those of flags are no words, and cost the square of their number
    budget.spend()
    left = None if len(plain) <= SHORT else budget.seconds_left  # looking at the clock takes three quarters of the time
    try:
        matches = boundary.finditer(plain, timeout=left, concurrent=True)
        return [match.start() for match in matches]
    except TimeoutError:
        budget.timed_out()


def find_words(text: str, budget: Budget | None = None) -> list[FoundPart]:
    """Every word, as Unicode divides text."""
    return [FoundPart(start, end, "word", "meaning") for start, end in words(text, budget)]


def find_phrases(text: str, budget: Budget | None = None) -> list[FoundPart]:
    """The longest runs of content words between function words and punctuation, or a whole text without content words.

    In scripts without blanks every word is a phrase.
    """
    return [FoundPart(start, end, "phrase", "meaning") for start, end in phrase_ranges(text, budget)]


def phrase_ranges(text: str, budget: Budget | None = None) -> Sequence[tuple[int, int]]:
    """Character ranges of the phrases that `find_phrases` gives."""
    return _phrases_of_short(text) if len(text) <= SHORT else _phrases(text, budget or Budget(text))


@lru_cache(maxsize=8)
def _phrases_of_short(text: str) -> Sequence[tuple[int, int]]:
    """The phrases of a short text, kept, since its confidence and its doubts ask for them one after the other."""
    return _phrases(text, Budget(text))


def _phrases(text: str, budget: Budget) -> Sequence[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    last = -1  # end of the content word before
    found = words(text, budget)
    for place, (start, end) in enumerate(found):
        if is_function_word(text[start:end]) and not _is_in_name(text, found, place):
            last = -1
            continue
        # Between words without blanks nothing shows where a phrase ends.
        alone = is_unspaced(text[start:end])
        gap = text[last:start].strip(" '’-")
        if last >= 0 and not alone and (not gap or (gap == "." and _INITIAL.search(text, ranges[-1][0], last))):
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
        last = -1 if alone else end
    if not ranges and (stripped := text.strip()):
        begin = text.index(stripped)
        ranges = [(begin, begin + len(stripped))]
    return ranges


_OF_TITLES = frozenset(
    [
        "a",
        "and",
        "are",
        "as",
        "at",
        "by",
        "for",
        "from",
        "in",
        "is",
        "of",
        "on",
        "or",
        "the",
        "to",
        "was",
        "were",
        "with",
    ]
)
"""Function words that are written with a capital in titles, and are in no name by that alone."""


def _is_in_name(text: str, found: Sequence[tuple[int, int]], place: int) -> bool:
    """True if a function word is a part of a name: with a capital, and next to another capital word ("Hoi An")."""
    start, end = found[place]
    if not text[start].isupper() or plain_word(text[start:end]) in _OF_TITLES:
        return False
    before, after = found[place - 1] if place else None, found[place + 1] if place + 1 < len(found) else None
    if before is None or text[before[1] : start] != " ":  # it may have its capital from the beginning of a sentence
        return False
    if _is_capital(text, before):
        return True
    return text[start:end] != "I" and after is not None and text[end : after[0]] == " " and _is_capital(text, after)


def _is_capital(text: str, word: tuple[int, int]) -> bool:
    start, end = word
    return text[start].isupper() and not is_function_word(text[start:end])


def phrases(text: str) -> list[tuple[int, int]]:
    """Character ranges of the phrases of a text; one too long to be divided is one phrase."""
    try:
        return list(phrase_ranges(text))
    except BudgetExceededError:
        return [(0, len(text))]


def without_thinking(text: str) -> str:
    """A text with blanks in place of the thinking before an answer."""
    thought = thinking_end(text)
    return " " * thought + text[thought:]


def find_sentences(text: str, language: str) -> Iterator[FoundPart]:
    """Every sentence without the blanks around it; `language` is such as "en". `MissingExtra` without sentencex."""
    sentencex = require("sentencex", extra="parts")
    ranges = (
        (begin + sentence["start_index"], begin + sentence["end_index"])
        for begin, end in _pieces(text)
        for sentence in sentencex.get_sentence_boundaries(language, text[begin:end])
    )
    for start, end in ranges:
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            yield FoundPart(first, first + len(piece.strip()), "sentence", "meaning", aggregate="weakest")


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


LONG = 12
"""The number of tokens from which on an answer counts as a sentence and not as a short answer."""
_ENDS = (".", "!", "?", "\u3002", "\uff01", "\uff1f", "\u0964", "\u06d4", "\u061f", "\u17d4")
"""Signs that end a sentence, in several scripts."""
_CLOSING = " \n\r\t\"'\u201d\u2019\u00bb)]*_`\u300d\u300f\uff09"


def plain_words(text: str) -> Ranges:
    """Words with what a hyphen or an apostrophe joins to them, as everywhere where words are counted by newness."""
    *_, word = _patterns()
    ranges: Ranges = []
    for match in word.finditer(text):
        if not match[0].isascii() and any(map(is_unspaced, match[0])):
            ranges += _divided(text, *match.span())
        else:
            ranges.append(match.span())
    return ranges


def is_sentence(text: str, n_tokens: int) -> bool:
    """Return True if an answer counts as a sentence: it has 12 tokens or more, or a final stop."""
    return n_tokens >= LONG or text.rstrip(_CLOSING).endswith(_ENDS)
