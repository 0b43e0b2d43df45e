"""A pass over questions as plain data: its steps, a shard's questions with what earlier steps recorded of them, and the
form of what a step records.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from semtoken.bench.plan import CellPlan, PlannedStep
from semtoken.bench.settings import RunSettings
from semtoken.bench.statistics import AnswerSettings
from semtoken.bench.storage import generations_of, is_shard, read_shard, shard_path
from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.models.base import Prompt
from semtoken.support.almanac import Question


@dataclass(frozen=True)
class CellPass:
    """The steps on one model and data set that a single pass over the questions computes together."""

    run: Path
    settings: RunSettings
    cell: CellPlan
    name: str
    """The name of the work, from the list at the head of this module."""
    steps: tuple[PlannedStep, ...]
    shards: tuple[int, ...] = ()
    """The shards of which something is missing; see `survey`."""

    @property
    def units(self) -> int:
        """The number of questions in these shards."""
        return sum(map(self.cell.rows, self.shards))

    @property
    def title(self) -> str:
        """The title of the step in messages and progress bars."""
        return f"{self.cell.title}: {self.name.replace('_', ' ').replace(':', ' ')}"

    @property
    def decoding(self) -> AnswerSettings:
        """The decoding settings with which this model answers this data set."""
        return AnswerSettings(
            **self.settings.decoding.model_dump(),
            stop_at_newline=self.cell.format.stop_at_newline,
            batch_size=self.settings.choice(self.cell.model).batch_size,
        )

    def missing(self, shard: int) -> tuple[PlannedStep, ...]:
        """The steps whose file for a shard is missing or damaged, each key once."""
        # Two variants of one clustering have one key and one file, which is made once: by the first of them.
        by_key = {step.key: step for step in reversed(self.steps)}
        rows = self.cell.rows(shard)
        return tuple(
            step for step in reversed(by_key.values()) if not is_shard(step.folder(self.run), shard, step.key, rows)
        )


@dataclass(frozen=True)
class ShardInputs:
    """The questions of one shard with what earlier steps recorded of them."""

    work: CellPass
    shard: int
    missing: tuple[PlannedStep, ...]
    """Steps whose records are wanted, each key once."""
    answered: Callable[[int], None]
    """Called with how many questions of the shard the model has dealt with so far, where that is known."""

    def progress(self, step: str, done: int, total: int) -> None:
        """Called while the model answers."""
        self.answered(done)

    @cached_property
    def questions(self) -> list[Question]:
        """The questions with their accepted answers."""
        cell = self.work.cell
        columns = self._columns(cell.questions_folder(self.work.run), cell.questions)
        rows = zip(columns["id"], columns["question"], columns["answers"], strict=True)
        return [Question(name, question, tuple(answers)) for name, question, answers in rows]

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    @cached_property
    def prompts(self) -> list[Prompt]:
        """The prompt of each question."""
        return [self.work.cell.format.prompt(question.question) for question in self.questions]

    @cached_property
    def generations(self) -> list[Generation]:
        """The recorded answers of the shard, with all fields that the missing steps need."""
        inputs = dict.fromkeys(name for step in self.missing for name in step.inputs)
        steps = [self.work.cell.steps[name] for name in inputs]
        columns = [self._columns(step.folder(self.work.run), step.key) for step in steps]
        return generations_of([question.question for question in self.questions], columns)

    def _columns(self, folder: Path, key: str) -> Mapping[str, Sequence[Any]]:
        """The columns that an earlier step, or the run itself, has written of this shard."""
        found = read_shard(folder, self.shard, key, self.work.cell.rows(self.shard))
        if found is None:
            raise InvalidInputError(
                f"{shard_path(folder, self.shard)} was there when this run began and is now missing or damaged. Run "
                "again to make it."
            )
        return found.columns


@dataclass(frozen=True)
class StepRecords:
    """The columns that one step has recorded for a shard, with the seconds that this took."""

    step: PlannedStep
    table: Any
    """A `pyarrow.Table` with a row for each question."""
    seconds: Mapping[str, float]
    """The seconds that the recording steps took, by name."""
    usage: Mapping[str, int] | None = None
    """Tokens that an endpoint counted, as in `Shard.usage`."""


@dataclass(frozen=True)
class UnrecordedStep:
    """The error of one step of a work that failed while the others of the same pass go on."""

    step: PlannedStep
    reason: str


def reason_of(error: Exception) -> str:
    """The reason why a step failed, in words; an error that is none of semtoken's is named with its type."""
    return str(error) if isinstance(error, SemtokenError) else f"{type(error).__name__}: {error}"


Recorder: TypeAlias = Callable[[ShardInputs], Iterator[StepRecords | UnrecordedStep]]
"""Records what is missing of one shard; each step is written as soon as it comes."""
