"""A scoring job by several processes or machines: lines are scored in shards, and written in their order.

A shard is a run of whole batches, so that the output is that of a job in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from semtoken.executors import Executor
from semtoken.executors.lines import LINES_IN_SHARD, InputLines, LinesWork, append_in_order
from semtoken.files.safe_files import replace_text
from semtoken.score_file import Annotate, OnProgress, Progress, ScoreItems, ScoringJob

Load: TypeAlias = Callable[[], tuple[ScoreItems, "Annotate | None"]]
"""Loads a model, and gives what scores with it and what it adds to a line; sent to other processes."""


def run_in_shards(
    job: ScoringJob, load: Load, executor: Executor, on_progress: OnProgress | None = None, lines: int = LINES_IN_SHARD
) -> Progress:
    """Score the rest of a job in shards, by an executor.

    Parameters
    ----------
    job
        The job. Its files must lie under the same paths wherever shards are scored.
    load
        Called once by each process that scores.
    executor
        The executor that scores the shards.
    on_progress
        Called when lines were written.
    lines
        How many lines a shard has, rounded up to whole batches.

    Raises
    ------
    SemtokenError
        See `ScoringJob.run`; what a process raised comes as `BackendError`. Lines already written stay.
    """
    before = job.check()
    if job.is_finished(before):
        return before
    folder = job.target.with_name(job.target.name + ".shards")
    work = ScoringWork(folder, -(-lines // job.batch_size) * job.batch_size, load, job)
    written = before.done
    with job.writing() as output:

        def append(found: list[bytes]) -> None:
            nonlocal written
            output.write(found)
            written += len(found)
            if on_progress is not None:
                on_progress(written)

        append_in_order(work, executor, before.done, before.total, append)
    return Progress(before.total, written)


@dataclass(frozen=True)
class ScoringWork(LinesWork):
    """The shards of a job."""

    job: ScoringJob

    def resolved(self) -> ScoringWork:
        """A copy with absolute paths, so that another process can do the work."""
        job = replace(self.job, source=self.job.source.resolve(), target=self.job.target.resolve())
        return replace(self, job=job, folder=self.folder.resolve())

    def open(self, loader: Load, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Load the model; returns the function that scores one shard."""
        score, annotate = loader()
        job = replace(self.job, annotate=annotate)
        source = InputLines(job.items)

        def make(shard: int) -> None:
            items = source.lines(shard * self.size, self.size)
            lines: list[bytes] = []
            for at in range(0, len(items), job.batch_size):
                lines += job.scored_batch(score, items[at : at + job.batch_size])
                answered(len(lines))
            replace_text(self.file(shard), b"".join(lines).decode())

        return make
