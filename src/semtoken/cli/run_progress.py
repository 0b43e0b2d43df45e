"""The progress of a run of the benchmark: two bars where a person looks, a line now and then in files and logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from semtoken.cli.console import bars, tell

if TYPE_CHECKING:
    from rich.progress import Progress

ENOUGH = 0.05
"""The share of a run that must be done before we estimate the time left: any earlier, it would be a guess."""
LEAST_SECONDS = 1e-3
"""Seconds that a step must take for its rate to be printed. One that is left out takes less, and computes nothing."""
EVERY = 30.0
"""Seconds between two lines."""


class RunProgress:
    """A `Watcher` that shows the whole run and the step at work as bars, or as lines where those are not shown."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._whole = progress.add_task("whole run", total=None)
        self._step = progress.add_task("getting ready", total=None)
        self._last = progress.get_time()

    def begin(self, units: int) -> None:
        """Show that a run begins, and how many questions times steps it has to do."""
        self._progress.reset(self._whole, total=units)

    def work(self, title: str, units: int) -> None:
        """Show which step is at work."""
        self._progress.reset(self._step, description=title, total=units)
        self._last = self._progress.get_time()

    def advance(self, units: int) -> None:
        """Show that so many questions of the step at work are done."""
        self._progress.advance(self._step, units)
        self._progress.advance(self._whole, units)
        whole, step = self._progress.tasks
        if not self._is_line_due() and not step.finished:
            return
        seconds, share = step.elapsed or 0.0, whole.percentage / 100
        rate = f", {step.completed / seconds:,.1f} a second" if seconds >= LEAST_SECONDS else ""
        left = (whole.elapsed or 0.0) * (1 / share - 1) if share >= ENOUGH else 0.0
        self._tell(
            f"{step.description}: {step.completed:,.0f} of {step.total or 0:,.0f} questions{rate}; "
            f"whole run {100 * share:.0f}%{f', about {duration(left)} left' if left >= 1 else ''}"
        )

    def clustering(self, phase: str, fraction: float, seconds_left: float | None) -> None:
        """Show how far a clustering has come."""
        self._progress.update(self._step, description=f"clustering: {phase}", total=1.0, completed=fraction)
        if self._is_line_due():
            left = "" if seconds_left is None else f", about {duration(seconds_left)} left"
            self._tell(f"clustering: {phase}, {100 * fraction:.0f}%{left}")

    def _is_line_due(self) -> bool:
        return self._progress.get_time() - self._last >= EVERY

    def _tell(self, line: str) -> None:
        if self._progress.disable:
            self._last = self._progress.get_time()
            tell(line)


@contextmanager
def run_progress() -> Iterator[RunProgress]:
    """The progress of a run, on stderr."""
    from rich.progress import TaskProgressColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with bars(*columns, speed_estimate_period=3600) as progress:
        yield RunProgress(progress)


def duration(seconds: float) -> str:
    """A number of seconds as text: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
