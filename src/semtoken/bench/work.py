"""The work that makes the files of a run: one for each pass over the questions of a model and a data set.

A `CellWork` is plain data and can be sent to another process or machine that sees the run's folder. Opened there, it
makes the files of one shard after another; an executor (`semtoken.support.executors`) decides where and in what order.

========================================== ===========================================================================
work                                       steps
========================================== ===========================================================================
greedy, samples, p_true                    of the same names, by the model that answers
stc                                        stc, stc_no_clustering, stc_no_prefix, one for each clustering of the study
watched                                    one for each statistic of the answering model
entailment, alternative_entailment         of the same names, by the NLI model
similarity, token_relevance,               of the same names, by the cross-encoder
sample_token_relevance
scores                                     one for each method
judge:NAME                                 of the same name
========================================== ===========================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from semtoken.bench.models import Models
from semtoken.bench.passes import CellPass, ShardInputs, UnrecordedStep
from semtoken.bench.recorders import recorder_of
from semtoken.bench.storage import problem_path, write_json, write_shard


@dataclass(frozen=True)
class CellWork(CellPass):
    """A pass over the questions of a model and a data set as executors make it."""

    def resolved(self) -> CellWork:
        """A copy with the absolute path of the run, so that another process can do the work."""
        return replace(self, run=self.run.resolve())

    def loader(self) -> Models:
        """The object that loads the models of this work when they are needed."""
        return Models(self.settings)

    def open(self, loader: Models, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Load what the work needs; returns the function that makes the missing files of one shard.

        `answered` is called as `ShardInputs.answered` says. `SemtokenError` if a model cannot be loaded.
        """
        record = recorder_of(self, loader)

        def make(shard: int) -> None:
            missing = self.missing(shard)
            if not missing:
                return
            for outcome in record(ShardInputs(self, shard, missing, answered)):
                folder = outcome.step.folder(self.run)
                if isinstance(outcome, UnrecordedStep):
                    write_json(problem_path(folder, shard), {"reason": outcome.reason})
                else:
                    write_shard(folder, shard, outcome.step.key, outcome.table, outcome.seconds, outcome.usage)

        return make
