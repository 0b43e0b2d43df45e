"""The commands put together, and what a failure looks like: one message, no traceback, a telling exit status."""

from __future__ import annotations

import errno
import textwrap
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from semtoken.cli.console import tell
from semtoken.cli.statuses import CHECKING, INTERRUPTED, Status, status_of_error
from semtoken.cli.typer_commands import GROUPS, CommandsOnDemand, print_commands
from semtoken.errors import MissingExtra, SemtokenError, one_line_of
from semtoken.support.extras import all_that_is_missing, missing_extra
from semtoken.version import __version__

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
USAGE = (typer.Exit, typer.Abort, *typer.BadParameter.__mro__[1:3])
"""What typer raises for its own ends: an exit status, an interruption, a command line that it does not understand."""


class Commands(TyperGroup):
    """Turns errors that semtoken raises on purpose, a full disk and a place that cannot be used into one message."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandsOnDemand()  # type: ignore[assignment]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write what the commands are for, without the libraries that format Markdown: help is there at once."""
        print_commands(
            self, ctx, {title: {n: p.summary for n, p in places.items()} for title, places in GROUPS.items()}
        )

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and turn errors that semtoken raises on purpose into a message and an exit status."""
        try:
            return super().invoke(ctx)
        except (SemtokenError, ModuleNotFoundError, OSError) as error:
            command = ctx.invoked_subcommand
            if (message := _message(error, command)) is None:
                if command in CHECKING and not isinstance(error, BrokenPipeError):  # a reader such as `head`
                    message = f"{type(error).__name__}: {one_line_of(error)}"
                else:
                    raise
            tell(f"Error: {message}", style="red")
            raise typer.Exit(status_of_error(command)) from error
        except KeyboardInterrupt as error:
            tell("Interrupted.", style="yellow")
            raise typer.Exit(INTERRUPTED) from error
        except Exception as error:
            if ctx.invoked_subcommand not in CHECKING or isinstance(error, USAGE):
                raise
            # A traceback would end with 1, which means that a promise does not hold.
            traceback.print_exception(error)
            tell(f"Error: {type(error).__name__}: {one_line_of(error)} This is a fault of semtoken: please report it.")
            raise typer.Exit(Status.CANNOT_BE_DONE) from error


def _message(error: Exception, command: str) -> str | None:
    """What to say of an error; None for one whose traceback is wanted."""
    if isinstance(error, MissingExtra | ModuleNotFoundError):
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


app = typer.Typer(
    cls=Commands,
    name="semtoken",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"semtoken {__version__}")
        raise typer.Exit


@app.callback()
def semtoken(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Which answers, fields and decisions of your model may run without a person?

    semtoken gives each of them a confidence from the log-probabilities of the one generation that you make anyway, and
    from your labels a threshold with a promise that you can check. A small model is built in; --model names any other.

    Begin with `semtoken check replies.jsonl` on replies that you have, or with `semtoken demo` (which needs the extra
    `demo`).
    """
