"""HTML in which every text is escaped: only what these functions made is taken as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from semtoken.support.text import visible, with_noun

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
