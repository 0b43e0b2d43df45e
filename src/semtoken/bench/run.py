"""A run from its settings to its files: plan, lock, one work after another, and what failed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from semtoken.bench import manifest
from semtoken.bench.datasets import Dataset, read_dataset
from semtoken.bench.models import Models
from semtoken.bench.passes import reason_of
from semtoken.bench.plan import CellPlan, Plan, PlannedClustering, PlannedStep, clustering_of, make_plan
from semtoken.bench.recorders import CellWork
from semtoken.bench.settings import RunSettings
from semtoken.bench.statistics.steps import STEPS
from semtoken.bench.storage import (
    LOCK,
    is_prepared,
    locked,
    prepare_clustering,
    read_json,
    read_shard,
    remove_leftovers,
    take_problem,
    write_json,
    write_shard,
)
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.models.prompts import prompt_format
from semtoken.support.executors import Executor, LocalExecutor
from semtoken.support.extras import require
from semtoken.support.files.safe_files import writing_errors
from semtoken.support.files.temporary import WORKING
from semtoken.support.inputs import first_repeated

log = logging.getLogger(__name__)

SETTINGS, PLAN, MANIFEST, LOG = "settings.json", "plan.json", "manifest.json", "run.log"
STAGES = "stages"


def _phases() -> list[tuple[str, ...]]:
    """Works in their order, judges left out. All data sets of a model go through a phase before the next begins, so
    that each model is loaded once.
    """
    phases: dict[str, dict[str, None]] = {}
    for step in STEPS:
        work = "stc" if step.rules is not None else "watched" if step.watch is not None else step.artifact
        phases.setdefault(step.asks, {})[work] = None
    return [*map(tuple, phases.values()), ("scores",)]


@dataclass(frozen=True)
class Failure:
    """A step of a run that failed, with the reason."""

    where: str
    """Model, or model and data set."""
    what: str
    """The work, step or clustering that failed; "loading" for a model that cannot be used."""
    reason: str

    def __str__(self) -> str:
        return f"{self.where}, {self.what}: {self.reason}"


def failures_in_words(failures: Sequence[Failure]) -> list[str]:
    """A line for each reason, with all that failed for it: a model that cannot be loaded fails each of its steps."""
    steps: dict[str, list[str]] = {}
    for failure in failures:
        steps.setdefault(failure.reason, []).append(f"{failure.where}, {failure.what}")
    return [f"{'; '.join(failed)}: {reason}" for reason, failed in steps.items()]


class Watcher(Protocol):
    """Progress callbacks of a run. A unit is one question in one work."""

    def begin(self, units: int) -> None:
        """Called when a run begins that has to do this many units of work."""

    def work(self, title: str, units: int) -> None:
        """Called when a step with this title and this many units begins."""

    def advance(self, units: int) -> None:
        """Called when this many more units are done or have failed."""

    def clustering(self, phase: str, fraction: float, seconds_left: float | None) -> None:
        """Called while a vocabulary is being clustered; see `semtoken.clustering.progress.Progress`."""


def read_datasets(settings: RunSettings) -> list[Dataset]:
    """Read all question sets of a run; `InvalidInputError` if one cannot be read, or two have the same label."""
    datasets = []
    for wanted in settings.datasets:
        form = None
        if wanted.prompt is not None:
            form = prompt_format(wanted.prompt, chat=wanted.chat, stop_at_newline=wanted.stop_at_newline)
        size, seed = settings.limit, settings.seed
        datasets.append(
            read_dataset(wanted.name, path=wanted.path, format=form, label=wanted.label, limit=size, seed=seed)
        )
    if twice := first_repeated(dataset.label for dataset in datasets):
        raise InvalidInputError(f"Two data sets have the label {twice!r}; give each a `label` of its own.")
    return datasets


def survey(run: Path, settings: RunSettings, plan: Plan) -> list[CellWork]:
    """All passes of a plan over its questions, in the order in which they are run, with the shards left to do."""
    passes = []
    for label in dict.fromkeys(cell.model for cell in plan.cells):
        cells = [cell for cell in plan.cells if cell.model == label]
        judges = dict.fromkeys(step.work for cell in cells for step in cell.steps.values() if step.work[:6] == "judge:")
        for phase in (*_phases(), tuple(judges)):
            for cell in cells:
                for name in phase:
                    if steps := cell.steps_of(name):
                        work = CellWork(run, settings, cell, name, steps)
                        passes.append(replace(work, shards=tuple(filter(work.missing, range(cell.n_shards)))))
    return passes


def run_benchmark(
    settings: RunSettings,
    run: Path,
    *,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
    directory: Path | None = None,
) -> list[Failure]:
    """Do everything that is missing of a run; returns what failed.

    A failed step leaves out what depends on it; everything else is done. A run that is taken up with other settings
    computes what depends on them. `directory` is the folder of the settings file, for the git state in the manifest. By
    default shards run one after another in this process. `InvalidInputError` if a question set cannot be read, or the
    folder is in use, holds something else or cannot be written.
    """
    datasets = read_datasets(settings)
    plan = make_plan(settings, datasets)
    check_folder(run)
    with locked(run), _logging(run / LOG):
        remove_leftovers(run)
        write_json(run / SETTINGS, settings.model_dump(mode="json"))
        write_json(run / PLAN, plan.to_dict())
        with _manifest(run, settings, directory or Path.cwd()) as facts:
            by_label = {dataset.label: dataset for dataset in datasets}
            for cell in plan.cells:
                store_questions(run, cell, by_label[cell.dataset])
            session = _Session(run, settings, executor or LocalExecutor(Models(settings)), watcher, plan)
            failures = session.go()
            facts["failures"] = [str(failure) for failure in failures]
    return failures


def store_questions(run: Path, cell: CellPlan, dataset: Dataset) -> None:
    """Write the questions of a data set into the run's folder, as far as they are missing."""
    pyarrow = require("pyarrow", extra="bench")
    folder = cell.questions_folder(run)
    for shard in range(cell.n_shards):
        if read_shard(folder, shard, cell.questions, cell.rows(shard)) is None:
            part = dataset.questions[shard * cell.shard_size :][: cell.shard_size]
            columns: dict[str, Sequence[Any]] = {
                "id": [question.id for question in part],
                "question": [question.question for question in part],
                "answers": [list(question.answers) for question in part],
            }
            write_shard(folder, shard, cell.questions, pyarrow.table(columns), {})


def require_all_done(failures: Sequence[Failure]) -> None:
    """Raise `InvalidInputError` for the first step of a run that failed, if there is one."""
    if failures:
        raise InvalidInputError(f"{failures[0].what.replace('_', ' ').capitalize()} failed: {failures[0].reason}")


def check_folder(run: Path) -> None:
    """Raise `InvalidInputError` unless a folder is missing, empty, or holds a run."""
    if run.exists() and not run.is_dir():
        raise InvalidInputError(f"{run} is a file; give the name of a folder.")
    if not run.is_dir() or any((run / name).exists() for name in (PLAN, MANIFEST, STAGES)):
        return
    others = [path.name for path in run.iterdir() if path.name not in (LOCK, LOG, SETTINGS)]
    others = [name for name in others if not name.startswith(WORKING)]
    if others:
        raise InvalidInputError(f"{run} holds something else than a run ({others[0]}); give a new or empty folder.")


class _Session:
    """One process at work on a run."""

    def __init__(
        self, run: Path, settings: RunSettings, executor: Executor, watcher: Watcher | None, plan: Plan
    ) -> None:
        self._run, self._settings, self._plan = run, settings, plan
        self._executor = executor
        self._watcher = watcher
        self._failures = [Failure(model, "loading", reason) for model, reason in plan.problems.items()]
        self._broken: set[str] = set()
        self._prepared: set[str] = set()

    def go(self) -> list[Failure]:
        """Do everything, and say what failed."""
        for failure in self._failures:
            log.error("%s", failure)
        pending = [work for work in survey(self._run, self._settings, self._plan) if work.shards]
        if self._watcher is not None:
            self._watcher.begin(sum(work.units for work in pending))
        for work in pending:
            steps = self._possible(work)
            # What depends on these is left out in turn, without a failure of its own in the list.
            self._broken.update(step.key for step in work.steps if step not in steps)
            if steps:
                self._do(replace(work, steps=steps))
            elif self._watcher is not None:
                self._watcher.work(f"{work.title} (left out)", work.units)
                self._watcher.advance(work.units)
        self._executor.release()
        log.info("Finished with %d failures", len(self._failures))
        return self._failures

    def _possible(self, work: CellWork) -> tuple[PlannedStep, ...]:
        """The steps of a work whose inputs are there, clusterings too, which are made now if need be."""
        clusterings = work.cell.clusterings if work.name == "stc" else ()  # nothing else reads clusters
        if clusterings and not self._has(clusterings[0], work.cell):
            return ()
        key_of = {name: step.key for name, step in work.cell.steps.items()}
        steps = [s for s in work.steps if not self._broken.intersection([s.key, *map(key_of.get, s.inputs)])]
        if clusterings:
            steps = [step for step in steps if self._has(clustering_of(work.cell, step.name), work.cell)]
        return tuple(steps)

    def _has(self, clustering: PlannedClustering, cell: CellPlan) -> bool:
        """Return True if the run holds a clustering, made now if need be."""
        if clustering.key in self._broken | self._prepared:
            return clustering.key in self._prepared
        progress = None if self._watcher is None else self._watcher.clustering
        try:
            if not is_prepared(self._run, clustering):
                log.info("Clustering of %s: %s", cell.model, clustering.name)
                prepare_clustering(self._run, self._settings.choice(cell.model), clustering, progress)
        except Exception as error:  # whatever a model's files bring about must not stop the others
            self._fail(cell.model, f"clustering {clustering.name}", error)
            self._broken.add(clustering.key)
            return False
        self._prepared.add(clustering.key)
        return True

    def _do(self, work: CellWork) -> None:
        """The possible steps of a work."""
        cell, done, shown = work.cell, 0, 0  # questions of whole shards, and those that the watcher knows of

        def show(total: int) -> None:
            nonlocal shown
            if self._watcher is not None and total > shown:
                self._watcher.advance(total - shown)
                shown = total

        def count(shard: int) -> None:
            nonlocal done
            done += cell.rows(shard)
            log.info("%s: shard %d of %d", work.title, shard + 1, cell.n_shards)
            show(done)

        if self._watcher is not None:
            self._watcher.work(work.title, work.units)
        try:
            self._executor.run(work, work.shards, count, lambda answered: show(done + answered))
            for step in work.steps:
                if (reason := take_problem(step.folder(self._run))) is not None:
                    self._fail(cell.title, step.name, reason)
                    self._broken.add(step.key)
        except Exception as error:  # out of memory, a missing model, a judge that cannot be reached: others go on
            self._fail(cell.title, work.name, error)
            self._broken.update(step.key for step in work.steps)
            self._executor.release()
            show(work.units)

    def _fail(self, where: str, what: str, error: Exception | str) -> None:
        unexpected = isinstance(error, Exception) and not isinstance(error, SemtokenError)
        failure = Failure(where, what, error if isinstance(error, str) else reason_of(error))
        self._failures.append(failure)
        log.error("%s", failure, exc_info=unexpected)


@contextmanager
def _manifest(run: Path, settings: RunSettings, directory: Path) -> Iterator[dict[str, Any]]:
    """Facts about this session, in the manifest from the beginning and again at the end; former sessions stay."""
    path = run / MANIFEST
    former = _former_sessions(path)
    facts = manifest.session(settings, directory)
    # Before any work, so that a run that is killed has left its facts.
    write_json(path, facts | {"sessions": [*former, facts]})
    try:
        yield facts
        facts["status"] = "incomplete" if facts["failures"] else "complete"
    except BaseException:
        # Ctrl-C, too, which is no `Exception`.
        facts["status"] = "interrupted"
        raise
    finally:
        facts["finished"] = manifest.now()
        write_json(path, facts | {"sessions": [*former, facts]})


def _former_sessions(path: Path) -> list[Any]:
    """The facts of earlier sessions from the manifest. It holds nothing else: a damaged one stops no run."""
    if not path.exists():
        return []
    try:
        return list(read_json(path).get("sessions", []))
    except (InvalidInputError, TypeError):
        kept = path.with_name("manifest.damaged.json")
        path.replace(kept)
        log.warning("%s was damaged and is now %s; a new one was begun.", path, kept.name)
        return []


@contextmanager
def _logging(path: Path) -> Iterator[None]:
    """Send the log of semtoken to a file of the run, and only there: some libraries print what reaches the root."""
    logger = logging.getLogger("semtoken")
    with writing_errors(path):
        handler = _RunLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.removeHandler(handler)
        with suppress(OSError):  # what the disk had no room for is written once more here
            handler.close()


class _RunLog(logging.FileHandler):
    """A log without which a run goes on: logging prints a traceback for every line that a full disk does not take."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass
