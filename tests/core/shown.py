"""Answers to be shown, and the HTML that shows them as a browser sees it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from rich.style import Style
from rich.table import Table
from rich.text import Text

from semtoken.core.results import Alternative, ScoredAnswer, ScoredToken

NASTY = "</p><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[31m\u202e"
TAGS = {*("div", "p", "b", "mark", "small", "span", "details", "summary")} | {
    *("table", "caption", "thead", "tbody", "tr", "th", "td")
}
ATTRIBUTES = {"class", "style", "title", "dir", "scope", "tabindex", "role", "aria-label"}


def token(
    text: str,
    start: int,
    end: int,
    agreeing: float = 1.0,
    probability: float | None = None,
    *,
    neutral: bool = False,
    alternatives: Sequence[Alternative] = (Alternative(9, NASTY, 0.2, "other", counted=False),),
) -> ScoredToken:
    """A token whose own probability is the agreeing one, unless it is given."""
    own, agreed = math.log(agreeing if probability is None else probability), math.log(agreeing)
    return ScoredToken(1, text, start, end, own, agreed, own, agreed, neutral, agreeing, 0.0, 0.0, tuple(alternatives))


def answer(*words: tuple[str, float], **fields: Any) -> ScoredAnswer:
    """An answer whose words are tokens of a given probability; `text` and `tokens` may be given in their place."""
    starts = [sum(len(word) for word, _ in words[:k]) for k in range(len(words))]
    tokens = [token(word, start, start + len(word), p) for start, (word, p) in zip(starts, words, strict=True)]
    known: dict[str, Any] = {
        "text": "".join(word for word, _ in words),
        "tokens": tuple(tokens),
        "log_confidence": math.fsum(math.log(p) for _, p in words),
        "preset": "default",
        "distribution": "raw",
        "neutral_only": False,
        "signature": NASTY,
    }
    return ScoredAnswer(**(known | fields))


class Seen(HTMLParser):
    """A fragment as a browser sees it; every element is closed and does nothing but look."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.text, self.marks, self.rows, self.open = "", list[str](), 0, list[str]()
        self.tags, self.titles = set[str](), list[str]()
        self.feed(fragment)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert tag in TAGS and given.keys() <= ATTRIBUTES and "url(" not in given.get("style", "")
        self.open.append(tag)
        self.tags.add(tag)
        self.rows += tag == "tr" and "tbody" in self.open
        self.titles += [given["title"]] if "title" in given else []
        self.marks += [given["title"]] if tag == "mark" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


BLOCKS = {"div", "p", "summary", "caption", "tr"}
"""Elements that begin on a line of their own."""


class ReadHtml(HTMLParser):
    """A fragment as a reader sees it: cells between bars, titles in brackets, underlines and bold words by name."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.text, self._ends = "", list[str]()
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        line = re.search(r"text-decoration:underline (\w+)", given.get("style", ""))
        seen = [line[1]] if line else []
        seen += ["bold"] if tag == "b" else []
        seen += [given["title"]] if "title" in given else []
        self.text += "\n" if tag in BLOCKS and self.text[-1:] not in ("", "\n") else ""
        self.text += "| " if tag in ("td", "th") else ""
        self._ends.append(f" [{'; '.join(seen)}]" if seen else "")

    def handle_endtag(self, tag: str) -> None:
        self.text += self._ends.pop() + (" " if tag in ("td", "th") else "")
        self.text += "\n" if tag in BLOCKS and self.text[-1:] != "\n" else ""

    def handle_data(self, data: str) -> None:
        self.text += data


def read_html(fragment: str) -> str:
    """The lines that a reader sees of a fragment of HTML."""
    return re.sub(" +$", "", ReadHtml(fragment).text.strip(), flags=re.MULTILINE)


def read_text(shown: Text) -> str:
    """Words for a terminal as a reader sees them, with what is shaded, underlined and bold in brackets."""
    read, at = "", 0
    for span in shown.spans:
        style = Style.parse(str(span.style))
        names = {"shaded": style.bgcolor, "underlined": style.underline, "bold": style.bold, "dim": style.dim}
        read += f"{shown.plain[at : span.end]} [{', '.join(name for name, on in names.items() if on)}]"
        at = span.end
    return read + shown.plain[at:]


def read_table(shown: Table) -> str:
    """The cells of a table for a terminal, its names above them."""
    columns = [[str(column.header), *map(str, column.cells)] for column in shown.columns]
    return "\n".join(" | ".join(row).rstrip() for row in zip(*columns, strict=True))
