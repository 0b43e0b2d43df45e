"""The figures and references of a text.

Figures are numbers with their units, dates, times, amounts of money and percentages; references are URLs, addresses,
paths and citations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from semtoken.core.parts.part import FoundPart, PartEquality

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_GAP = "[ \u00a0\u202f]?"  # a blank, or one that keeps a line together, as in "5\u00a0€" and "10:30\u202fPM"
_CLOSE = "\u0e00-\u0e4f\u3005-\u30ff\u3400-\u9fff\uac00-\ud7a3"  # Thai, Han, kana, Hangul: close to numbers
_APART = rf"(?<![^\W_{_CLOSE}])(?<![^\W_]_)"  # behind no letter that would make one word of it; _42_ is emphasis
_LAST = rf"(?![^\W{_CLOSE}])"  # nor before one
_HALF_OF_DAY = r"[AaPp](?:[Mm]\b|\.[Mm]\b\.?)"
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_WHOLE = r"(?!\d)"  # a run of digits is taken whole or not at all, so that a long one is read once
_START = rf"{_APART}(?<!\d\.)(?!0[xXbBoO]\w)"  # not inside a word, a number, or a version such as v2.0; 0x1F is code
_END = rf"{_WHOLE}(?!\.\d)(?!_\d)"  # nor the beginning of a version such as 2.0.1, or of 1_000
_NUMBER = (
    rf"(?:(?<!\d,)[-+−]?(?:\d{{1,3}}(?:(?:[,٬]\d{{3}})+{_WHOLE}(?:[.٫]\d+)?|(?:\.\d{{3}})+{_WHOLE}(?:,\d+)?"
    rf"|(?:(?:['’]\d{{3}})+|(?:[ \u00a0\u202f]\d{{3}})+){_WHOLE}(?:[.,]\d+)?){_WHOLE}"
    rf"|\d{{1,2}}(?:,\d\d)+,\d{{3}}{_WHOLE}(?!,\d)(?:\.\d+)?{_WHOLE}"  # as in India: 12,34,567
    rf"|\d+{_WHOLE}(?:[.٫]\d+{_WHOLE}|,\d+{_WHOLE}(?!,\d))?)"
    rf"|(?<=\d,)[-+−]?\d+{_WHOLE}(?:\.\d+{_WHOLE})?"  # one of several, as in 1,2,3: without a decimal comma
    rf"|(?<![\w.,])[-+−]?\.\d+{_WHOLE})"  # .5
    rf"(?:[eE][-+]?\d+{_WHOLE})?{_END}"
)
_SIGN = r"[$€£¥₹₩₽¢]"
_CODE = r"(?:USD|EUR|GBP|JPY|CHF|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|BRL|MXN|ZAR|KRW|dollars?|euros?|pounds?|cents?)"
_TIMES = rf"(?:{_GAP}(?:thousand|[mbtr]{{1,2}}illion|crore|lakh|[kKmM]|[mbt]n|B|T){_LAST})"
_SINGLE = (
    r"(?:[kMGT]?B|[KMGT]iB|[kcmµμn]?m[²³]?|[kmµμ]?g|[mc]?[lL]|[kMG]?Hz|[kMG]?W|k?Wh|[kmµμn]?s|mph|kcal|°C|°F|°|K|t|ft|lbs?|"
    r"oz|ha|h|hrs?|mins?|secs?|hours?|minutes?|seconds?|days?|weeks?|months?|years?|met(?:er|re)s?|kilomet(?:er|re)s?|"
    r"miles?|inch(?:es)?|foot|feet|"  # not "in", which is a preposition more often
    rf"kilograms?|grams?|tons?|tonnes?|lit(?:er|re)s?|degrees|people|million|billion|trillion|thousand){_LAST}"
)
_UNIT = rf"(?:{_SINGLE}(?:/{_SINGLE})?)"
_NO_UNIT = rf"(?!(?:1\d|20)\d\d{_GAP}[sht](?!\w)|[2-9]0s(?!\w))"  # after years (1945, 1990s); the 90s are no seconds
_FIGURE = re.compile(
    rf"(?P<date>{_START}(?:\d{{4}}-\d\d-\d\d{_WHOLE}(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d{_WHOLE})?)?"
    rf"|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}{_WHOLE}|\d{{4}}年\d{{1,2}}月\d{{1,2}}日"
    rf"|{_DAY} (?:of )?{_MONTH}(?:,? \d{{4}}\b|(?!\w)))|\b{_MONTH}(?: {_DAY},? \d{{4}}\b|,? \d{{4}}\b| {_DAY}(?!\w)))"
    rf"|(?P<time>{_START}(?:\d{{1,2}}:\d\d(?::\d\d)?{_WHOLE}(?:{_GAP}{_HALF_OF_DAY})?"
    rf"|\d{{1,2}}(?:\.\d\d)?{_GAP}{_HALF_OF_DAY}))"
    rf"|(?P<money>{_SIGN}{_GAP}{_NUMBER}{_TIMES}?"
    rf"|{_START}{_NUMBER}{_GAP}(?:{_SIGN}|{_CODE}{_LAST})|\b{_CODE}[ \u00a0\u202f]{_NUMBER})"
    rf"|(?P<percent>{_START}{_NUMBER}{_GAP}(?:%|(?:percent|per cent){_LAST}))"
    rf"|(?P<quantity>{_START}{_NO_UNIT}{_NUMBER}{_GAP}{_UNIT})"
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


def find_figures(text: str) -> Iterator[FoundPart]:
    """Every number with what belongs to it, and the number inside it where something does ("12.50" in "12.50 EUR").

    Versions and addresses such as 2.0.1 are no numbers; "1,2,3" are three, "1,200,300" is one.
    """
    for match in _FIGURE.finditer(text):
        kind = match.lastgroup or "number"
        whole = match.group()
        equality: PartEquality = "mixed" if any(map(str.isalpha, whole)) else "exact"
        ends_in_digit = whole[-1].isdigit()
        yield FoundPart(
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
            yield FoundPart(start, end, "number", "exact", ending="digits", closing_in_confidence=True)


def is_figure(text: str) -> bool:
    """Return True if a text is one number, date, time or amount and nothing else."""
    return _FIGURE.fullmatch(text.strip()) is not None


def find_references(text: str) -> Iterator[FoundPart]:
    """URLs, e-mail addresses, file paths and citations."""
    for match in _REFERENCE.finditer(text):
        kind = match.lastgroup or "reference"
        yield FoundPart(match.start(kind), match.end(kind), kind, "exact")


def is_reference(text: str) -> bool:
    """Return True if a text is one URL, address, path or citation and nothing else."""
    return _REFERENCE.fullmatch(text.strip()) is not None
