"""Tables of a report as Markdown, and any text with its special characters escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

from semtoken.bench.report.table import Table, TableEntry
from semtoken.support.extras import require
from semtoken.support.text import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]|$~#!])")


def markdown_escaped(text: str) -> str:
    """Arbitrary text on one line with Markdown's special characters escaped."""
    return _SPECIAL.sub(r"\\\1", html.escape(one_line(text), quote=False))


def markdown_table(table: Table) -> str:
    """A table as Markdown: a heading, a table for each group, and the note."""
    return "\n\n".join(_markdown_parts(table)) + "\n"


def _markdown_parts(table: Table) -> Iterator[str]:
    tabulate: Any = require("tabulate", extra="bench").tabulate
    header = list(map(markdown_escaped, table.header))
    yield f"### {markdown_escaped(table.title)}"
    for title, rows in table.groups:
        if title:
            yield f"**{markdown_escaped(title)}**"
        cells = [list(map(_markdown_cell, row)) for row in rows]
        yield tabulate(cells, header, tablefmt="pipe", colalign=table.alignments, disable_numparse=True)
    if not table.groups:
        yield "Nothing of this is complete."
    if table.note:
        yield markdown_escaped(table.note)


def _markdown_cell(entry: TableEntry) -> str:
    text = markdown_escaped(entry.text)
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(entry.mark, text)
    return f"{text} {markdown_escaped(entry.detail)}" if entry.detail else text
