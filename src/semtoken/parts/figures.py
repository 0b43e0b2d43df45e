"""Numbers with their units, dates, times, amounts of money, percentages; and references: URLs, addresses, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator

from semtoken.parts.part import Equality, Found

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_HALF_OF_DAY = r"[AaPp](?:[Mm]\b|\.[Mm]\b\.?)"
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_WHOLE = r"(?!\d)"  # a run of digits is taken whole or not at all, so that a long one is read once
_START = r"(?<!\w)(?<!\d\.)"  # not inside a word, a number, or a version such as v2.0
_END = rf"{_WHOLE}(?!\.\d)"  # nor the beginning of a version such as 2.0.1
_NUMBER = (
    rf"(?:(?<!\d,)[-+−]?(?:\d{{1,3}}(?:(?:,\d{{3}})+{_WHOLE}(?:\.\d+)?|(?:\.\d{{3}})+{_WHOLE}(?:,\d+)?"
    rf"|(?:(?:'\d{{3}})+|(?:[ \u00a0\u202f]\d{{3}})+){_WHOLE}(?:[.,]\d+)?){_WHOLE}"
    rf"|\d+{_WHOLE}(?:\.\d+{_WHOLE}|,\d+{_WHOLE}(?!,\d))?)"
    rf"|(?<=\d,)[-+−]?\d+{_WHOLE}(?:\.\d+{_WHOLE})?)"  # one of several, as in 1,2,3: without a decimal comma
    rf"(?:[eE][-+]?\d+{_WHOLE})?{_END}"
)
_SIGN = r"[$€£¥₹₩₽¢]"
_CODE = r"(?:USD|EUR|GBP|JPY|CHF|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|BRL|MXN|ZAR|KRW|dollars?|euros?|pounds?|cents?)"
_UNIT = (
    r"(?:[kMGT]?B|[kcmµn]?m[²³]?|[kmµ]?g|[mc]?l|[kMG]?Hz|[kMG]?W|k?Wh|[kmµn]?s|km/h|mph|kcal|°C|°F|°|K|t|ft|lbs?|"
    r"oz|ha|h|min|hours?|minutes?|seconds?|days?|weeks?|months?|years?|met(?:er|re)s?|kilomet(?:er|re)s?|miles?|"
    r"inch(?:es)?|foot|feet|"  # not "in", which is a preposition more often
    r"kilograms?|grams?|tons?|tonnes?|lit(?:er|re)s?|degrees|people|million|billion|trillion|thousand)(?!\w)"
)
_NO_UNIT = r"(?!(?:1\d|20)\d\d ?[sht](?!\w)|[2-9]0s(?!\w))"  # after years, as in 1945 and 1990s; the 90s are no seconds
_FIGURE = re.compile(
    rf"(?P<date>{_START}(?:\d{{4}}-\d\d-\d\d{_WHOLE}(?:T\d\d:\d\d(?::\d\d)?Z?)?|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}{_WHOLE}"
    rf"|{_DAY} (?:of )?{_MONTH}(?:,? \d{{4}}\b|(?!\w)))|\b{_MONTH}(?: {_DAY},? \d{{4}}\b|,? \d{{4}}\b| {_DAY}(?!\w)))"
    rf"|(?P<time>{_START}(?:\d{{1,2}}:\d\d(?::\d\d)?{_WHOLE}(?: ?{_HALF_OF_DAY})?"
    rf"|\d{{1,2}}(?:\.\d\d)? ?{_HALF_OF_DAY}))"
    rf"|(?P<money>{_SIGN} ?{_NUMBER}(?: (?:thousand|million|billion|trillion)(?!\w))?"
    rf"|{_START}{_NUMBER} ?(?:{_SIGN}|{_CODE}\b)|\b{_CODE} {_NUMBER})"
    rf"|(?P<percent>{_START}{_NUMBER} ?(?:%|percent\b|per cent\b))"
    rf"|(?P<quantity>{_START}{_NO_UNIT}{_NUMBER} ?{_UNIT})"
    rf"|(?P<number>{_START}{_NUMBER})"
)
_BARE = re.compile(_NUMBER)
# Each begins where nothing that it may hold stands before it, so that no character is read again and again.
_REFERENCE = re.compile(
    r"\b(?P<url>(?:https?|ftp)://[^\s<>\"'`)\]}]*[^\s<>\"'`)\]}.,;:!?])"
    r"|(?<![\w.+-])[.+-]*(?P<email>\w[\w.+-]*@[\w-]+(?:\.[\w-]+)*\.[\w-]*\w)"
    r"|(?P<path>(?<![\w/~.-])(?:~|\.{1,2})?/(?:[\w.-]+/)*[\w.-]*\w|\b[A-Za-z]:\\[^\s\"<>|]+)"
    r"|(?P<citation>\bdoi:\s?10\.\d{4,}/\S*\w|\barXiv:\s?\d{4}\.\d{4,5}|\[\d+(?:[,–-] ?\d+)*\])"
)


def find_figures(text: str) -> Iterator[Found]:
    """Every number with what belongs to it, and the number inside it where something does ("12.50" in "12.50 EUR").

    Versions and addresses such as 2.0.1 are no numbers; "1,2,3" are three, "1,200,300" is one.
    """
    for match in _FIGURE.finditer(text):
        kind = match.lastgroup or "number"
        whole = match.group()
        equality: Equality = "mixed" if any(map(str.isalpha, whole)) else "exact"
        ends_in_digit = whole[-1].isdigit()
        yield Found(
            match.start(),
            match.end(),
            kind,
            equality,
            ending="digits" if ends_in_digit else None,
            closing_in_confidence=ends_in_digit,
        )
        inner = _BARE.search(whole) if kind in ("money", "percent", "quantity") else None
        if inner is not None and inner.group() != whole:
            start, end = match.start() + inner.start(), match.start() + inner.end()
            yield Found(start, end, "number", "exact", ending="digits", closing_in_confidence=True)


def is_figure(text: str) -> bool:
    """Whether a text is one number, date, time or amount and nothing else."""
    return _FIGURE.fullmatch(text.strip()) is not None


def find_references(text: str) -> Iterator[Found]:
    """URLs, e-mail addresses, file paths and citations."""
    for match in _REFERENCE.finditer(text):
        kind = match.lastgroup or "reference"
        yield Found(match.start(kind), match.end(kind), kind, "exact")


def is_reference(text: str) -> bool:
    """Whether a text is one URL, address, path or citation and nothing else."""
    return _REFERENCE.fullmatch(text.strip()) is not None
