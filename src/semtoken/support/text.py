"""Texts and numbers as people may see them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

NEWLINE, END = "↵", "∎"
"""Signs for a newline at the end of an answer, and for a token without text."""
CUT_OFF = "cut off by the token limit"
"""What is said of an answer that did not come to its end."""


def visible(text: str, keep: str = "\n\t") -> str:
    """A text with its unprintable characters as escapes, except those in `keep`.

    Model names, error messages and answers come from elsewhere; escape sequences in them could rename a window, clear
    the screen or hide what was written before.
    """
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """A text for one line, with everything unprintable, line ends too, as escapes."""
    return visible(text, keep="")


def shortened(text: str, most: int = 60) -> str:
    """A text for one line: its beginning, where it is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number(value: float, digits: int = 3) -> str:
    """A probability or uncertainty for people: `0.213`, and `> 0.999` or `< 0.001` where rounding would say 1 or 0.

    `1.000` and `0.000` are shown only where the number is exactly that.
    """
    text, least = f"{value:.{digits}f}", 10.0**-digits
    if float(text) == 0.0 and value > 0.0:
        return f"< {least:.{digits}f}"
    if float(text) == 1.0 and value < 1.0:
        return f"> {1.0 - least:.{digits}f}"
    return text


def percentage(share: float) -> str:
    """A confidence for people, in percent with two digits that count: `37 %`, `0.33 %`, `99.6 %`.

    Small ones are not rounded away: of long answers many are small, and they are not alike.
    """
    percent = 100.0 * share
    if percent >= 99.0:
        return "100 %" if percent == 100.0 else "> 99.9 %" if percent > 99.9 else f"{percent:.1f} %"
    if 0.0 < percent < 1e-4:
        return "< 0.0001 %"
    digits = 0 if percent >= 10.0 or percent == 0.0 else 1 - math.floor(math.log10(percent))
    return f"{percent:.{digits}f} %"


def with_bounds(value: float, bounds: tuple[float, float]) -> str:
    """A number, and its bounds where they are not the same to three decimals: `0.213 (0.194 to 0.230)`."""
    low, high = map(number, bounds)
    return number(value) if low == high else f"{number(value)} ({low} to {high})"


def last_of_user(messages: Sequence[Any]) -> str:
    """The last message of a user, its texts joined where it has several; nothing where there is none."""
    said = [one.get("content") for one in messages if isinstance(one, Mapping) and one.get("role") == "user"]
    content = said[-1] if said else ""
    if isinstance(content, list):
        texts = (one.get("text") for one in content if isinstance(one, Mapping))
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""
