"""Tables as Markdown, with everything from elsewhere escaped."""

from __future__ import annotations

import html
import re

from semtoken.bench.report.table import Entry, Table
from semtoken.support.extras import require
from semtoken.support.text import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]|$~#!])")


def escaped(text: str) -> str:
    """Text of others as Markdown that shows it as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", html.escape(one_line(text), quote=False))


def markdown_table(table: Table) -> str:
    """Heading, a table for each group, and the note."""
    tabulate = require("tabulate", extra="bench").tabulate
    parts = [f"### {escaped(table.title)}"]
    for group in table.groups:
        if group.title:
            parts.append(f"**{escaped(group.title)}**")
        rows = [[_cell(entry) for entry in row] for row in group.rows]
        header = [escaped(name) for name in table.header]
        parts.append(
            tabulate(rows, header, tablefmt="pipe", colalign=table.alignments, disable_numparse=True)
            if rows
            else "Nothing of this is complete."
        )
    if table.note:
        parts.append(escaped(table.note))
    return "\n\n".join(parts) + "\n"


def _cell(entry: Entry) -> str:
    text = escaped(entry.text)
    if entry.mark:
        text = f"**{text}**" if entry.mark == "best" else f"<u>{text}</u>"
    detail = f" {escaped(entry.detail)}" if entry.detail else ""
    return f"{text}{escaped(entry.sign)}{detail}"
