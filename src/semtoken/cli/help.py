"""The help of a command on one screen of plain text, written without rich, whose import takes longer than all of it."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin

from semtoken.cli.commands import GROUPS, HELP, PLACES, SUBCOMMANDS, program

if TYPE_CHECKING:
    from cyclopts import App, Argument, ArgumentCollection

INDENT = 26
"""The place at which the second column begins."""
COMMON = (
    ("--config FILE", "Settings file. Default: semtoken.toml in this folder or one above it."),
    ("--verbose, -v", "Show the messages of libraries."),
    ("--help, -h", "Show this message and exit."),
    ("--version", "Show the version and exit."),
)
SETTINGS = """\
Settings: any key of semtoken.toml is also an option (--limits.connections 200) and a variable \
(SEMTOKEN_LIMITS_CONNECTIONS=200). See semtoken config."""


class HelpRow(NamedTuple):
    """An argument or an option, as the help shows it."""

    names: str
    """Its names and what it takes, such as "--output, -o FILE"."""
    help: str
    is_argument: bool


def help_of(place: Sequence[str]) -> str:
    """The help of a command, such as ("journal", "show"); of none that of the program, of a group that of the group."""
    if not place or (len(place) == 1 and place[0] in SUBCOMMANDS):
        return _overview(place)
    command = command_at(place)
    shown = list(rows(command))
    arguments = [(row.names, row.help) for row in shown if row.is_argument]
    options = [(row.names, row.help) for row in shown if not row.is_argument]
    words = [*place, *(["[OPTIONS]"] if options else []), *(names for names, _ in arguments)]
    text, examples = text_and_examples(command)
    pieces = [f"Usage: semtoken {' '.join(words)}", *map(_filled, text)]
    pieces += [f"Example: {example}" for example in examples]
    pieces += [_table(title, some) for title, some in (("Arguments", arguments), ("Options", options)) if some]
    return "\n\n".join(pieces)


def _overview(place: Sequence[str]) -> str:
    """All commands, or those of a group."""
    groups = {"Commands": SUBCOMMANDS[place[0]]} if place else GROUPS
    usage = " ".join(("semtoken", *place, "COMMAND [OPTIONS]"))
    pieces = [f"Usage: {usage}", _filled(PLACES[place[0]].summary if place else HELP)]
    for title, places in groups.items():
        pieces.append(_table(title, [(name, one.summary) for name, one in places.items()], 13))
    if not place:
        pieces += [_table("Options of every command", COMMON), _filled(SETTINGS)]
    return "\n\n".join(pieces)


def command_at(place: Sequence[str]) -> App:
    """The command at a place."""
    found = program()
    for name in place:
        found = found[name]
    return found


def text_and_examples(command: App) -> tuple[list[str], list[str]]:
    """The paragraphs of a command's docstring, and the examples among them as they are typed."""
    text = inspect.getdoc(command.default_command).partition("\n\nParameters\n---")[0]  # type: ignore[union-attr]
    paragraphs = [" ".join(p.split()) for p in text.split("\n\n")]
    examples = [p.removeprefix("Example: ").strip("`") for p in paragraphs if p.startswith("Example: ")]
    return [p.replace("`", "") for p in paragraphs if not p.startswith("Example: ")], examples


def arguments_of(command: App) -> ArgumentCollection:
    """The arguments and options of a command, with what its docstring says of its own."""
    return command.assemble_argument_collection(parse_docstring=True)


def rows(command: App) -> Iterator[HelpRow]:
    """The arguments and options of a command, in the order of its signature."""
    for argument in arguments_of(command):
        if not argument.show:
            continue
        shown = takes(argument)
        if is_argument := argument.index is not None:
            if argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL:
                shown += "..."
            shown = shown if argument.required else f"[{shown}]"
        else:
            shown = f"{', '.join(argument.names)} {shown}".strip()
        yield HelpRow(shown, help_text(argument), is_argument)


def help_text(argument: Argument) -> str:
    """The help of an argument or an option, with its default where it does not say that itself."""
    description = " ".join((argument.parameter.help or "").split())  # the docstring may have it on several lines
    default = argument.field_info.default
    silent = default is None or isinstance(default, bool) or default is inspect.Parameter.empty or default in ("", ())
    if silent or "Default:" in description:
        return description
    return f"{description} Default: {default}."


def takes(argument: Argument) -> str:
    """The word for a value of an argument or an option; empty for a flag."""
    name = argument.name if argument.index is not None else _takes(argument.hint)
    return str(argument.parameter.metavar or name)


def _takes(hint: Any) -> str:
    """The word for an option's value, by its type; empty for a flag."""
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        return next((_takes(part) for part in get_args(hint) if part is not type(None)), "")
    if get_origin(hint) in (list, tuple):
        return _takes(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "NAME"
    return {bool: "", int: "N", float: "RATE", Path: "FILE"}.get(hint, "NAME")


def _table(title: str, entries: Iterable[tuple[str, str]], indent: int = INDENT) -> str:
    """A title, and below it names with what is said of each."""
    return "\n".join([title, *(_line(names, description, indent) for names, description in entries)])


def _line(names: str, description: str, indent: int) -> str:
    """A row in two columns; names that are too long for the first stand on a line of their own."""
    start = f"  {names}"
    wrapped = textwrap.wrap(description, _width() - indent, break_long_words=False, break_on_hyphens=False) or [""]
    first = [f"{start:<{indent}}{wrapped[0]}"] if len(start) < indent else [start, " " * indent + wrapped[0]]
    return "\n".join(line.rstrip() for line in (*first, *(" " * indent + line for line in wrapped[1:])))


def _filled(text: str) -> str:
    return textwrap.fill(text, _width(), break_long_words=False, break_on_hyphens=False)


def _width() -> int:
    """As wide as the terminal, at most 80, at least 40."""
    return max(40, min(80, shutil.get_terminal_size().columns))
