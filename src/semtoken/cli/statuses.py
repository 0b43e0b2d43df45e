"""The exit statuses of commands that check something, in one place; docs/cli.md has the same table.

| status | meaning | commands |
| ---: | --- | --- |
| 0 | it holds, or the labels do not show that it does not | `audit`, `calibrate --require`, `doctor` |
| 1 | it does not hold: a broken guarantee, an exceeded limit, a required guarantee that is missing | all but `doctor` |
| 2 | it cannot be done: bad input, no answer from a server, any other error | all of them |
| 3 | nothing was measured: no labels, unknown questions, no guarantee, answers that cannot be scored | all of them |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from semtoken.errors import InvalidInputError


class Status(IntEnum):
    """The meanings of the exit status of a checking command."""

    HOLDS = 0
    DOES_NOT_HOLD = 1
    CANNOT_BE_DONE = 2
    NOTHING_MEASURED = 3


CHECKING = ("audit", "calibrate", "doctor")
"""The commands that have these statuses; for any other command an error is 1."""
FAILED, PIPE_CLOSED = 1, 141  # the latter as shells say it


def status_of_error(command: str | None) -> int:
    """The exit status of a command that failed."""
    return Status.CANNOT_BE_DONE if command in CHECKING else FAILED


def verdict(*, holds: bool, measured: bool = True) -> Status:
    """The status of what was found: what does not hold goes before what was not measured."""
    if not holds:
        return Status.DOES_NOT_HOLD
    return Status.HOLDS if measured else Status.NOTHING_MEASURED


class UsageError(InvalidInputError):
    """A command line or a setting that means nothing here; the command ends with 2 before anything is done."""


def typed_options(options: object) -> dict[str, object]:
    """The options of a class, such as those of one kind of input, by their names on the command line."""
    return {f"--{name.replace('_', '-')}": value for name, value in vars(options).items()}


def refuse_useless(typed: Mapping[str, object], beside: str) -> None:
    """Raise `UsageError` if any of these options was typed; `beside` says what they have no effect on or with."""
    if useless := [name for name, value in typed.items() if value is not None and value is not False]:
        raise UsageError(f"{', '.join(useless)} has no effect {beside}: leave it out.")
