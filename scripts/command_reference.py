"""The reference of all commands, written from their own help; scripts/gather_docs.py puts it on the site."""

from __future__ import annotations

from semtoken.cli.commands import GROUPS, SUBCOMMANDS
from semtoken.cli.help import command_at, rows, text_and_examples


def reference() -> str:
    """A section for each group of commands, and in it one for each command: what it is for, an example, all options."""
    sections = []
    for title, places in GROUPS.items():
        sections.append(f"## {title}")
        for name in places:
            inner = SUBCOMMANDS.get(name)
            sections += [section((name,))] if inner is None else [section((name, one)) for one in inner]
    return "\n\n".join(sections) + "\n"


def section(place: tuple[str, ...]) -> str:
    """What the help of one command says, as Markdown."""
    command = command_at(place)
    text, examples = text_and_examples(command)
    pieces = [f"### semtoken {' '.join(place)}", *text, "\n".join(("```text", *examples, "```"))]
    for title, is_argument in (("Arguments", True), ("Options", False)):
        shown = [row for row in rows(command) if row.is_argument == is_argument]
        if shown:
            lines = [f"| `{row.names}` | {cell(row.help)} |" for row in shown]
            pieces.append("\n".join((f"| {title} | |", "| --- | --- |", *lines)))
    return "\n\n".join(pieces)


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
