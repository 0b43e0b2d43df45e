"""A table before it is written in any format: entries with their intervals and marks, in groups of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from semtoken.support.text import Html, element, joined, table

Mark = Literal["", "best", "second"]
Sign = Literal["", "≈", "*"]
Alignment = Literal["left", "right"]


@dataclass(frozen=True)
class Entry:
    """One place in a table."""

    text: str
    """As people read it."""
    detail: str = ""
    """What stands smaller beside it: an interval, or why there is no number."""
    value: float = math.nan
    """What marks go by; NaN: never marked."""
    mark: Mark = ""
    sign: Sign = ""
    """≈: not shown to be lower than the best. *: the clustering that the methods use."""


@dataclass(frozen=True)
class Group:
    """Rows under one heading."""

    title: str
    """The heading; none where it is empty."""
    rows: tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True)
class Table:
    """Columns of equal meaning over all groups; the first one names the row."""

    name: str
    """What its file and its anchor are called."""
    title: str
    header: tuple[str, ...]
    groups: tuple[Group, ...]
    note: str = ""
    """What a reader must know of it."""
    left: int = 1
    """So many columns of text on the left; the others hold numbers."""

    @property
    def alignments(self) -> tuple[Alignment, ...]:
        """On which side the text of each column begins."""
        return tuple("left" if i < self.left else "right" for i in range(len(self.header)))


def texts(*values: str) -> tuple[Entry, ...]:
    """A row of plain entries."""
    return tuple(map(Entry, values))


def marked_rows(
    rows: Sequence[tuple[Entry, ...]], *, smallest: bool = False, columns: Sequence[int] | None = None
) -> tuple[tuple[Entry, ...], ...]:
    """Mark the best and the second best entry of each column.

    Entries that read the same share their mark, and two that are best leave no second place.

    Parameters
    ----------
    rows
        The rows of one group of a table.
    smallest
        Whether the smallest value is the best; by default the largest is.
    columns
        Which columns to mark; by default all but the first, which names the row.
    """
    marked = [list(row) for row in rows]
    for column in range(1, len(rows[0]) if rows else 0) if columns is None else columns:
        entries = [row[column] for row in rows if not math.isnan(row[column].value)]
        ranked = list(dict.fromkeys(e.text for e in sorted(entries, key=lambda e: e.value if smallest else -e.value)))
        best = [e.text for e in entries].count(ranked[0]) if ranked else 0
        places: dict[str, Mark] = dict(zip(ranked, ("best",) if best > 1 else ("best", "second"), strict=False))
        for row in marked:
            if not math.isnan(row[column].value):
                row[column] = replace(row[column], mark=places.get(row[column].text, ""))
    return tuple(tuple(row) for row in marked)


def as_html(made: Table) -> Html:
    """A table as a notebook shows it, the best entries in bold."""
    rows = [[_cell(entry) for entry in row] for group in made.groups for row in group.rows]
    return table(made.header, rows, numbers=range(made.left, len(made.header)), title=made.title)


def _cell(entry: Entry) -> Html:
    text = element("b", entry.text) if entry.mark == "best" else entry.text
    return joined([text, entry.sign, f" {entry.detail}" if entry.detail else ""])
