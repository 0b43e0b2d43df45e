"""Texts and numbers as people may see them, in a line of a terminal or of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

NEWLINE, END = "↵", "∎"
"""Signs for a newline at the end of an answer, and for a token without text."""
CUT_OFF = "cut off by the token limit"
"""The words for an answer that did not come to its end."""


def visible(text: str, keep: str = "\n\t") -> str:
    """A text with its unprintable characters, except those in `keep`, as escapes: text from elsewhere (names of models,
    errors, answers) could rename a window, clear the screen or hide what was written before.
    """
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """A text on one line, with line ends and everything unprintable as escapes."""
    return visible(text, keep="")


def error_text(error: Any) -> str:
    """The message of an error report, on one line of at most 500 characters."""
    said = error.get("message", error) if isinstance(error, Mapping) else error
    return " ".join(str(said).split())[:500]


def shortened(text: str, most: int = 60) -> str:
    """A text cut to at most `most` characters, with an ellipsis at the end of one that was longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to add to an unknown name, such as ` (did you mean 'perplexity'?)`; empty if no known name is like it."""
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def number(value: float, digits: int = 3) -> str:
    """A probability or uncertainty as text: `0.213`, and `> 0.999` or `< 0.001` where rounding would give 1 or 0.
    `1.000` and `0.000` are shown only where the number is exactly that.
    """
    text, least = f"{value:.{digits}f}", 10.0**-digits
    if float(text) == 0.0 and value > 0.0:
        return f"< {least:.{digits}f}"
    if float(text) == 1.0 and value < 1.0:
        return f"> {1.0 - least:.{digits}f}"
    return text


def percent(share: float) -> str:
    """The probability that a model gave a word, as whole percent; `under 1%` and `over 99%` at the ends."""
    if share < 0.01:
        return "under 1%"
    return "over 99%" if share > 0.99 else f"{100 * share:.0f}%"


def probability(share: float) -> str:
    """A probability of being right as whole percent; `under 1%` and `over 99%` where rounding would give 0% or 100%."""
    text = f"{share:.0%}"
    if text == "0%" and share > 0.0:
        return "under 1%"
    return "over 99%" if text == "100%" and share < 1.0 else text


def with_bounds(value: float, bounds: tuple[float, float], digits: int = 3) -> str:
    """A number with its bounds, if these differ in the decimals shown: `0.213 (0.194 to 0.230)`."""
    low, high = (number(end, digits) for end in bounds)
    return number(value, digits) if low == high else f"{number(value, digits)} ({low} to {high})"


def with_noun(n: int, noun: str) -> str:
    """A number with its noun in the singular or plural: `1 part`, `2 parts`, `2 replies`."""
    plural = f"{noun[:-1]}ies" if noun.endswith(("ry", "ly")) else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"
