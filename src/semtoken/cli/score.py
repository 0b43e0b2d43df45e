"""`semtoken score`: a file of prompts in, the same lines with scores out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.console import counting, tell
from semtoken.cli.journal_options import AnswerKeeper, JournalChoice, journal_options
from semtoken.cli.options import (
    BatchSizeOption,
    CalibratorOption,
    ExecutorChoice,
    MaxNewTokensOption,
    ModelChoice,
    OverwriteOption,
    PartsOption,
    SchemaOption,
    calibrator_settings,
    executor_options,
    load_calibrator_for,
    model_options,
)
from semtoken.errors import InvalidInput
from semtoken.models.prompts import how_to_ask

if TYPE_CHECKING:
    from semtoken import STC, ScoredResponse
    from semtoken.bench.score_file import Annotate, Item, Progress, ScoreItems, ScoringJob
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.support.executors import Executor


@journal_options()
@executor_options()
@model_options()
def score(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            allow_dash=True,
            help="Questions or prompts: a .jsonl, .csv or .parquet file, or '-' for JSON lines on standard input. With "
            "--schema also a folder of images.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            writable=True,
            help="A .jsonl, .csv or .parquet file, or '-' for standard output. Default: INPUT.scored.jsonl beside the "
            "input; standard output for standard input.",
        ),
    ] = None,
    *,
    choice: ModelChoice,
    max_new_tokens: MaxNewTokensOption = 256,
    batch_size: BatchSizeOption = 8,
    questions: Annotated[
        bool,
        typer.Option(
            "--questions",
            help="Prompts are bare questions: put them into the model's form, as `ask` does.",
        ),
    ] = False,
    stop_at_newline: Annotated[
        bool, typer.Option("--stop-at-newline", help="An answer ends at its first newline, as in the paper.")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", "-t", help="Also write the scores of every token.")] = False,
    parts: PartsOption = None,
    states: Annotated[
        bool,
        typer.Option(
            "--states",
            help="Also write the hidden state at the end of every answer, to train on (examples/learn_a_number.py).",
        ),
    ] = False,
    schema: SchemaOption = None,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help='Write {"line": ..., "error": ...} for them instead of stopping.')
    ] = False,
    overwrite: OverwriteOption = False,
    calibrator: CalibratorOption = None,
    spread: ExecutorChoice,
    keeping: JournalChoice,
) -> None:
    """Score a file of prompts, or of prompts with responses, line by line.

    Each record has `question`, `prompt` (continued as it stands) or `messages`. With `response` (text or token ids)
    that text is scored; without, an answer is generated greedily. Other fields are carried through; scores of an
    earlier command are replaced. `messages` may hold images, as in transformers' chat templates: `{"type": "image",
    "path": "scan.png"}`, relative to the file. Give the same command again to go on with a run that was interrupted,
    even killed.

    With --schema the answers are read as JSON, and a table gets a row for each document and field: value, confidence,
    what else was likely, and a decision. Of a folder of images each is a document, and the model is asked for JSON.

    For example:

    - `semtoken score prompts.jsonl -o scored.jsonl --model smollm2`
    - `semtoken score questions.jsonl --questions --tokens`
    - `semtoken score answers.csv -o scored.parquet --batch-size 16`
    - `semtoken score invoices.jsonl --schema invoice.schema.json -o fields.csv`
    - `semtoken score scans/ --schema invoice.schema.json -o fields.csv -m MODEL`
    - `semtoken score million.jsonl --executor ray --ray-workers 8 --ray-gpus 1`
    - `semtoken ask --json "Who painted Guernica?" | semtoken score - -m smollm2`
    """
    from semtoken.bench.score_file import ScoringJob
    from semtoken.support.files.record_files import STANDARD

    generation = {"max_new_tokens": max_new_tokens, "stop_at_newline": stop_at_newline}
    target = output or (source if str(source) == STANDARD else source.with_suffix(".scored.jsonl"))
    if str(source) != STANDARD and not source.exists():
        raise typer.BadParameter(f"file '{source}' does not exist.", param_hint="INPUT")
    if source.is_dir() and (schema is None or output is None or spread.by_ray):
        raise typer.BadParameter(
            "A folder of images is read with --schema, into a table that --output names, by this process.",
            param_hint="INPUT",
        )
    spread.check(keeping.journal, files=STANDARD not in (str(source), str(target)))
    with _lines_of(source, schema) as readable, keeping.keeper("score", model=choice.model) as keeper:
        lines = target if schema is None else _lines_beside(target, source, parts, overwrite=overwrite)
        job = ScoringJob(
            source=readable,
            target=lines,
            settings=choice.settings
            | generation
            | {"questions": questions}
            | ({"states": True} if states else {})
            | calibrator_settings(calibrator)
            | _schema_settings(schema),
            batch_size=batch_size,
            tokens=tokens,
            parts=None if schema is not None else parts,
            skip_bad_lines=skip_bad_lines,
            overwrite=overwrite,
            images=source if source.is_dir() else Path() if str(source) == STANDARD else None,
            name="standard input" if str(source) == STANDARD else str(source),
        )
        scoring = _Scoring(choice, generation, questions, calibrator, states, schema, str(source), keeper)
        if (by_ray := spread.load()) is not None:
            _run_in_shards(job, scoring, by_ray)
        elif str(target) == STANDARD:
            job.check_input()
            score_batch, annotate = scoring.of(choice.load(states=states))
            replace(job, annotate=annotate).stream(score_batch, lambda lines: typer.echo(lines, nl=False))
        else:
            _run(job, scoring)
        if schema is not None:
            _conclude_fields(lines, target)


@contextmanager
def _lines_of(source: Path, schema: Path | None) -> Iterator[Path]:
    """The file of a source; of a folder of images a temporary one, which asks for the fields of each."""
    from semtoken.replies.checking.fields import read_schema, scan_records
    from semtoken.support.files.images import scans_in
    from semtoken.support.files.record_files import as_file, write_records

    if not source.is_dir() or schema is None:
        with as_file(source) as file:
            yield file
        return
    scans = scans_in(source)
    if scans.left_out:
        some = ", ".join(scans.left_out[:3]) + (", ..." if len(scans.left_out) > 3 else "")
        tell(f"{len(scans.left_out):,} of the files in {source} are no images and are left out: {some}.")
    asked = scan_records(scans, read_schema(schema))
    with TemporaryDirectory() as folder:
        write_records(Path(folder) / "scans.jsonl", asked)
        yield Path(folder) / "scans.jsonl"


def _schema_settings(schema: Path | None) -> dict[str, Any]:
    """The schema decides what is written of an answer: a run with another one is not continued."""
    if schema is None:
        return {}
    from semtoken.replies.checking.fields import read_schema

    return {"schema": read_schema(schema)}


def _lines_beside(target: Path, source: Path, parts: str | None, *, overwrite: bool) -> Path:
    """Where the scored lines of a table of fields go; the target itself where that is no table."""
    from semtoken.support.files.record_files import LINES, STANDARD, format_of

    if parts not in (None, "field"):
        raise typer.BadParameter(f"--schema is about fields; leave out --parts {parts}.", param_hint="--parts")
    if str(target) == STANDARD or format_of(target) == LINES:
        return target
    lines = target.with_suffix(".jsonl")
    if lines.absolute() == source.absolute():
        lines = target.with_suffix(".scored.jsonl")
    if target.exists() and not lines.exists() and not overwrite:
        raise InvalidInput(f"{target} exists. Choose another output, or replace it with --force.")
    return lines


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
    page = f"semtoken view {quote(str(lines))} -o page.html"
    tell(f"{len(rows):,} fields in {target}, {doubtful:,} to be checked. A page: {page}")


@dataclass(frozen=True)
class _Scoring:
    """How lines are scored: plain data, which can be sent to other processes."""

    choice: ModelChoice
    generation: dict[str, Any]
    questions: bool
    calibrator: Path | None
    states: bool = False
    schema: Path | None = None
    source: str = ""
    keeper: AnswerKeeper | None = None

    def load(self) -> tuple[ScoreItems, Annotate | None]:
        """What scores a batch, and what it adds to a line."""
        return self.of(self.choice.load(states=self.states, calibrator=self.calibrator))

    def of(self, stc: STC) -> tuple[ScoreItems, Annotate | None]:
        """The same by a loaded model: a calibrator adds the chance and the decision, a schema the fields."""
        applied = load_calibrator_for(stc, self.calibrator, self.choice.model)
        score_batch = batch_scorer(stc, self.choice.model, self.generation, questions=self.questions)
        if self.keeper is not None:
            score_batch = self._kept(score_batch, self.keeper, applied)
        if self.schema is None:
            return score_batch, None if applied is None else applied.block
        from semtoken.replies.checking.fields import field_records, read_schema

        schema = read_schema(self.schema)
        return score_batch, lambda answer: {"parts": field_records(answer, schema, applied)}

    def _kept(self, score_batch: ScoreItems, keeper: AnswerKeeper, applied: CalibratorInUse | None) -> ScoreItems:
        """Scores a batch and puts its answers into the journal."""
        keeper.uses(applied)

        def score_and_keep(items: Sequence[Item]) -> list[ScoredResponse]:
            results = score_batch(items)
            for item, result in zip(items, results, strict=True):
                block = None if applied is None else applied.block(result)
                question = item.prompt if isinstance(item.prompt, str) else None
                keeper.keep(result, block, applied, place=f"{self.source}:{item.number}", question=question)
            return results

        return score_and_keep


def _remaining_work(job: ScoringJob) -> Progress | None:
    """How much of a job is done, if anything is left of it."""
    so_far = job.check()
    if job.is_finished(so_far):
        tell(f"{job.target} is complete ({so_far.total:,} lines); nothing to do.")
        return None
    if so_far.done:
        tell(f"Going on after line {so_far.done:,} of {so_far.total:,} in {job.target}.")
    return so_far


def _run(job: ScoringJob, scoring: _Scoring) -> None:
    """Do what is left of a job, with a bar."""
    if (so_far := _remaining_work(job)) is None:
        return
    stc = scoring.choice.load(states=scoring.states, calibrator=scoring.calibrator)
    score_batch, annotate = scoring.of(stc)
    job = replace(job, annotate=annotate, settings=dict(job.settings) | _facts(stc))
    with counting("scoring", so_far.total, so_far.done) as progress:
        reached = job.run(score_batch, progress)
    tell(f"{reached.total:,} lines in {job.target}.")


def _run_in_shards(job: ScoringJob, scoring: _Scoring, executor: Executor) -> None:
    """Run the job in several processes or on several machines."""
    from semtoken.bench.score_file import run_in_shards

    if (so_far := _remaining_work(job)) is None:
        return
    with counting("scoring", so_far.total, so_far.done) as progress:
        reached = run_in_shards(job, scoring.load, executor, progress)
    tell(f"{reached.total:,} lines in {job.target}.")


def _facts(stc: STC) -> dict[str, Any]:
    """What decides the numbers and is known only once the model is loaded."""
    engine, clusters = stc.backend, stc.scorer.clusters
    signature = None if clusters is None else clusters.signature
    if engine.name != "transformers":
        return {"clusters_signature": signature, "distribution": engine.distribution}
    return {
        "clusters_signature": signature,
        "commit": getattr(engine.model.config, "_commit_hash", None),
        "device_used": str(engine.model.device),
        "dtype_used": str(engine.model.dtype),
    }


def batch_scorer(stc: STC, model: str, generation: Mapping[str, Any], *, questions: bool = False) -> ScoreItems:
    """Make the function that scores a batch; bare questions, or all `questions`, are put into the model's form."""
    from semtoken.bench.score_file import score_items

    asking = how_to_ask(model, stc.tokenizer, raw=False)
    stop = generation["stop_at_newline"]

    def score_batch(items: Sequence[Item]) -> list[ScoredResponse]:
        results: dict[int, ScoredResponse] = {}
        for bare in (False, True):
            chosen = [item for item in items if isinstance(item.prompt, str) and (questions or item.is_question)]
            if not bare:
                chosen = [item for item in items if item not in chosen]
            if not chosen:
                continue
            options = {**generation, "stop_at_newline": stop or (bare and asking.stop_at_newline)}
            prepared = [replace(i, prompt=asking.prompt(str(i.prompt))) if bare else i for i in chosen]
            scored = score_items(stc, prepared, **options)
            results |= {item.number: result for item, result in zip(chosen, scored, strict=True)}
        return [results[item.number] for item in items]

    return score_batch
