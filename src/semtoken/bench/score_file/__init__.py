"""Scoring a file of prompts, so that a run killed at any moment goes on where it was.

Reads records (JSON lines, CSV, Parquet), scores them in batches, appends one line of results for each. Batches begin at
multiples of the batch size counted from the first line, also in a run that continues: a line always shares its batch
with the same others, so the numbers, and with them the bytes of the output, are those of an undisturbed run.
Loading models and showing progress is left to the caller.

Enter at `ScoringJob`. `batches` makes of a model what scores a batch, `lines` is the input, `output` the lines written
so far, or a finished CSV or Parquet file; `run_in_shards` has a job's lines scored by several processes or machines. A
shard is a run of whole batches, so that the output is that of a job in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from semtoken.bench.score_file.lines import PART_FIELDS, RESULT_FIELDS, BadLine, Item, placed, read_items
from semtoken.bench.score_file.output import (
    OutputFile,
    WriteLines,
    check_same_settings,
    digest_of_items,
    facts_path,
    read_facts,
    write_table,
)
from semtoken.choices import PartKind
from semtoken.core.parts import Part
from semtoken.core.results import ScoredAnswer
from semtoken.errors import BudgetExceededError, InvalidInputError, SemtokenError, VocabularyError, VocabularyMismatch
from semtoken.support.executors import LINES_IN_SHARD, Executor, InputLines, LinesWork, append_in_order
from semtoken.support.extras import require
from semtoken.support.files.outputs import check_not_read
from semtoken.support.files.record_files import LINES, PARQUET, ROWS_AT_ONCE, format_of, read_records, schema_of
from semtoken.support.files.safe_files import check_writable, replace_text
from semtoken.support.files.strict_json import dump_json
from semtoken.support.inputs import instance, listed
from semtoken.support.text import with_noun

__all__ = ["BadLine", "Item", "Progress", "ScoreItems", "ScoringJob", "ScoringModel", "read_items", "score_items"]

ScoreItems: TypeAlias = Callable[[Sequence[Item]], list[ScoredAnswer]]
"""A function that scores one batch, an answer for each item, such as `score_items` with a model."""
Annotate: TypeAlias = Callable[[ScoredAnswer, Mapping[str, Any]], Mapping[str, Any]]
"""A function of a scored answer and the line that asked for it, with all its fields."""
OnProgress: TypeAlias = Callable[[int], None]
"""Called with the number of lines that are in the output."""


class ScoringModel(Protocol):
    """The interface of models that generate and score; `semtoken.ScoredModel` has it."""

    def generate(self, prompts: Any, max_new_tokens: int, **options: Any) -> list[ScoredAnswer]:
        """One scored answer for each prompt."""

    def score(self, prompts: Any, responses: Any, *, batch_size: int) -> list[ScoredAnswer]:
        """Scores of answers that exist."""


def score_items(
    model: ScoringModel, items: Sequence[Item], *, max_new_tokens: int = 256, **options: Any
) -> list[ScoredAnswer]:
    """Score one batch of lines with a model: existing responses as they are, the others generated.

    Parameters
    ----------
    model
        A `ScoredModel`, or anything with its `generate` and `score`.
    items
        The lines.
    max_new_tokens, **options
        For the answers that are generated, as in `ScoredModel.generate`.

    Returns
    -------
    list of ScoredAnswer
        In the order of the items.

    Raises
    ------
    InvalidInputError
        A line cannot be used.
    """
    items = [instance(item, Item, "items") for item in listed(items, "items")]
    given = [item for item in items if item.response is not None]
    asked = [item for item in items if item.response is None]
    results: dict[int, ScoredAnswer] = {}
    if given:
        scored = model.score([i.prompt for i in given], [i.response for i in given], batch_size=len(given))
        results |= {item.number: result for item, result in zip(given, scored, strict=True)}
    if asked:
        prompts = [item.prompt for item in asked]
        scored = model.generate(prompts, max_new_tokens, batch_size=len(asked), **options)
        results |= {item.number: result for item, result in zip(asked, scored, strict=True)}
    return [results[item.number] for item in items]


@dataclass(frozen=True)
class Progress:
    """The number of lines of a job, and of those that are done."""

    total: int
    """The number of lines of the input, blank ones left out."""
    done: int
    """The number of lines in the output."""


@dataclass(frozen=True)
class ScoringJob:
    """One input file, one output file, and all settings that decide what is written.

    Each line of output has the fields of its input line, `response` (generated where the line had none), and
    `RESULT_FIELDS`; with `tokens` also the list of scored tokens.
    """

    source: Path
    """The input: records with `question`, `prompt` or `messages`, and `response` if there is one, as
    `semtoken.support.files.record_files` reads them."""
    target: Path
    """The output: `.jsonl` (or `.ndjson`), written line by line; `.csv` or `.parquet`, written at the end from lines
    beside it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Everything that decides the numbers, as plain values: a later run must name the same. A `model` is written with
    each answer, too, unless its line names one already."""
    batch_size: int = 8
    """The number of lines that are scored together, and written at once."""
    tokens: bool = False
    """True writes the scored tokens, too."""
    parts: PartKind | None = None
    """The kind of parts of the answer to write with their confidence; see `ScoredAnswer.parts`."""
    skip_bad_lines: bool = False
    """True to write `{"line": number, "error": reason}` for a line that cannot be scored, rather than to stop."""
    overwrite: bool = False
    """True to start from the beginning, whatever the output holds."""
    annotate: Annotate | None = None
    """Gives further fields of a line from its scored answer and its own fields, such as probability and decision of a
    calibrator."""
    images: Path | None = None
    """The folder to which paths of images are relative. None: that of the source."""
    name: str = ""
    """The name of the source in messages; its path by default."""

    def items(self) -> Iterator[Item | BadLine]:
        """The records of the source in order, bad lines among them; `InvalidInputError` if it cannot be read."""
        folder = self.source.parent if self.images is None else self.images
        return (placed(item, folder, self.target.parent) for item in read_items(self.source))

    @property
    def _called(self) -> str:
        return self.name or str(self.source)

    @property
    def lines(self) -> OutputFile:
        """The file to which scored lines are appended until the job is complete."""
        return OutputFile(self.target.with_name(self.target.name + ".part.jsonl") if self._is_table else self.target)

    @property
    def _is_table(self) -> bool:
        return format_of(self.target) != LINES

    @property
    def all_settings(self) -> dict[str, Any]:
        """The settings with those of the job itself."""
        asked = {"batch_size": self.batch_size, "tokens": self.tokens, "parts": self.parts}
        return asked | dict(self.settings)

    def check(self) -> Progress:
        """Check that the job can run before any model is loaded; returns how much of it is done and changes nothing.

        `InvalidInputError` if an input line cannot be used (unless they are skipped), or the output cannot be written,
        was made from another input or with other settings.
        """
        self._check_names()
        # The whole input is read before a model is loaded: a bad line at its end would show after hours.
        total = self.check_input()
        check_writable(self.lines.path)
        if self.overwrite:
            return Progress(total, 0)
        if self._is_table:
            self._check_columns()
            if self.target.exists():
                return self._check_finished_table(total)
        self.lines.check_settings(self.all_settings)
        return Progress(total, self.lines.check_lines(self.items()))

    def is_finished(self, progress: Progress) -> bool:
        """Return True if nothing is left to do, by the progress that `check` returned."""
        return progress.done == progress.total and self.target.exists() and not self.overwrite

    def _check_names(self) -> None:
        if self.batch_size < 1:
            raise InvalidInputError(f"batch_size must be positive, got {self.batch_size}.")
        if format_of(self.target) == PARQUET:
            require("pyarrow", extra="frames")
        check_not_read([self.target, self.lines.path, self.lines.settings_path, facts_path(self.target)], [self.source])

    def check_input(self) -> int:
        """The number of records, if all can be used, or bad ones are skipped and some others can; else raises
        `InvalidInputError`.
        """
        total = 0
        bad: list[BadLine] = []
        for item in self.items():
            total += 1
            if isinstance(item, BadLine):
                bad.append(item)
        if bad and not self.skip_bad_lines:
            others = f" {len(bad) - 1:,} more lines cannot be used." if len(bad) > 1 else ""
            raise InvalidInputError(
                f"Line {bad[0].number} of {self._called}: {bad[0].reason}.{others} Correct the file, or leave "
                "--strict out, which records such lines with their errors. Nothing was scored in this run."
            )
        if not total:
            raise InvalidInputError(f"{self._called} holds no lines.")
        if len(bad) == total:
            raise InvalidInputError(f"No line of {self._called} can be scored. Line {bad[0].number}: {bad[0].reason}.")
        return total

    def bad_lines(self) -> Iterator[BadLine]:
        """The lines of a finished output that have an error in place of a score, in order."""
        for record in read_records(self.target):
            if record.fields.get("error") is not None:
                yield BadLine(int(record.fields["line"]), str(record.fields["error"]))

    @property
    def warning(self) -> str:
        """A sentence on the lines of a finished output that could not be scored; empty where all were."""
        bad = self.bad_lines()
        if (first := next(bad, None)) is None:
            return ""
        count = with_noun(1 + sum(1 for _ in bad), "line")
        return f"{count} could not be scored. Line {first.number}: {first.reason.rstrip('.')}."

    def _check_finished_table(self, total: int) -> Progress:
        facts_and_rows = read_facts(self.target)
        if facts_and_rows is None:
            raise InvalidInputError(
                f"{self.target} exists and was not written by such a job, or was changed since. Choose another output, "
                "or replace it with --force."
            )
        facts, rows = facts_and_rows
        check_same_settings(facts["settings"], self.all_settings, self.target)
        if rows != total:
            raise InvalidInputError(
                f"{self.target} is complete with {rows:,} lines, the input now has {total:,}. Choose another output, "
                "or start from the beginning with --force."
            )
        if facts["input"] != digest_of_items(self.items()):
            raise InvalidInputError(
                f"{self.target} was made from another input. Choose another output, or start from the beginning with "
                "--force."
            )
        return Progress(total, rows)

    def _check_columns(self) -> None:
        """Find out before the work whether the fields of the input can become columns."""
        if format_of(self.target) == PARQUET:
            carried = (dict(item.record) for item in self.items() if isinstance(item, Item))
            schema_of(iter(lambda: list(islice(carried, ROWS_AT_ONCE)), []), self.source)

    def run(self, score: ScoreItems, on_progress: OnProgress | None = None) -> Progress:
        """Score all lines that have no score yet, and return how many are done.

        `score` scores a batch (see `score_items`), and `on_progress` is called with the progress after each one.
        `InvalidInputError` as in `check`, or for a line that only the tokenizer could find bad; lines already written
        stay.
        """
        before = self.check()
        if self.is_finished(before):
            return before
        with self.writing() as write:
            done = before.done
            for lines in self._scored_batches(score, done):
                write(lines)
                done += len(lines)
                if on_progress is not None:
                    on_progress(done)
        return Progress(before.total, done)

    @contextmanager
    def writing(self) -> Iterator[WriteLines]:
        """Open the output for appending; at the end it is converted to a table if the target is one."""
        with self.lines.appending(self.all_settings, overwrite=self.overwrite) as write:
            yield write
        if self._is_table:
            facts = {"settings": self.all_settings, "input": digest_of_items(self.items())}
            write_table(self.lines.path, self.target, facts)
            self.lines.remove()

    def stream(self, score: ScoreItems, write: Callable[[bytes], object]) -> Progress:
        """Score all lines and give each batch of output to `write` when it is ready; nothing is stored for a later run.

        `InvalidInputError` if an input line cannot be used, unless they are skipped.
        """
        total = self.check_input()
        for lines in self._scored_batches(score, 0):
            write(b"".join(lines))
        return Progress(total, total)

    def _scored_batches(self, score: ScoreItems, done: int) -> Iterator[list[bytes]]:
        """The lines of output that are still missing, batch by batch."""
        first = done - done % self.batch_size  # the batch that was interrupted is computed whole again
        items = islice(self.items(), first, None)
        while batch := list(islice(items, self.batch_size)):
            yield self.scored_batch(score, batch)[max(done - first, 0) :]
            first += len(batch)

    def scored_batch(self, score: ScoreItems, batch: Sequence[Item | BadLine]) -> list[bytes]:
        """Score one batch of input lines; the result is one line of JSON for each, a bad one with its error instead."""
        good = [item for item in batch if isinstance(item, Item)]
        try:
            outcomes: list[ScoredAnswer | BadLine] = [*(score(good) if good else [])]
        except (InvalidInputError, VocabularyError) as error:
            outcomes = self._one_by_one(score, good, error)
        records = {item.number: self._record(item, outcome) for item, outcome in zip(good, outcomes, strict=True)}
        return [dump_json(records[i.number] if isinstance(i, Item) else _error_record(i)) + b"\n" for i in batch]

    def _one_by_one(
        self, score: ScoreItems, items: Sequence[Item], error: SemtokenError
    ) -> list[ScoredAnswer | BadLine]:
        """Find the lines to blame for the failure of a batch."""
        # The model and its clusters do not fit each other, which no line is to blame for.
        if isinstance(error, VocabularyMismatch):
            raise error
        outcomes: list[ScoredAnswer | BadLine] = []
        for item in items:
            try:
                outcomes += score([item])
            except (InvalidInputError, VocabularyError) as fault:
                reason = str(fault).replace("Prompt 0 ", "the prompt ").replace("Response 0 ", "the response ")
                if not self.skip_bad_lines:
                    raise InvalidInputError(
                        f"Line {item.number} of {self._called}: {reason} Correct the file, or leave --strict out, "
                        "which records such lines with their errors. Lines already written are kept."
                    ) from fault
                outcomes.append(BadLine(item.number, reason))
        # Alone each line works, so the fault is not in one of them.
        if not any(isinstance(outcome, BadLine) for outcome in outcomes):
            raise error
        return outcomes

    def _record(self, item: Item, outcome: ScoredAnswer | BadLine) -> dict[str, Any]:
        if isinstance(outcome, BadLine):
            return _error_record(outcome)
        scores = outcome.to_dict()
        response = outcome.text if item.response is None else item.response
        record = dict(item.record) | {"response": response}
        record |= {name: scores[name] for name in RESULT_FIELDS}
        record |= {f"score_{name}": value for name, value in scores.get("scores", {}).items()}
        if isinstance(name := self.settings.get("model"), str):
            record.setdefault("model", name)  # a calibrator of these answers knows then whose they are
        if self.annotate is not None:
            record |= self.annotate(outcome, item.record)
        # A calibrator put another text in place of the answer; explanation, tokens and parts would quote it.
        if held_back := record["response"] != response:
            record["explanation"] = outcome.without_quotes().explanation
        elif self.tokens:
            record["tokens"] = scores["tokens"]
        if outcome.state is not None:
            record |= outcome.state.to_fields()
        if self.parts is not None and not held_back:
            try:
                record["parts"] = [_part_record(part) for part in outcome.parts(self.parts)]
            except BudgetExceededError as error:
                record |= {"parts": [], "parts_refused": str(error)}
        return record


def _part_record(part: Part) -> dict[str, Any]:
    """A part in columns of one type each, so that tables can hold it."""
    fields = part.to_dict()
    return {name: fields[name] for name in PART_FIELDS} | {"flags": [flag.code for flag in part.flags]}


def _error_record(line: BadLine) -> dict[str, Any]:
    return {"line": line.number, "error": line.reason}


Load: TypeAlias = Callable[[], tuple[ScoreItems, "Annotate | None"]]
"""Loads a model, and gives what scores with it and what it adds to a line; sent to other processes."""


def run_in_shards(
    job: ScoringJob, load: Load, executor: Executor, on_progress: OnProgress | None = None, lines: int = LINES_IN_SHARD
) -> Progress:
    """Score the rest of a job in shards of `lines` lines, rounded up to whole batches, by an executor.

    The job's files must lie under the same paths wherever shards are scored; each process that scores calls `load`
    once. `SemtokenError` as in `ScoringJob.run`; what a process raised comes as `BackendError`. Lines already written
    stay.
    """
    before = job.check()
    if job.is_finished(before):
        return before
    folder = job.target.with_name(job.target.name + ".shards")
    work = ScoringWork(folder, -(-lines // job.batch_size) * job.batch_size, load, job)
    written = before.done
    with job.writing() as write:

        def append(new_lines: list[bytes]) -> None:
            nonlocal written
            write(new_lines)
            written += len(new_lines)
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
