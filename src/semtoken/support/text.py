"""Texts and numbers as people may see them, in a line or in HTML; where the thinking before an answer ends."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

NEWLINE, END = "↵", "∎"
"""Signs for a newline at the end of an answer, and for a token without text."""
CUT_OFF = "cut off by the token limit"
"""What is said of an answer that did not come to its end."""


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


def with_bounds(value: float, bounds: tuple[float, float], digits: int = 3) -> str:
    """A number with its bounds, if these differ in the decimals shown: `0.213 (0.194 to 0.230)`."""
    low, high = (number(end, digits) for end in bounds)
    return number(value, digits) if low == high else f"{number(value, digits)} ({low} to {high})"


# HTML: every text is escaped; only what these functions made is taken as HTML.

CARD = "border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:.6em 1em;margin:.4em 0;max-width:60em"
NOTE = "font-size:.9em;margin:.3em 0;opacity:.85"
CELL = "text-align:left;vertical-align:top;padding:.2em .8em .2em 0"
NUMBER = CELL.replace("left", "right", 1) + ";white-space:nowrap;font-variant-numeric:tabular-nums"
MOST_ROWS = 50
"""Most rows that a table shows: a longer one would bury the rest of the notebook."""


class Html(str):
    """Text that is HTML already and is not escaped again."""


def element(tag: str, *children: str, **attributes: str) -> Html:
    """An element with its children, texts among them escaped and unprintable characters made visible."""
    written = "".join(f' {name.rstrip("_")}="{html.escape(visible(value))}"' for name, value in attributes.items())
    return Html(f"<{tag}{written}>{concatenate(children)}</{tag}>")


def concatenate(children: Iterable[str]) -> Html:
    """Concatenate texts and elements."""
    return Html("".join(child if isinstance(child, Html) else html.escape(visible(child)) for child in children))


def card(*children: str) -> Html:
    """A frame around one result, as HTML."""
    return element("div", *children, class_="semtoken", style=CARD)


def heading(text: str) -> Html:
    """The first line of a card."""
    return element("p", element("b", text), style="margin:.2em 0")


def note(text: str) -> Html:
    """A sentence in smaller type."""
    return element("p", text, style=NOTE)


def with_noun(n: int, noun: str) -> str:
    """A number with its noun in the singular or plural: `1 part`, `2 parts`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def folded(summary: str, *children: str) -> Html:
    """A section that opens on a click, without a script."""
    return element("details", element("summary", summary), *children)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int] = (), title: str = ""
) -> Html:
    """A table that scrolls sideways where it is too wide, and says how many rows it leaves out.
    `rows` hold texts or elements; `numbers` are the columns, from 0, that hold numbers.
    """
    right = set(numbers)
    styles = [NUMBER if column in right else CELL for column in range(len(header))]
    head = [element("th", name, scope="col", style=style) for name, style in zip(header, styles, strict=True)]
    body = [
        element("tr", *(element("td", cell, dir="auto", style=s) for cell, s in zip(row, styles, strict=True)))
        for row in rows[:MOST_ROWS]
    ]
    caption = [element("caption", title, style="text-align:left;white-space:nowrap")] if title else []
    parts = [*caption, element("thead", element("tr", *head)), element("tbody", *body)]
    made = element("table", *parts, style="color:inherit;font-size:inherit;border-collapse:collapse")
    left_out = len(rows) - len(body)
    rest = [note(f"Not shown: {with_noun(left_out, 'more row')}.")] if left_out else []
    scrolling = {
        "style": "overflow-x:auto",
        "tabindex": "0",
        "role": "group",
        "aria-label": title or ", ".join(header),
    }
    return concatenate([element("div", made, **scrolling), *rest])


_NAMES = "(?:[a-z]+:)?(?:think|thinking|thought|reasoning)"
_MARKS = (
    (f"<{_NAMES}>", f"</{_NAMES}>"),
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|channel>thought\b", r"<channel\|>"),  # Gemma
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>(?:<\|START_RESPONSE\|>)?"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>(?:\s*<\|begin_of_solution\|>)?"),
    # gpt-oss: channels, of which the last is the answer
    (r"(?:<\|start\|>assistant)?<\|channel\|>", r"<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"),
    (r"(?:analysis|commentary)(?=[\s\S]*assistantfinal)", "assistantfinal"),  # the same, its special tokens left out
)
"""What opens a thinking, and what ends it. A tag may have a prefix, as `<seed:think>`."""
_OPENING = re.compile("|".join(rf"\s*({opening})" for opening, _ in _MARKS))
_CLOSINGS = tuple(re.compile(closing) for _, closing in _MARKS)
_CLOSING = re.compile("|".join(closing for _, closing in _MARKS))
_ANY_OPENING = re.compile("|".join(opening for opening, _ in _MARKS[:-1]))


def may_hold_marks(text: str) -> bool:
    """Whether a text holds any of the signs without which it has no mark of a thinking, as most have not."""
    return any(map(text.__contains__, ("<", "[", "◁", "assistantfinal")))


def thinking_end(text: str, tokens: Callable[[], Iterable[str | None]] = tuple, *, opened: bool = False) -> int:
    """The number of characters that belong to the thinking: 0 without any, all of them where it does not end.

    Marks divide a text if they open it, or if the prompt did. That is known (`opened`), or else likely where a closing
    mark without an opening one ends its line and is a token of its own, of those whose texts `tokens` gives. A text
    that speaks of the marks is none that was thought.
    """
    opening = _OPENING.match(text)
    if opening:
        closing = _CLOSINGS[(opening.lastindex or 1) - 1].search(text)
        return closing.end() if closing else len(text)
    closing = _CLOSING.search(text)
    if not closing or _ANY_OPENING.search(text, 0, closing.start()):
        return 0
    if opened or (_ends_line(text, closing.end()) and _is_token(closing, tokens())):
        return closing.end()
    return 0


def unclear_mark(text: str, tokens: Iterable[str | None], *, thought: bool) -> str | None:
    """A mark inside an answer that may belong to a thinking; None without one.

    That is a closing one without an opening one, or, behind a text that was `thought`, a further one that opens.
    """
    closing = _CLOSING.search(text)
    opening = _ANY_OPENING.search(text, 0, closing.start() if closing else len(text))
    mark = opening if thought else None if opening else closing
    return mark.group().strip() if mark and _is_token(mark, tokens) else None


def _is_token(mark: re.Match[str], tokens: Iterable[str | None]) -> bool:
    return any(token and mark.group().strip() == token.strip() for token in tokens)


def _ends_line(text: str, end: int) -> bool:
    return text[end:].lstrip(" ")[:1] in ("", "\n", "\r")
