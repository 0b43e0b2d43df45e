"""`semtoken bench run`: models x data sets x methods, from a file of settings or from flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.cli.console import out, say, tell
from semtoken.cli.loading import benchmarked, load_executor
from semtoken.cli.model import Device
from semtoken.cli.parameters import BenchMethods, ClustersNamed, JudgeNamed, Limit, ModelNamed, ToFolder
from semtoken.cli.run_progress import duration, run_progress
from semtoken.cli.settings import Read, SettingsInUse
from semtoken.cli.statuses import FAILED, UsageError
from semtoken.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.table import Table

    from semtoken.bench.recorders import CellWork
    from semtoken.bench.run import Failure
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
        "methods": benchmarked(methods),
        "judges": list(judge) or None,
        "limit": limit,
        "controls": controls or None,
    }
    resolved = settings_with(settings, given, of_models)
    if estimate:
        show_estimate(resolved)
        return None
    folder = output or _default_folder(settings)
    if dry_run:
        show_plan(resolved, folder)
        return None
    directory = None if settings is None else settings.absolute().parent
    with run_progress() as watcher:
        failures = run_benchmark(
            resolved, folder, executor=load_executor(in_use.settings.executor), watcher=watcher, directory=directory
        )
    return report_failures(failures, folder)


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
    left, total = sum(work.units for work in pending), sum(work.cell.n_questions for work in pending)
    say(f"{total - left:,} of {total:,} answers x steps are in {folder}. Nothing was changed.")
    for model, reason in plan.problems.items():
        tell(f"{model} will be left out: {reason}", style="yellow")


def show_estimate(settings: RunSettings) -> None:
    """Print the time and the space on disk that a run will take, from a trial on a few questions."""
    from semtoken.bench.estimate import TRIAL, estimate
    from semtoken.bench.run import read_datasets

    cost = estimate(settings, {dataset.label: len(dataset.questions) for dataset in read_datasets(settings)})
    say(
        f"About {duration(cost.seconds)} for {cost.questions:,} questions, {duration(cost.setup_seconds)} to load "
        f"and cluster, and {cost.n_bytes / 1e6:,.0f} MB on disk; from up to {TRIAL} questions of each data set."
    )


def _plan_table(pending: Sequence[CellWork]) -> Table:
    from rich import box
    from rich.table import Column, Table

    numbers = (Column(name, justify="right") for name in ("Questions", "Done", "Left"))
    table = Table("Model", "Data set", "Step", *numbers, box=box.SIMPLE, pad_edge=False)
    for work in pending:
        count = work.cell.n_questions
        row = (work.cell.model, work.cell.dataset, work.name.replace("_", " "), f"{count:,}")
        table.add_row(*row, f"{count - work.units:,}", f"{work.units:,}" if work.units else "")
    return table


def report_failures(failures: Sequence[Failure], folder: Path) -> int | None:
    """Say how a run ended; the exit status is 1 if something failed."""
    from semtoken.bench.read_results import model_shares
    from semtoken.bench.run import LOG, failures_in_words

    if not failures:
        for name, share in model_shares(folder).items():
            answers = "Greedy answers" if name == "greedy" else "Samples"
            tell(f"{answers}: {share:.0%} of the time was spent in the model.")
        tell(f"The run in {folder} is complete. Its tables: semtoken bench report {quote(str(folder))}")
        return None
    for failed in failures_in_words(failures):
        tell(f"Failed: {failed}", style="red")
    tell(
        f"Error: {len(failures)} step{'s' if len(failures) > 1 else ''} failed, everything else in {folder} is done; "
        f"{folder / LOG} says more. Run the same command again to try these once more.",
        style="red",
    )
    return FAILED
