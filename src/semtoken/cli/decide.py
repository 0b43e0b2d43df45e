"""`semtoken decide`: typed questions about a file of states, calibrators for them, and whether these hold elsewhere."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.choices import Promise, Reading
from semtoken.cli.commands import ShortHelp
from semtoken.cli.console import tell
from semtoken.cli.journal_options import JournalChoice, journal_options
from semtoken.cli.model_options import ModelChoice, model_options
from semtoken.cli.options import (
    ExecutorOption,
    RayAddressOption,
    RayGpusOption,
    RayWorkersOption,
    ray_executor,
)
from semtoken.errors import InvalidInput

if TYPE_CHECKING:
    from semtoken.decisions.remote import Asker

app = typer.Typer(no_args_is_help=True, help="Ask typed questions, calibrate the answers, audit another server.")

AnswersArgument = Annotated[
    Path, typer.Argument(metavar="ANSWERS.jsonl", dir_okay=False, help="What `semtoken decide run` wrote.")
]

EndpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Ask a server instead: the address of its /v1/decisions or /v1/systemone, or of /v1/chat/completions and "
        "the like, which is then asked for texts with log-probabilities.",
    ),
]
NameOption = Annotated[str | None, typer.Option(help="The model's name at the endpoint.")]
TopOption = Annotated[
    int, typer.Option(min=1, help="Log-probabilities a token that an endpoint for texts is asked for.")
]
KeyOption = Annotated[str, typer.Option(help="Environment variable that holds the endpoint's key.")]


@app.command(cls=ShortHelp)
@journal_options()
@model_options()
def run(
    questions: Annotated[
        Path, typer.Argument(metavar="QUESTIONS.yaml", dir_okay=False, help="Questions by name, in either wire format.")
    ],
    source: Annotated[
        Path, typer.Argument(metavar="ITEMS.jsonl", dir_okay=False, help='Lines with "state" and perhaps "labels".')
    ],
    *,
    choice: ModelChoice,
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, writable=True, help="Answers, one line for each item.")
    ],
    reading: Annotated[Reading, typer.Option(help="How probabilities are read.")] = "labels",
    orders: Annotated[int, typer.Option(min=0, help="Orders of the options that are averaged; 0: all.")] = 1,
    endpoint: EndpointOption = None,
    name: NameOption = None,
    key_env: KeyOption = "OPENAI_API_KEY",
    top_logprobs: TopOption = 20,
    calibrator: Annotated[
        Path | None, typer.Option(file_okay=False, help="Adds chance, decision and promise to each answer.")
    ] = None,
    executor: ExecutorOption = "local",
    ray_workers: RayWorkersOption = 1,
    ray_gpus: RayGpusOption = 0,
    ray_address: RayAddressOption = None,
    keeping: JournalChoice,
) -> None:
    """Answer typed questions about every line of a file. A run that was stopped goes on where it ended.

    A line such as `{"state": "My parcel is late.", "labels": {"refund": false}}` is written with its answers. Labels
    are the right values; `semtoken decide fit` reads them.

    For example:

    - `semtoken decide run questions.yaml items.jsonl -o answers.jsonl --model Qwen/Qwen2.5-1.5B-Instruct`
    - `semtoken decide run questions.yaml items.jsonl -o answers.jsonl --executor ray --ray-workers 4`
    - `semtoken decide run questions.yaml items.jsonl -o there.jsonl --endpoint http://localhost:8000/v1/systemone`
    - `semtoken decide run questions.yaml items.jsonl -o chat.jsonl --endpoint http://localhost:8000/v1/chat/completions`
    """
    from semtoken.decisions import ReadingOptions
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.running import DecisionJob, read_questions

    if executor == "ray" and keeping.journal is not None:
        raise typer.BadParameter("Ray's processes keep no journal: leave out --journal.", param_hint="--executor")
    options = ReadingOptions(reading, orders or None)
    asked = read_questions(questions)
    fitted = None if calibrator is None else DecisionCalibrator.load(calibrator)
    job = DecisionJob(source, output, asked, options, fitted)
    job.check()
    if not job.lines_left():
        tell(f"{output} is complete.")
        return
    asking = _ModelOrServer(choice, endpoint, name, key_env, top_logprobs)
    if executor == "ray":
        written = job.run_in_shards(asking.load, ray_executor(ray_workers, ray_gpus, ray_address))
        tell(f"{written:,} lines written to {output}.")
        return
    about = {"model": name or endpoint, "engine": "endpoint"} if endpoint else {"model": choice.model}
    with keeping.keeper("decide", **about) as keeper:
        kept = replace(job, keep=None if keeper is None else keeper.keep_decision)
        tell(f"{kept.run(asking.load()):,} lines written to {output}.")


@dataclass(frozen=True)
class _ModelOrServer:
    """Who is asked: plain data, which can be sent to other processes."""

    choice: ModelChoice
    endpoint: str | None
    name: str | None
    key_env: str
    top: int

    def load(self) -> Asker:
        """What answers questions: the server, or the model once it is loaded."""
        from semtoken.decisions.remote import asker_of_endpoint
        from semtoken.decisions.running import asker_of_model

        if self.endpoint:
            return asker_of_endpoint(self.endpoint, self.name, key=os.environ.get(self.key_env), top=self.top)
        return asker_of_model(self.choice.load().backend)


@app.command(cls=ShortHelp)
def fit(
    source: AnswersArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", file_okay=False, writable=True, help="The calibrator's folder.")
    ],
    promise: Annotated[
        Promise,
        typer.Option(
            help="selective: of the accepted at most alpha are wrong. missed: of the wrong ones at most alpha are "
            "accepted. joint: of all at most alpha are accepted and wrong."
        ),
    ] = "selective",
    alpha: Annotated[float, typer.Option(help="The share that the promise allows.")] = 0.1,
    delta: Annotated[float, typer.Option(help="Chance that the labels mislead (promise 'selective').")] = 0.1,
) -> None:
    """Make a calibrator for every question from labelled answers: chances, and thresholds with a promise.

    A line says what is right under `labels`, as in `"labels": {"refund": false}`: write it into the file of states, or
    into the answers.

    A predicate gets two, for what is called true and for what is called false: false alarms and misses cost
    differently. Each needs 30 labels, 5 of either kind; a promise needs more, and the message says how many. Each
    question gets a temperature for the probabilities of all its options, and a bias for each option that was right in
    at least 5 labels.

    For example: `semtoken decide fit answers.jsonl -o calibrator --alpha 0.1`
    """
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.decision_records import read_decisions
    from semtoken.files.outputs import check_not_inside

    check_not_inside(output, [source])
    if output.exists() and not (output / "decisions.json").exists():
        raise InvalidInput(f"{output} exists and is no calibrator of decisions. Name another folder.")
    fitted = DecisionCalibrator.fit(read_decisions(source), promise=promise, alpha=alpha, delta=delta)
    fitted.save(output)
    for one in fitted.sides.values():
        typer.echo(f"{one.what} ({one.n} labels): {one.statement}")
    names = {fingerprint: one.name for (fingerprint, _), one in fitted.sides.items()}
    for fingerprint, scale in fitted.scales.items():
        typer.echo(f"{names[fingerprint]}, probabilities of all options: {scale.statement}.")


@app.command(cls=ShortHelp)
def audit(
    calibrator: Annotated[Path, typer.Argument(metavar="DIR", file_okay=False, help="What `decide fit` wrote.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="LABELLED.jsonl",
            dir_okay=False,
            help='What `decide run` wrote; with --endpoint, lines with "state" and "labels".',
        ),
    ],
    endpoint: EndpointOption = None,
    name: NameOption = None,
    key_env: KeyOption = "OPENAI_API_KEY",
    top_logprobs: TopOption = 20,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            dir_okay=False,
            writable=True,
            help="Keep the endpoint's answers; a run that was stopped goes on.",
        ),
    ] = None,
    wording: Annotated[
        Path | None,
        typer.Option(metavar="QUESTIONS.yaml", dir_okay=False, help="The same questions by name in other words."),
    ] = None,
    variants: Annotated[
        int, typer.Option(min=0, help="Items that are also asked in another order of the options and other words.")
    ] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Does a calibrator hold behind another server? One verdict for each question, with the numbers behind it.

    Label items that the calibrator was not fitted on, and let the other server answer them: here with `--endpoint`, or
    before with `semtoken decide run`. The verdict is `holds`, `does not hold`, or `cannot be told from N labels`.

    For example:

    - `semtoken decide audit calibrator labelled.jsonl --endpoint http://localhost:8000/v1/systemone`
    - `semtoken decide audit calibrator there.jsonl`
    """
    from semtoken.decisions.auditing import audit as audited
    from semtoken.decisions.auditing import sensitivity
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.decision_records import read_decisions
    from semtoken.decisions.remote import asker_of_endpoint
    from semtoken.decisions.running import AskedAgain, ask_again, read_questions

    fitted = DecisionCalibrator.load(calibrator)
    if endpoint is None:
        if wording is not None or output is not None:
            raise InvalidInput("--wording and --output need --endpoint.")
        answers = AskedAgain(read_decisions(source), {})
    else:
        ask = asker_of_endpoint(endpoint, name, key=os.environ.get(key_env), top=top_logprobs)
        reworded = None if wording is None else read_questions(wording)
        with TemporaryDirectory() as temporary:
            target = output or Path(temporary) / "answers.jsonl"
            answers = ask_again(fitted, source, ask, target, reworded=reworded, most=variants)
    for one in audited(fitted, answers.records):
        counts = {"accepted": one.fired.count, "asked": one.fired.of, "wrong": one.wrong.count, "judged": one.wrong.of}
        values = {"question": one.fitted.name, "side": one.fitted.side, "verdict": one.verdict, **counts}
        typer.echo(json.dumps(values) if as_json else one.statement)
    for how, records in answers.variants.items():
        for found in sensitivity(fitted, answers.records, records, how):
            counts = {"asked": found.changed.of, "changed": found.changed.count}
            more = {"decided_otherwise": found.decided_otherwise.count, "moved": found.moved.value}
            values = {"question": found.name, "how": how, **counts, **more}
            typer.echo(json.dumps(values) if as_json else found.statement)


@app.command(cls=ShortHelp)
def compare(
    first: AnswersArgument,
    second: Annotated[Path, typer.Argument(metavar="THERE.jsonl", dir_okay=False, help="The other server's answers.")],
) -> None:
    """How far apart two servers' answers lie, without labels: agreement, rank correlation, shift.

    For example: `semtoken decide compare here.jsonl there.jsonl`
    """
    from semtoken.decisions.auditing import compare as compared
    from semtoken.decisions.decision_records import read_decisions

    for one in compared(read_decisions(first), read_decisions(second)):
        typer.echo(one.statement)
