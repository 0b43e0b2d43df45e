"""Numbers with their units, dates, times, amounts of money, percentages; and references: URLs, addresses, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator

from semtoken.parts.records import Equality, Found

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_NUMBER = r"[-+−]?(?:\d{1,3}(?:[,.'  ]\d{3})+|\d+)(?:[.,]\d+)?(?:[eE][-+]?\d+)?"
_SIGN = r"[$€£¥₹₩₽¢]"
_CODE = r"(?:USD|EUR|GBP|JPY|CHF|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|BRL|MXN|ZAR|KRW|dollars?|euros?|pounds?|cents?)"
_UNIT = (
    r"(?:[kMGT]?B|[kcmµn]?m[²³]?|[kmµ]?g|[mc]?l|[kMG]?Hz|[kMG]?W|k?Wh|[kmµn]?s|km/h|mph|kcal|°C|°F|°|K|t|ft|in|lbs?|"
    r"oz|ha|h|min|hours?|minutes?|seconds?|days?|weeks?|months?|years?|met(?:er|re)s?|kilomet(?:er|re)s?|miles?|"
    r"kilograms?|grams?|tons?|tonnes?|lit(?:er|re)s?|degrees|people|million|billion|trillion|thousand)"
)
_FIGURE = re.compile(
    rf"(?P<date>\d{{4}}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?Z?)?|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}"
    rf"|{_DAY} (?:of )?{_MONTH},? \d{{4}}\b|{_MONTH} {_DAY},? \d{{4}}\b|{_MONTH},? \d{{4}}\b"
    rf"|{_DAY} (?:of )?{_MONTH}(?!\w)|{_MONTH} {_DAY}(?!\w))"
    r"|(?P<time>(?<!\d)\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]\.?m\b\.?)?|(?<!\d)\d{1,2} ?[ap]m\b)"
    rf"|(?P<money>{_SIGN} ?{_NUMBER}(?: (?:thousand|million|billion|trillion))?"
    rf"|{_NUMBER} ?(?:{_SIGN}|{_CODE}\b)|{_CODE} {_NUMBER})"
    rf"|(?P<percent>{_NUMBER} ?(?:%|percent\b|per cent\b))"
    rf"|(?P<quantity>(?<![\w.]){_NUMBER} ?{_UNIT}(?!\w))"
    rf"|(?P<number>(?<!\w){_NUMBER})"
)
_BARE = re.compile(_NUMBER)
_REFERENCE = re.compile(
    r"(?P<url>\b(?:https?|ftp)://[^\s<>\"'`)\]}]*[^\s<>\"'`)\]}.,;:!?])"
    r"|(?P<email>\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b)"
    r"|(?P<path>(?<![\w/])(?:~|\.{1,2})?/(?:[\w.-]+/)*[\w.-]*\w|\b[A-Za-z]:\\[^\s\"<>|]+)"
    r"|(?P<citation>\bdoi:\s?10\.\d{4,}/\S*\w|\barXiv:\s?\d{4}\.\d{4,5}|\[\d+(?:[,–-] ?\d+)*\])"
)


def find_figures(text: str) -> Iterator[Found]:
    """Every number with what belongs to it, and the number inside it where something does ("12.50" in "12.50 EUR")."""
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
        yield Found(match.start(), match.end(), match.lastgroup or "reference", "exact")


def is_reference(text: str) -> bool:
    """Whether a text is one URL, address, path or citation and nothing else."""
    return _REFERENCE.fullmatch(text.strip()) is not None
