"""`semtoken bench run`: models x data sets x methods, from a file of settings or from flags."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.cli.console import err, out, tell
from semtoken.cli.loading import load_executor, names_in
from semtoken.cli.model import Device
from semtoken.cli.parameters import BenchMethods, ClustersNamed, JudgeNamed, Limit, ModelNamed, ToFolder
from semtoken.cli.settings import Read, SettingsInUse
from semtoken.cli.statuses import FAILED, UsageError
from semtoken.errors import InvalidInputError
from semtoken.support.extras import quiet_libraries

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from semtoken.bench.run import Failure, PendingWork
    from semtoken.bench.settings import RunSettings

DEFAULT_FOLDER = Path("runs")


def run(
    settings: Path | None = None,
    /,
    *,
    output: ToFolder[Path | None] = None,
    model: ModelNamed[tuple[str, ...]] = (),
    clusters: ClustersNamed[str | None] = None,
    dataset: Annotated[tuple[str, ...], Parameter(name=("--dataset", "-d"))] = (),
    methods: BenchMethods = None,
    judge: JudgeNamed[tuple[str, ...]] = (),
    limit: Limit[int | None] = None,
    controls: bool = False,
    device: Device = None,
    dry_run: bool = False,
    estimate: bool = False,
    in_use: Read[SettingsInUse],
    verbose: Read[bool],
) -> int | None:
    """Answer questions, record what the methods need, score and judge.

    The paper's experiment on any model. Everything is kept in the run's folder in small files; a run that was stopped,
    or whose settings changed, computes only what is missing. Options go before the file's settings.

    Example: `semtoken bench run --model almanac --dataset almanac -o runs/almanac`

    Parameters
    ----------
    settings
        A .yaml or .toml file of settings; see docs/bench.md.
    output
        The run's folder. With a file of settings: runs/NAME-OF-THE-FILE.
    model
        Model, as in ask; may be repeated.
    clusters
        Clusters of the model's tokens: a directory or a hub id.
    dataset
        nq, tqa, wq, almanac, almanac-dev, a file of JSON lines, or nq=FILE for a copy; may be repeated.
    judge
        exact, rouge, llm, ...; may be repeated, the first is the primary one.
    limit
        Random sample of N questions of each set.
    controls
        Also score controls: STC without its parts, with shuffled clusters, with clusters by spelling.
    dry_run
        Show what is done and what is left, and stop.
    estimate
        Try a few questions, print what the run will take, and stop.
    """
    from semtoken.bench.run import run_benchmark
    from semtoken.bench.settings import settings_with

    if dry_run and estimate:
        raise UsageError("--dry-run and --estimate are two looks at a run: give one of them.")
    if settings is None and not (model and dataset):
        raise UsageError("Name a model and a question set, --model NAME --dataset NAME, or a file of settings.")
    of_process = {
        key: getattr(in_use.settings.model, key)
        for key in ("backend", "batch_size")
        if f"model.{key}" in in_use.sources
    }
    of_models = {"clusters": clusters, "device": device, **of_process}
    given: dict[str, Any] = {
        "models": [{"name": name} for name in model] if model else None,
        "datasets": [_dataset(text) for text in dataset] if dataset else None,
        "methods": list(names_in(methods)) if methods else None,
        "judges": list(judge) or None,
        "limit": limit,
        "controls": controls or None,
    }
    resolved = settings_with(settings, _typed(given), _typed(of_models))
    if not verbose:
        quiet_libraries()
    if estimate:
        show_estimate(resolved)
        return None
    folder = output or _default_folder(settings)
    if dry_run:
        show_plan(resolved, folder)
        return None
    directory = None if settings is None else settings.absolute().parent
    with run_bars() as bars:
        failures = run_benchmark(
            resolved, folder, executor=load_executor(in_use.settings.executor), watcher=bars, directory=directory
        )
    return report_failures(failures, folder)


def _typed(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _dataset(text: str) -> dict[str, str]:
    name, equals, path = text.partition("=")
    return {"name": name, "path": path} if equals else {"name": text}


def _default_folder(settings: Path | None) -> Path:
    if settings is None:
        raise InvalidInputError("Name the run's folder with --output.")
    return DEFAULT_FOLDER / settings.stem


def show_plan(settings: RunSettings, folder: Path) -> None:
    """Print what a run would do, and how much of it is already there."""
    from semtoken.bench.plan import make_plan
    from semtoken.bench.run import check_folder, read_datasets, survey

    check_folder(folder)
    plan = make_plan(settings, read_datasets(settings))
    pending = survey(folder, settings, plan)
    out().print(_plan_table(pending))
    left, total = (
        sum(pending_work.units for pending_work in pending),
        sum(pending_work.work.cell.n_questions for pending_work in pending),
    )
    out().print(f"{total - left:,} of {total:,} answers x steps are in {folder}. Nothing was changed.", soft_wrap=True)
    for model, reason in plan.problems.items():
        tell(f"{model} will be left out: {reason}", style="yellow")


def show_estimate(settings: RunSettings) -> None:
    """Print the time and the space on disk that a run will take, from a trial on a few questions."""
    from semtoken.bench.estimate import TRIAL, estimate
    from semtoken.bench.run import read_datasets

    cost = estimate(settings, {dataset.label: len(dataset.questions) for dataset in read_datasets(settings)})
    out().print(
        f"About {duration(cost.seconds)} for {cost.questions:,} questions, {duration(cost.setup_seconds)} to load "
        f"and cluster, and {cost.n_bytes / 1e6:,.0f} MB on disk; from up to {TRIAL} questions of each data set.",
        soft_wrap=True,
    )


def _plan_table(pending: Sequence[PendingWork]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("Model", "Data set", "Step"):
        table.add_column(name)
    for name in ("Questions", "Done", "Left"):
        table.add_column(name, justify="right")
    for pending_work in pending:
        cell, count = pending_work.work.cell, pending_work.work.cell.n_questions
        row = (cell.model, cell.dataset, pending_work.work.name.replace("_", " "), f"{count:,}")
        table.add_row(*row, f"{count - pending_work.units:,}", f"{pending_work.units:,}" if pending_work.units else "")
    return table


def report_failures(failures: Sequence[Failure], folder: Path) -> int | None:
    """Say how a run ended; the exit status is 1 if something failed."""
    from semtoken.bench.read_results import model_shares
    from semtoken.bench.run import LOG

    if not failures:
        for name, share in model_shares(folder).items():
            answers = "Greedy answers" if name == "greedy" else "Samples"
            tell(f"{answers}: {share:.0%} of the time was spent in the model.")
        tell(f"The run in {folder} is complete. Its tables: semtoken bench report {quote(str(folder))}")
        return None
    steps: dict[str, list[str]] = {}  # a model that cannot be loaded fails every step that reads it, for one reason
    for failure in failures:
        steps.setdefault(failure.reason, []).append(f"{failure.where}, {failure.what}")
    for reason, failed in steps.items():
        tell(f"Failed: {'; '.join(failed)}: {reason}", style="red")
    tell(
        f"Error: {len(failures)} step{'s' if len(failures) > 1 else ''} failed, everything else in {folder} is done; "
        f"{folder / LOG} says more. Run the same command again to try these once more.",
        style="red",
    )
    return FAILED


class RunBars:
    """A `Watcher` that shows two bars: the whole run and the step at work."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._whole: TaskID = progress.add_task("whole run", total=None)
        self._step: TaskID = progress.add_task("getting ready", total=None)

    def begin(self, units: int) -> None:
        """Show that a run begins, and how many questions times steps it has to do."""
        self._progress.update(self._whole, total=units)

    def work(self, title: str, units: int) -> None:
        """Show which step is at work."""
        self._progress.reset(self._step, description=title, total=units)

    def advance(self, units: int) -> None:
        """Show that so many questions of the step at work are done."""
        self._progress.advance(self._step, units)
        self._progress.advance(self._whole, units)

    def clustering(self, phase: str, fraction: float, seconds_left: float | None) -> None:
        """Show how far a clustering has come."""
        self._progress.update(self._step, description=f"clustering: {phase}", total=1.0, completed=fraction)


ENOUGH = 0.05
"""The share of a run that must be done before we estimate the time left: any earlier, it would be a guess."""
LEAST_SECONDS = 1e-3
"""Seconds that a step must take for its rate to be printed. One that is left out takes less, and computes nothing."""


class RunLines:
    """Shows the progress of a run as lines of text at intervals, for files and logs."""

    def __init__(self, every: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock = every, clock
        self._units = self._done = self._step_units = self._step_done = 0
        self._title = ""
        self._start = self._step_start = self._last = clock()

    def begin(self, units: int) -> None:
        """Show that a run begins, and how many questions times steps it has to do."""
        self._units = units
        self._start = self._clock()

    def work(self, title: str, units: int) -> None:
        """Show which step is at work."""
        self._title, self._step_units, self._step_done = title, units, 0
        self._step_start = self._last = self._clock()

    def advance(self, units: int) -> None:
        """Show that so many questions of the step at work are done."""
        self._done += units
        self._step_done += units
        now = self._clock()
        if self._step_done >= self._step_units or now - self._last >= self._every:
            self._last = now
            seconds = now - self._step_start
            rate = f", {self._step_done / seconds:,.1f} a second" if seconds >= LEAST_SECONDS else ""
            share = self._done / max(self._units, 1)
            left = (now - self._start) * (1 / share - 1) if share >= ENOUGH else 0.0
            told = f", about {duration(left)} left" if left >= 1 else ""
            tell(
                f"{self._title}: {self._step_done:,} of {self._step_units:,} questions{rate}; "
                f"whole run {100 * share:.0f}%{told}"
            )

    def clustering(self, phase: str, fraction: float, seconds_left: float | None) -> None:
        """Show how far a clustering has come."""
        now = self._clock()
        if now - self._last >= self._every:
            self._last = now
            left = "" if seconds_left is None else f", about {duration(seconds_left)} left"
            tell(f"clustering: {phase}, {100 * fraction:.0f}%{left}")


def duration(seconds: float) -> str:
    """A number of seconds as text: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def run_bars() -> Iterator[RunBars | RunLines]:
    """Bars for a run, on stderr where a person looks; plain lines elsewhere."""
    if not err().is_terminal:
        yield RunLines()
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err(), transient=True, speed_estimate_period=3600) as progress:
        yield RunBars(progress)
