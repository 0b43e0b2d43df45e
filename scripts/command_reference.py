"""The reference of all commands, written from their own help; scripts/gather_docs.py puts it on the site."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from semtoken.cli.typer_app import app
from semtoken.cli.typer_commands import GROUPS, described, examples_apart


def reference() -> str:
    """A section for each group of commands, and in it one for each command: what it is for, examples, all options."""
    program: Any = get_command(app)
    context = program.context_class(program, info_name="semtoken")
    sections = []
    for title, places in GROUPS.items():
        sections.append(f"## {title}")
        for name in places:
            sections += [section(*found) for found in leaves(program.commands[name], context, name)]
    return "\n\n".join(sections) + "\n"


def leaves(command: Any, parent: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """A command that can be run, with its context; of a group those inside."""
    context = command.context_class(command, info_name=name, parent=parent)
    if hasattr(command, "commands"):
        for inner, one in command.commands.items():
            yield from leaves(one, context, inner)
    elif not command.hidden:
        yield command, context


def section(command: Any, context: Any) -> str:
    """What the help of one command says, as Markdown."""
    text, examples = examples_apart(inspect.cleandoc(command.help or ""))
    pieces = [f"### {context.command_path}", text]
    if examples:
        pieces.append("\n".join(("```text", *examples, "```")))
    titled, _ = command.titled_params(context, whole=True)
    for title, params in titled.items():
        rows = [f"| `{names}` | {cell(told)} |" for names, told in described(params, context)]
        pieces.append("\n".join((f"| {title} | |", "| --- | --- |", *rows)))
    return "\n\n".join(pieces)


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
