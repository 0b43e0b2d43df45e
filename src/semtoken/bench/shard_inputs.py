"""The questions of a shard with what earlier steps recorded of them, and the form of what a step records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from semtoken.bench.models import Models
from semtoken.bench.plan import CellPlan, PlannedStep
from semtoken.bench.settings import RunSettings
from semtoken.bench.statistics import AnswerSettings
from semtoken.bench.storage import Shard, generations_of, read_shard, shard_path
from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.models.base import Prompt
from semtoken.support.almanac import Question


@dataclass(frozen=True)
class Context:
    """The run, settings and models that all shards of one work share."""

    run: Path
    settings: RunSettings
    cell: CellPlan
    models: Models
    answered: Callable[[int], None] = lambda count: None
    """Called with how many questions of the shard at work the model has dealt with so far, where that is known."""

    @property
    def decoding(self) -> AnswerSettings:
        """The decoding settings with which this model answers this data set."""
        return AnswerSettings(
            **self.settings.decoding.model_dump(),
            stop_at_newline=self.cell.format.stop_at_newline,
            batch_size=self.models.choice(self.cell.model).batch_size,
        )

    def progress(self, step: str, done: int, total: int) -> None:
        """Called while the model answers."""
        self.answered(done)

    def read(self, step: PlannedStep, shard: int) -> Shard | None:
        """Read a shard of a step; None if it has not been made yet."""
        return read_shard(step.folder(self.run), shard, step.key, self.cell.rows(shard))


@dataclass(frozen=True)
class ShardInputs:
    """The questions of one shard with what earlier steps recorded of them."""

    context: Context
    shard: int
    missing: tuple[PlannedStep, ...]
    """Steps whose records are wanted, each key once."""

    @cached_property
    def questions(self) -> list[Question]:
        """The questions with their accepted answers."""
        folder, key = self.context.cell.questions_folder(self.context.run), self.context.cell.questions
        shard = read_shard(folder, self.shard, key, self.context.cell.rows(self.shard))
        if shard is None:
            raise _missing_file(shard_path(folder, self.shard))
        columns = shard.columns
        rows = zip(columns["id"], columns["question"], columns["answers"], strict=True)
        return [Question(name, question, tuple(answers)) for name, question, answers in rows]

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    @cached_property
    def prompts(self) -> list[Prompt]:
        """The prompt of each question."""
        return [self.context.cell.format.prompt(question.question) for question in self.questions]

    @cached_property
    def generations(self) -> list[Generation]:
        """The recorded answers of the shard, with all fields that the missing steps need."""
        steps = self.context.cell.steps
        inputs = dict.fromkeys(name for step in self.missing for name in step.inputs)
        columns = []
        for name in inputs:
            shard = self.context.read(steps[name], self.shard)
            if shard is None:
                raise _missing_file(shard_path(steps[name].folder(self.context.run), self.shard))
            columns.append(shard.columns)
        return generations_of([question.question for question in self.questions], columns)


def _missing_file(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"{path} was there when this run began and is now missing or damaged. Run again to make it."
    )


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
