"""One pass over the questions of a model and a data set, as plain data that any executor can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from semtoken.bench.models import Models
from semtoken.bench.plan import CellPlan, PlannedStep
from semtoken.bench.settings import RunSettings
from semtoken.bench.stages.parts import Context, Recorder, ShardInputs, UnrecordedStep
from semtoken.bench.storage import is_shard, problem_path, write_json, write_shard
from semtoken.statistics.steps import STEP


@dataclass(frozen=True)
class CellWork:
    """The steps of one cell that share a pass over its questions."""

    run: Path
    settings: RunSettings
    cell: CellPlan
    name: str
    """The name of the stage; `semtoken.bench.stages` lists them."""
    steps: tuple[PlannedStep, ...]
    """What it is to compute, of the steps of that name."""

    @property
    def title(self) -> str:
        """The stage as people read of it."""
        return f"{self.cell.title}: {self.name.replace('_', ' ').replace(':', ' ')}"

    def missing(self, shard: int) -> tuple[PlannedStep, ...]:
        """Steps whose file of a shard is not there or not whole, each key once."""
        by_key = {step.key: step for step in reversed(self.steps)}
        rows = self.cell.rows(shard)
        return tuple(
            step for step in reversed(by_key.values()) if not is_shard(step.folder(self.run), shard, step.key, rows)
        )

    def resolved(self) -> CellWork:
        """The same with an absolute path of the run."""
        return replace(self, run=self.run.resolve())

    def loader(self) -> Models:
        """What loads its models."""
        return Models(self.settings)

    def open(self, loader: Models, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Get ready: what is returned makes the missing files of one shard.

        Parameters
        ----------
        loader
            What loads the models of the run.
        answered
            Called with the questions of the shard at work that are done so far, in works that know it.

        Raises
        ------
        SemtokenError
            A model that it needs cannot be loaded.
        """
        context = Context(self.run, self.settings, self.cell, loader, answered)
        record = _recorder(self.name, context)

        def make(shard: int) -> None:
            missing = self.missing(shard)
            if not missing:
                return
            for found in record(ShardInputs(context, shard, missing)):
                folder = found.step.folder(self.run)
                if isinstance(found, UnrecordedStep):
                    write_json(problem_path(folder, shard), {"reason": found.reason})
                else:
                    write_shard(folder, shard, found.step.key, found.table, found.seconds, found.usage)

        return make


def _recorder(work: str, context: Context) -> Recorder:
    """What computes a work; imported when needed, since each brings its own libraries."""
    from semtoken.bench.stages import answers, judgements, pairs, scores

    if work.startswith("judge:"):
        return judgements.recorder(work.partition(":")[2], context)
    makers: dict[str, Callable[[Context], Recorder]] = {
        "greedy": answers.greedy,
        "samples": answers.samples,
        "stc": answers.clustered,
        "watched": answers.watched,
        "p_true": answers.p_true,
        "scores": scores.recorder,
    }
    return makers[work](context) if work in makers else pairs.recorder(STEP[work], context)
