"""The consoles of the commands: results on stdout, everything else on stderr; progress only where a person looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from semtoken.support.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table
    from rich.text import Text

    from semtoken.core.results import ScoredAnswer

SETTLED, FEWEST_PIECES = 10.0, 3
"""No time left is shown before so many seconds and pieces: until then it is no estimate."""
LEFT = "{task.fields[left]}"
"""The column of the time left, as what shows the progress has estimated it."""


@cache
def out() -> Console:
    """Standard output, for results; rich is imported when something is printed, and not for a help screen."""
    return _console()


@cache
def err() -> Console:
    """Standard error, for everything else."""
    return _console(stderr=True)


def _console(*, stderr: bool = False) -> Console:
    """A console that leaves a closed pipe to `launch`: rich would end the process with 1, which is a broken guarantee
    for an audit.
    """
    from rich.console import Console

    class LeavingClosedPipes(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return LeavingClosedPipes(stderr=stderr, highlight=False, emoji=False)


def untrusted(text: str, style: str = "") -> Text:
    """Text of others for tables and lines, without markup."""
    from rich.text import Text

    return Text(visible(text), style=style)


def plain_table(*columns: str, numbers: Collection[str] = (), gap: int = 2) -> Table:
    """A table without lines, so many blanks between its columns; those of `numbers` stand at the right."""
    from rich.table import Column, Table

    shown = (Column(name, justify="right" if name in numbers else "left", overflow="fold") for name in columns)
    return Table(*shown, box=None, pad_edge=False, padding=(0, gap), header_style="dim")


def json_line(value: Any) -> str:
    """A value as JSON on one line, with no character that a terminal would obey or cannot write."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # What the terminal's encoding cannot write is dropped here, and shows as an escape below.
    known = line.encode(out().encoding, "ignore").decode(out().encoding)
    return "".join(c if c.isprintable() and (c.isascii() or c in known) else json.dumps(c)[1:-1] for c in line)


def say(text: str, style: str = "") -> None:
    """A line of a result, on stdout, with no line breaks of ours."""
    out().print(untrusted(text, style), soft_wrap=True)


def print_json(value: Any) -> None:
    """A line of a result as JSON."""
    print(json_line(value))


def tell(message: str, style: str = "") -> None:
    """A message to the person at the terminal, on stderr, with no line breaks of ours."""
    err().print(untrusted(message, style), soft_wrap=True)


def agrees(question: str) -> bool:
    """Ask a person a question of yes or no; where nobody answers it is no."""
    from rich.prompt import Confirm

    try:
        return Confirm.ask(question, console=err(), default=False)
    except EOFError:
        return False


def print_scores(answer: ScoredAnswer) -> None:
    """A line with an answer's scores by further methods, where any were asked for."""
    if answer.scores:
        from semtoken.display import scores_line

        say(f"  {scores_line(answer)}", "dim")


def bars(*columns: ProgressColumn, **how: Any) -> Progress:
    """Bars on stderr where a person looks, each after its description and before `columns`."""
    from rich.progress import BarColumn, Progress, TextColumn

    shown = (TextColumn("{task.description}"), BarColumn(), *columns)
    return Progress(*shown, console=err(), transient=True, disable=not err().is_terminal, **how)


@contextmanager
def counting(description: str, total: int | None, done: int = 0) -> Iterator[Callable[..., None]]:
    """A bar for work in pieces, in all `total` if that is known.

    What it yields is called with the number done, and with the total where that is known only then.
    """
    from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

    with bars(MofNCompleteColumn(), TimeElapsedColumn(), TextColumn(LEFT)) as bar:
        task = bar.add_task(description, total=total, completed=done, left="")

        def show(completed: int, total: int | None = None) -> None:
            remaining, elapsed = bar.tasks[0].time_remaining, bar.tasks[0].elapsed
            is_estimate = remaining is not None and (elapsed or 0.0) >= SETTLED and completed - done >= FEWEST_PIECES
            left = f"{_time(remaining)} left" if is_estimate and remaining else ""
            bar.update(task, completed=completed, total=total, left=left)

        yield show


@contextmanager
def phases(description: str, before: str | None = None) -> Iterator[Callable[[str, float, float | None], None]]:
    """A bar for the phases of clustering, yielding a `Progress`; before the first phase it says what happens."""
    from rich.progress import TaskProgressColumn, TextColumn, TimeElapsedColumn

    with bars(TaskProgressColumn(), TimeElapsedColumn(), TextColumn(LEFT)) as bar:
        task: Any = bar.add_task(before or description, total=1.0, left="")

        def show(phase: str, fraction: float, seconds_left: float | None) -> None:
            left = "" if seconds_left is None else f"{_time(seconds_left)} left"
            bar.update(task, description=f"{description}: {phase}", completed=fraction, left=left)

        yield show


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
