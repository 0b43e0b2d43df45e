"""The words that an answer adds to its question, the phrases that hold one, and how sure the model was of them.

A word of the question in another form (possessive, plural, case, accents) is not new. "Yes", "no", "true" and their
like are where they open an answer, and so is a number that is all of it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from semtoken.clustering.function_words import english_stopwords, plain_word
from semtoken.core.parts.answers import tokens_touching
from semtoken.core.parts.prose import NEGATIONS, Ranges, is_unspaced, phrases, plain_words, without_thinking
from semtoken.core.scored_token import ScoredToken, TokenMark
from semtoken.support.inputs import text

VERDICTS = frozenset(
    (
        *("yes", "yeah", "yep", "nope", "true", "false", "correct", "incorrect", "both"),
        *("sí", "oui", "non", "ja", "nein", "sim", "não", "да", "нет"),
        *("是", "是的", "对", "不", "不是", "はい", "いいえ", "네", "아니요"),
    )
)
"""Words that answer a question by themselves, also where they stand in it ("True or false?")."""
_OR = frozenset(("or", "oder", "ou", "o", "или", "还是", "或", "または", "それとも", "또는"))
_ASKING_YES_OR_NO = frozenset(
    (
        *("is", "are", "was", "were", "am", "do", "does", "did", "can", "could", "will", "would", "has", "have", "had"),
        *("should", "shall", "may", "might", "must", "isn't", "aren't", "wasn't", "weren't", "don't", "doesn't"),
        *("didn't", "can't", "couldn't", "won't", "wouldn't", "hasn't", "haven't", "hadn't", "shouldn't"),
    )
)
_GAP = re.compile(r"\n\s*\n")
_ASKS = re.compile("[?？؟]")
_ENDS_SENTENCE = re.compile(r"[\"'”’)\]]*+\s*+(?:[.!?]|\Z)")
_LABEL = re.compile(r"(?:(?<!\s)\s+)?(?:question|q|user|human)\s*:\s*", re.IGNORECASE)
_ANSWER = re.compile(r"(?:(?<!\s)\s+)?\b(?:answer|a|assistant)\s*:\s*\Z", re.IGNORECASE)
"""The marks of questions and answers in texts for models without a chat form."""
_PLURALS = (
    ("ies", "y"),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("oes", "o"),
    ("s", ""),
)
"""Endings of plurals, which all end in "s", and the endings of their singulars."""
_SHORTEST = 3  # letters that are left of a plural: "as" is none of "a"


class _Word(NamedTuple):
    """A word of an answer."""

    start: int
    end: int
    plain: str
    """The word in lower case, without possessive."""
    repeats: bool
    """True if it stands in the question, in some form."""
    ends: bool
    """True for a letter that ends a sentence, as an article does not: "The symbol of iodine is I."."""

    @property
    def is_content(self) -> bool:
        return self.plain not in english_stopwords() or (len(self.plain) == 1 and (self.ends or self.plain not in "ai"))

    @property
    def is_number(self) -> bool:
        return self.plain[:1].isdigit()


def new_words(said: str, question: str = "") -> Ranges:
    """Character ranges of the content words of an answer that are new: no function words, and none of the question.

    What the text marks as thinking before the answer has none. A word of a script without blanks stands in the question
    wherever its letters do.
    """
    words = _beside(said, _bare_words(without_thinking(said)), text(question, "question"))
    return [(word.start, word.end) for word in _new(words)]


def _new(words: list[_Word]) -> list[_Word]:
    content = [word for word in words if word.is_content]
    only_numbers = all(word.is_number for word in content)
    return [word for word in content if only_numbers or not word.repeats or _is_verdict(word, words)]


def _is_verdict(word: _Word, words: list[_Word]) -> bool:
    """True if a word answers by itself: "yes" or "not" that the question does not hold, or that opens the answer."""
    known = word.plain in VERDICTS or word.plain in NEGATIONS
    return known and (not word.repeats or word.start == words[0].start)


def new_phrases(said: str, question: str = "") -> Ranges:
    """Character ranges of the phrases of an answer that hold a new word; none where it only repeats the question.

    Where none is new to the whole message, those count that are new to the question in it, beside instructions and
    material. If there are none either, the answer only repeats the question, unless that may hold its own answer
    (`offers_answers`): then all phrases count. Of an answer without another new word its "no" or "not" does.
    """
    shown, asked = without_thinking(said), question_in(question)
    every, written = phrases(shown), _bare_words(shown)
    for known in dict.fromkeys((question, asked)):
        words = _beside(said, written, known)
        new = [(word.start, word.start + len(said[word.start : word.end].rstrip("'’"))) for word in _new(words)]
        starts = [start for start, _ in new]
        if found := [(a, b) for a, b in every if bisect_left(starts, a) < bisect_left(starts, b)] or new:
            return found  # a single letter may be a word and in no phrase
    if verdicts := [(word.start, word.end) for word in words if _is_verdict(word, words)]:
        return verdicts
    repeats = any(word.is_content for word in words) or (words and all(word.repeats for word in words))
    # "Paris or Rome?" may rightly be answered by a word that it holds.
    return [] if repeats and not offers_answers(asked) else every


def question_in(message: str) -> str:
    """The question in a message: its last paragraph with a question mark, else its last one, without "Question:"."""
    paragraphs = [part for part in _GAP.split(text(message, "question").strip()) if part.strip()] or [""]
    asking = [part for part in paragraphs if _ASKS.search(part)] or paragraphs
    last = paragraphs[-1] if _LABEL.match(paragraphs[-1]) else asking[-1]
    return _ANSWER.sub("", _LABEL.sub("", last)).strip()


def offers_answers(question: str) -> bool:
    """True if a right answer may consist of words of its question: yes or no (as English asks), "A or B", a list."""
    first, *others = (plain_word(question[a:b]) for a, b in plain_words(question)) if question else ("",)
    return first in _ASKING_YES_OR_NO or not _OR.isdisjoint(others) or ":" in question or "\n" in question


def new_word_confidence(
    said: str, marks: Callable[[], Sequence[TokenMark | ScoredToken]], question: str = ""
) -> float | None:
    """Geometric mean in [0, 1] of the confidences of the words of an answer that are new; None without such words.

    The confidence of a word is the product over its tokens, by the answer's own rules: `marks` gives all
    tokens of the answer. Words of the question do not count; without it all content words do. A ranking, not a
    probability.
    """
    spans = new_words(said, question)
    if not spans:
        return None
    touching = tokens_touching(marks(), spans)
    logs = [math.fsum(token.log_agreeing_probability for token in tokens) for tokens in touching]
    return math.exp(math.fsum(logs) / len(logs))


class _BareWord(NamedTuple):
    """A word of a text."""

    start: int
    end: int
    plain: str
    """The word in lower case with plain apostrophes and without its possessive: "Poland’s" and "Poland" are one."""


def _beside(said: str, written: Sequence[_BareWord], question: str) -> list[_Word]:
    """The words that are written in an answer, held against those of a question."""
    known = {form for word in _bare_words(question) for form in _forms(word.plain)}
    words = []
    for start, end, plain in written:
        # Without a question, as of most files, no form is looked for.
        repeats = bool(question) and (
            not known.isdisjoint(_forms(plain)) or (said[start:end] in question and is_unspaced(said[start:end]))
        )
        ends = len(plain) == 1 and _ENDS_SENTENCE.match(said, end) is not None
        words.append(_Word(start, end, plain, repeats, ends))
    return words


def _bare_words(said: str) -> list[_BareWord]:
    """The words of a text."""
    words = []
    for start, end in plain_words(said):
        plain = plain_word(said[start:end])
        words.append(_BareWord(start, end, plain.removesuffix("'s").removesuffix("'") or plain))
    return words


def _forms(plain: str) -> set[str]:
    """The words of which a word may be a form: itself without accents, and possible singulars."""
    letters = plain.casefold()
    if not letters.isascii():
        decomposed = unicodedata.normalize("NFKD", letters)
        letters = "".join(c for c in decomposed if not "\u0300" <= c <= "\u036f")  # marks of other scripts are letters
    if not letters.endswith("s"):
        return {letters}
    singular = {letters.removesuffix(end) + ending for end, ending in _PLURALS if letters.endswith(end)}
    return {letters, *(form for form in singular if len(form) >= _SHORTEST)}
