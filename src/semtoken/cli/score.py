"""`semtoken score`: a file of prompts in, the same lines with scores out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.cli.console import counting, tell
from semtoken.cli.loading import check_executor, load_calibrator, load_executor
from semtoken.cli.model import ModelChoice, ModelOptions, name_built_in
from semtoken.cli.outputs import beside
from semtoken.cli.parameters import (
    Calibrator,
    MaxTokens,
    Methods,
    NoChatTemplate,
    Output,
    Overwrite,
    Parts,
    Schema,
    Strict,
)
from semtoken.cli.settings import Read, SettingsInUse
from semtoken.cli.statuses import UsageError
from semtoken.errors import InvalidInputError
from semtoken.support.text import with_noun

if TYPE_CHECKING:
    from semtoken import ScoredModel
    from semtoken.bench.score_file import Annotate, Progress, ScoreItems, ScoringJob
    from semtoken.support.executors import Executor


def score(
    file: Path,
    /,
    *,
    output: Output = None,
    choice: ModelOptions = ModelOptions(),  # noqa: B008
    tokens: Annotated[bool, Parameter(name=("--tokens", "-t"))] = False,
    parts: Parts = None,
    schema: Schema = None,
    calibrator: Calibrator = None,
    methods: Methods = None,
    max_tokens: MaxTokens = 256,
    no_chat_template: NoChatTemplate = False,
    strict: Strict = False,
    overwrite: Overwrite = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Score a file of prompts, or of prompts with responses.

    Lines without a response are answered first; other fields are carried through. Without --output the lines go to
    FILE.scored.jsonl. An interrupted run continues when you repeat the command.

    Example: `semtoken score questions.jsonl --model smollm2 -o answers.jsonl`

    Parameters
    ----------
    file
        Prompts as .jsonl, .csv or .parquet, a folder of images, or - for standard input.
    tokens
        Also write the score of each token.
    """
    from semtoken.bench.score_file import ScoringJob
    from semtoken.bench.score_file.output import lines_beside
    from semtoken.replies.checking.fields import read_schema
    from semtoken.support.files.record_files import STANDARD

    model = choice.with_settings(in_use.settings)
    if methods is not None:
        model = replace(model, scoring=replace(model.scoring, methods=(methods,)))
    if str(file) != STANDARD and not file.exists():
        raise InvalidInputError(f"There is no file {file}.")
    if file.is_dir() and (schema is None or output is None):
        raise UsageError("A folder of images is read with --schema, into a table that --output names.")
    target = output or beside(file, ".scored.jsonl")
    named = in_use.settings.executor
    check_executor(named, None, files=STANDARD not in (str(file), str(target)) and not file.is_dir())
    fields = None if schema is None else read_schema(schema)
    if fields is not None and parts not in (None, "field"):
        raise UsageError(f"--schema is about fields; leave out --parts {parts}.")
    generation = {"max_new_tokens": max_tokens, "stop_at_newline": False}
    scoring = _Scoring(model, generation, no_chat_template, calibrator, fields)
    with _lines_of(file, fields) as readable:
        lines = target if fields is None else lines_beside(target, file, overwrite=overwrite)
        job = ScoringJob(
            source=readable,
            target=lines,
            settings=scoring.settings,
            batch_size=in_use.settings.model.batch_size,
            tokens=tokens,
            parts=None if fields is not None else parts,
            skip_bad_lines=not strict,
            overwrite=overwrite,
            images=file if file.is_dir() else Path() if str(file) == STANDARD or file.is_fifo() else None,
            name="standard input" if str(file) == STANDARD else str(file),
        )
        executor = load_executor(named)
        if executor is None and str(target) == STANDARD:
            job.check_input()
            name_built_in(model)
            score_batch, annotate = scoring.load()
            replace(job, annotate=annotate).stream(score_batch, _print_lines)
        else:
            _run(job, scoring, executor)
        if fields is not None:
            _conclude_fields(lines, target)


def _print_lines(lines: bytes) -> None:
    sys.stdout.write(lines.decode("utf-8"))
    sys.stdout.flush()


def _lines_of(source: Path, schema: dict[str, Any] | None) -> AbstractContextManager[Path]:
    """The file of a source; of a folder of images a temporary one, which asks for the fields of each."""
    from semtoken.replies.checking.fields import lines_of_scans
    from semtoken.support.files.images import scans_in
    from semtoken.support.files.record_files import as_file

    if not source.is_dir() or schema is None:
        return as_file(source)
    scans = scans_in(source)
    if scans.left_out:
        some = ", ".join(scans.left_out[:3]) + (", ..." if len(scans.left_out) > 3 else "")
        tell(f"{len(scans.left_out):,} of the files in {source} are no images and are left out: {some}.")
    return lines_of_scans(scans, schema)


def _conclude_fields(lines: Path, target: Path) -> None:
    """Write the table of fields from the scored lines, if one is wanted, and say where the page comes from."""
    from semtoken.replies.checking.fields import CHECK, fields_of_lines
    from semtoken.support.files.record_files import STANDARD, write_records

    if str(target) == STANDARD:
        return
    rows = fields_of_lines(lines)
    if lines != target:
        write_records(target, rows)
    doubtful = sum(row["decision"] == CHECK for row in rows)
    page = f"semtoken check {quote(str(lines))} -o page.html"
    tell(f"{with_noun(len(rows), 'field')} in {target}, {doubtful:,} to be checked. A page: {page}")


@dataclass(frozen=True)
class _Scoring:
    """The way to score lines: plain data, which can be sent to other processes."""

    choice: ModelChoice
    generation: dict[str, Any]
    raw: bool
    calibrator: Path | None
    schema: dict[str, Any] | None
    """The fields that each answer has."""

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides what is written of an answer: a run with other settings is not continued."""
        settings = self.choice.settings | self.generation | {"no_chat_template": self.raw, "calibrator": None}
        # also what is not asked for: lines without it are no beginning of lines that have it
        settings |= {"states": self.choice.scoring.states, "schema": self.schema}
        if self.calibrator is not None:
            from semtoken.guarantees.apply import CalibratorInUse

            settings["calibrator"] = CalibratorInUse.load(self.calibrator).checksum
        return settings

    def load(self) -> tuple[ScoreItems, Annotate | None]:
        """The function that scores a batch, and the one that adds fields to a line."""
        return self.of(self.model())

    def model(self) -> ScoredModel:
        """The model, loaded."""
        return self.choice.load(states=self.choice.scoring.states, calibrator=self.calibrator)

    def of(self, stc: ScoredModel) -> tuple[ScoreItems, Annotate | None]:
        """The same of its model, loaded: a calibrator adds the probability and the decision, a schema the fields."""
        from semtoken.bench.score_file.batches import annotator, batch_scorer

        applied = load_calibrator(self.calibrator, stc.scorer.clusters, stc.fingerprint(self.choice.name))
        score_batch = batch_scorer(stc, self.choice.name, raw=self.raw, **self.generation)
        return score_batch, annotator(self.choice.name, applied, self.schema)


def _run(job: ScoringJob, scoring: _Scoring, executor: Executor | None) -> None:
    """Do what is left of a job, here or by an executor, and say what came of it."""
    from semtoken.bench.score_file import run_in_shards

    so_far = job.check()
    if job.is_finished(so_far):
        tell(f"{job.target} is complete ({with_noun(so_far.total, 'line')}); nothing to do.")
    else:
        if so_far.done:
            tell(f"Going on after line {so_far.done:,} of {so_far.total:,} in {job.target}.")
        name_built_in(scoring.choice)
        go_on = _here(job, scoring) if executor is None else partial(run_in_shards, job, scoring.load, executor)
        with counting("scoring", so_far.total, so_far.done) as progress:
            reached = go_on(progress)
        tell(f"{with_noun(reached.total, 'line')} in {job.target}.")
    if warning := job.warning:
        tell(f"Warning: {warning}", style="yellow")


def _here(job: ScoringJob, scoring: _Scoring) -> Callable[[Callable[[int], None]], Progress]:
    """The job's run in this process, with its model loaded, whose facts belong to the settings."""
    from semtoken.bench.score_file.batches import facts_of

    stc = scoring.model()
    score_batch, annotate = scoring.of(stc)
    return partial(replace(job, annotate=annotate, settings=dict(job.settings) | facts_of(stc)).run, score_batch)
