"""The function words that say nothing about an answer: NLTK's English stop list, shipped as a text file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def english_stopwords() -> frozenset[str]:
    """NLTK's 179 English stopwords, lower case, compared case-sensitively as the paper's code does."""
    text = (files("semtoken") / "data" / "stopwords_english.txt").read_text(encoding="utf-8")
    return frozenset(text.split())
