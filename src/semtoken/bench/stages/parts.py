"""What a stage is given and what it gives back: the questions of one shard, and the records of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from semtoken.almanac import Question
from semtoken.backends.prompts import Prompt
from semtoken.bench.columns import generations_of
from semtoken.bench.datasets import Dataset
from semtoken.bench.models import Models
from semtoken.bench.plan import CellPlan, PlannedStep
from semtoken.bench.prompts import PromptFormat
from semtoken.bench.settings import RunSettings
from semtoken.bench.storage import Shard, read_shard, shard_path, write_shard
from semtoken.errors import InvalidInput
from semtoken.results.generation import Generation
from semtoken.statistics import AnswerSettings
from semtoken.support.extras import require


@dataclass(frozen=True)
class Context:
    """What all shards of a work share."""

    run: Path
    settings: RunSettings
    cell: CellPlan
    models: Models
    answered: Callable[[int], None] = lambda count: None
    """Called with how many questions of the shard at work the model has dealt with so far, where that is known."""

    @property
    def decoding(self) -> AnswerSettings:
        """How this model answers this data set."""
        return AnswerSettings(
            **self.settings.decoding.model_dump(),
            stop_at_newline=bool(self.cell.format["stop_at_newline"]),
            batch_size=self.models.choice(self.cell.model).batch_size,
        )

    def read(self, step: PlannedStep, shard: int) -> Shard | None:
        """A shard of a step, if it is there."""
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
        found = read_shard(folder, self.shard, key, self.context.cell.rows(self.shard))
        if found is None:
            raise _gone(shard_path(folder, self.shard))
        columns = found.columns
        rows = zip(columns["id"], columns["question"], columns["answers"], strict=True)
        return [Question(name, question, tuple(answers)) for name, question, answers in rows]

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    @cached_property
    def prompts(self) -> list[Prompt]:
        """What the model is given."""
        form = PromptFormat(**self.context.cell.format)
        return [form.prompt(question.question) for question in self.questions]

    @cached_property
    def generations(self) -> list[Generation]:
        """All that the inputs of the missing steps hold."""
        steps = self.context.cell.steps
        inputs = dict.fromkeys(name for step in self.missing for name in step.inputs)
        columns = []
        for name in inputs:
            found = self.context.read(steps[name], self.shard)
            if found is None:
                raise _gone(shard_path(steps[name].folder(self.context.run), self.shard))
            columns.append(found.columns)
        return generations_of([question.question for question in self.questions], columns)


def _gone(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} was there when this run began and is now missing or damaged. Run again to make it.")


@dataclass(frozen=True)
class StepRecords:
    """The records of one step."""

    step: PlannedStep
    table: Any
    """`pyarrow.Table`, one row a question."""
    seconds: Mapping[str, float]
    """How long the recording steps took, by name."""
    usage: Mapping[str, int] | None = None
    """What an endpoint counted, as in `Shard.usage`."""


@dataclass(frozen=True)
class UnrecordedStep:
    """One of several steps of a work could not be recorded; the others go on."""

    step: PlannedStep
    reason: str


Recorder: TypeAlias = Callable[[ShardInputs], Iterator[StepRecords | UnrecordedStep]]
"""Records what is missing of one shard; each step is written as soon as it comes."""


def store_questions(run: Path, cell: CellPlan, dataset: Dataset) -> None:
    """Put the questions of a data set into the run, as far as they are not there."""
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
