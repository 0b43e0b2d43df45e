"""English function words, which say nothing about an answer: NLTK's list, shipped as a text file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_APOSTROPHES = str.maketrans(dict.fromkeys("’‘ʼ＇", "'"))


@cache
def english_stopwords() -> frozenset[str]:
    """NLTK's 179 English stopwords, lower case, compared case-sensitively as the paper's code does."""
    text = (files("semtoken") / "data" / "stopwords_english.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def is_function_word(word: str) -> bool:
    """Return True if a word of a text is an English function word, however it is written: "The", "_the_", "don’t"."""
    return plain_word(word) in english_stopwords()


def plain_word(word: str) -> str:
    """A word in lower case, without underscores around it, which mark emphasis, and with plain apostrophes."""
    return word.strip("_").lower().translate(_APOSTROPHES)
