"""A table of a report: a frame of texts with the headings of its groups and its best entries marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from semtoken.support.extras import require
from semtoken.support.html_elements import Html, concatenate, element
from semtoken.support.html_elements import table as html_table

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Mark = Literal["", "best", "second"]


class TableEntry(NamedTuple):
    """One cell of a table as it is written."""

    text: str
    detail: str
    """The interval beside it."""
    mark: Mark


@dataclass(frozen=True, eq=False)
class Table:
    """A table of the report."""

    name: str
    """The name of its file, without the ending, and of its anchor on the page."""
    title: str
    frame: DataFrame
    """Texts. The index holds the heading of each row's group, empty without one; the first column names the row."""
    note: str = ""
    left: int = 1
    """Number of columns of text on the left; the others hold numbers."""
    marks: DataFrame | None = None
    """The mark of each text: "best", "second" or empty."""

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.frame.columns)

    @property
    def alignments(self) -> tuple[Literal["left", "right"], ...]:
        """The side to which each column is aligned."""
        return tuple("left" if i < self.left else "right" for i in range(len(self.header)))

    @property
    def groups(self) -> list[tuple[str, list[list[TableEntry]]]]:
        """The heading and the rows of each group."""
        groups: dict[str, list[list[TableEntry]]] = {}
        marks = [[""] * len(self.header)] * len(self.frame) if self.marks is None else self.marks.to_numpy().tolist()
        for title, texts, own in zip(self.frame.index, self.frame.to_numpy().tolist(), marks, strict=True):
            groups.setdefault(title, []).append(list(map(_entry, texts, own)))
        return list(groups.items())


def _entry(text: str, mark: Mark) -> TableEntry:
    """The interval apart from the number before it."""
    value, bracket, interval = text.partition(" [") if text[:1].isdigit() or text[:1] in "+-" else (text, "", "")
    return TableEntry(value, f"[{interval}" if bracket else "", mark)


def frame(rows: Sequence[Sequence[str | float]], header: Sequence[str], groups: Sequence[str] | str = "") -> DataFrame:
    """The frame of a table: rows of texts (or numbers), with the heading of each row's group."""
    pandas = require("pandas", extra="bench")
    index = [groups] * len(rows) if isinstance(groups, str) else list(groups)
    return pandas.DataFrame(list(map(list, rows)), columns=list(header), index=index, dtype=object)


def best_marks(values: DataFrame, texts: DataFrame, *, smallest: bool = False) -> DataFrame:
    """Mark the best and the second best text of each column in every group; `values` has NaN where none may be marked.

    Texts that read the same share their mark, and two that are best leave no second place. The largest value is the
    best unless `smallest`.
    """
    marks = texts.copy()
    for name in texts.columns:
        places: list[Mark] = []
        for group in dict.fromkeys(texts.index):
            inside = texts.index == group
            places += _places(values[name][inside], texts[name][inside], smallest)
        marks[name] = places
    return marks


def _places(values: Series, texts: Series, smallest: bool) -> list[Mark]:
    entries = list(zip(values, texts, strict=True))
    defined = sorted((e for e in entries if not math.isnan(e[0])), key=lambda e: e[0], reverse=not smallest)
    read = [text.partition(" ")[0].rstrip("≈*") for _, text in defined]
    ranked = list(dict.fromkeys(read))
    names: tuple[Mark, ...] = ("best",) if ranked and read.count(ranked[0]) > 1 else ("best", "second")
    places = dict(zip(ranked, names, strict=False))
    return ["" if math.isnan(v) else places.get(text.partition(" ")[0].rstrip("≈*"), "") for v, text in entries]


def as_html(made: Table) -> Html:
    """A table as a notebook shows it: the best entries in bold, all groups in one, without their headings."""
    rows = [[_html_cell(entry) for entry in row] for _, group in made.groups for row in group]
    return html_table(made.header, rows, numbers=range(made.left, len(made.header)), title=made.title)


def _html_cell(entry: TableEntry) -> Html:
    text = element("b", entry.text) if entry.mark == "best" else entry.text
    return concatenate([text, f" {entry.detail}" if entry.detail else ""])
