"""A command line, run: its settings, its command, and what a failure looks like: one message, a telling exit status."""

from __future__ import annotations

import errno
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semtoken.cli.commands import PLACES, SUBCOMMANDS, place_of, program
from semtoken.cli.outputs import check_names, check_outputs
from semtoken.cli.statuses import CHECKING, PIPE_CLOSED, Status, UsageError, status_of_error
from semtoken.errors import MissingExtra, SemtokenError, one_line_of
from semtoken.version import __version__

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
SETTING = re.compile(r"--[a-z]+\.[a-z_-]+")
"""An option that is a key of semtoken.toml."""
FLAGS = {"--verbose": "verbose", "-v": "verbose", "--help": "help", "-h": "help", "--version": "version"}
"""The options of every command that take no value."""


class Dash(str):
    """The word "-" for standard input or output, which cyclopts takes for an option without a name."""

    def startswith(self, *_: Any) -> bool:
        """No: it is a value."""
        return False


class Words:
    """A command line apart: the words of the command, those that are settings, and the options of every command."""

    def __init__(self, words: Sequence[str]) -> None:
        self.command: list[str] = []
        self.settings: list[str] = []
        self.config: Path | None = None
        self.flags: set[str] = set()
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if word == "--":
                self.command += [word, *rest]
            elif name == "--config":
                self.config = Path(value if equals else next(rest, ""))
            elif SETTING.fullmatch(name):
                self.settings.append(word if equals else f"{word}={next(rest, '')}")
            elif word in FLAGS:
                self.flags.add(FLAGS[word])
            else:
                self.command.append(Dash(word) if word == "-" else word)

    @property
    def place(self) -> tuple[str, ...]:
        """The names of the command that is meant, such as ("journal", "show"); none where the first word is no name."""
        first = tuple(self.command[:1])
        if not first or first[0] not in PLACES:
            return ()
        inner = self.command[1:2]
        return (*first, *inner) if inner and inner[0] in SUBCOMMANDS.get(first[0], ()) else first


def launch(arguments: Sequence[str]) -> int:
    """Run a command line, and return the exit status."""
    words = Words(arguments)
    name = words.place[0] if words.place else ""
    try:
        status = _run(words)
        # Python's own flush comes after its last `except`: it would print a traceback and end with 120.
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # a reader such as `head` has seen enough
        _flush()
        return PIPE_CLOSED
    except (SemtokenError, ModuleNotFoundError, OSError) as error:
        if (message := _message(error, name)) is None:
            if name in CHECKING:
                message = f"{type(error).__name__}: {one_line_of(error)}"
            else:
                raise
        _flush()
        _tell(f"Error: {message}")
        return Status.CANNOT_BE_DONE if isinstance(error, UsageError) else status_of_error(name)
    except Exception as error:
        if name not in CHECKING:
            raise
        # A traceback would end with 1, which means that a guarantee does not hold.
        traceback.print_exception(error)
        _tell(f"Error: {type(error).__name__}: {one_line_of(error)} This is a fault of semtoken: please report it.")
        return Status.CANNOT_BE_DONE


def _flush() -> None:
    """Write what is still in the buffer of standard output; what cannot be written is dropped, since Python would try
    it again at its end.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: Words) -> int:
    """Print the version or a help screen, or run the command, and return the exit status."""
    place = words.place
    if "version" in words.flags:
        print(f"semtoken {__version__}")
        return 0
    if "help" in words.flags or not words.command or (place and len(words.command) == 1 and place[0] in SUBCOMMANDS):
        from semtoken.cli.help import help_of

        print(help_of(place))
        return 0
    return _run_command(words)


def _run_command(words: Words) -> int:
    """Bind the words to the parameters of the command, with the settings that it reads, and call it."""
    from cyclopts import CycloptsError

    from semtoken.cli.settings import SECTIONS, read_settings
    from semtoken.support.extras import quiet_libraries

    try:
        command, bound, given = program().parse_args(words.command, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError(_usage(error, words)) from error
    place = " ".join(words.place)
    unread = set(SECTIONS) - set(place_of(words.place).reads)
    for word in words.settings:
        if word[2:].partition(".")[0] in unread:
            raise UsageError(f"{word.partition('=')[0]} has no effect on `semtoken {place}`: leave it out.")
    in_use = read_settings(words.config, words.settings)
    bound.arguments |= dict.fromkeys(given, in_use)
    bound.apply_defaults()
    check_names(bound.arguments, words.command)
    outputs = check_outputs(bound.arguments, place)
    if "verbose" not in words.flags:
        quiet_libraries()
    status = command(*bound.args, **bound.kwargs)
    if outputs:
        from semtoken.support.files.outputs import remember

        for output in outputs:
            remember(output, place)
    return status or 0


def _usage(error: Any, words: Words) -> str:
    """The message about words that do not fit a command: what it needs, and where its help is."""
    from cyclopts import MissingArgumentError, UnusedCliTokensError

    said = one_line_of(error)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        from semtoken.cli.help import arguments_of, command_at, help_text, takes

        wanted = next(one for one in arguments_of(command_at(words.place)) if one.name == error.argument.name)
        name = f"{wanted.name} {takes(wanted)}" if wanted.index is None else takes(wanted)
        said = f"`semtoken {' '.join(words.place)}` needs {name}: {help_text(wanted)}"
    if isinstance(error, UnusedCliTokensError):
        said = f"Too many arguments: {', '.join(map(repr, error.unused_tokens or ()))}."
    return f"{said} See `semtoken {' '.join(words.place)} --help`." if words.place else said


def _tell(message: str) -> None:
    """A message on stderr, with no character that a terminal would obey."""
    from semtoken.support.text import visible

    print(visible(message), file=sys.stderr)


def _message(error: Exception, command: str) -> str | None:
    """The message about an error; None for one whose traceback is wanted."""
    if isinstance(error, MissingExtra | ModuleNotFoundError):
        from semtoken.support.extras import all_that_is_missing, missing_extra

        missing = error if isinstance(error, MissingExtra) else missing_extra(error)
        return None if missing is None else f"{missing}{all_that_is_missing(command, str(missing))}"
    if not isinstance(error, OSError):
        return str(error)
    if error.errno in DISK_FULL:
        where = "" if error.filename is None else f" for {error.filename}"
        return f"There is no space left on the disk{where}. Free some and try again."
    if error.filename is None:
        return None
    return f"{textwrap.shorten(str(error.filename), 300)} cannot be used: {error.strerror}."
