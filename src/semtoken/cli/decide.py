"""`semtoken decide`: typed questions about a file of states, calibrators for them, and whether these hold elsewhere."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.choices import Promise, Reading
from semtoken.cli.console import tell
from semtoken.cli.journal_options import JournalChoice, journal_options
from semtoken.cli.options import (
    ExecutorChoice,
    JsonOption,
    KeyOption,
    ModelChoice,
    executor_options,
    is_typed,
    model_options,
    output_file,
    output_folder,
)
from semtoken.cli.statuses import Status, verdict
from semtoken.cli.typer_commands import CommandGroup, ShortHelp
from semtoken.errors import InvalidInput
from semtoken.support.http_client import AT_ONCE, key_from
from semtoken.support.inputs import shown_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from semtoken.decisions.auditing import Audit, DecisionSettings
    from semtoken.decisions.calibrating import DecisionCalibrator, DecisionSide
    from semtoken.decisions.comparing import Sensitivity
    from semtoken.decisions.questions import Question
    from semtoken.decisions.remote import Asker

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Ask typed questions, calibrate the answers, audit another server."
)

AnswersArgument = Annotated[
    Path, typer.Argument(metavar="ANSWERS.jsonl", dir_okay=False, help="What `semtoken decide run` wrote.")
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="What is right in saved replies: lines with `id` and `labels`, or a .csv file."),
]
QuestionsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="QUESTIONS.yaml", dir_okay=False, help="The questions of saved replies that do not hold them."
    ),
]

EndpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Ask a server instead: the address of its API (.../v1), of /v1/decisions or /v1/systemone, or of "
        "/v1/chat/completions and the like, which is then asked for texts with log-probabilities. [semtoken.yaml of "
        "this folder]",
    ),
]
NameOption = Annotated[str | None, typer.Option(help="The model's name at the endpoint.")]
TopOption = Annotated[
    int, typer.Option(min=1, help="Log-probabilities a token that an endpoint for texts is asked for.")
]


@app.command(cls=ShortHelp)
@journal_options()
@executor_options()
@model_options()
def run(
    ctx: typer.Context,
    questions: Annotated[
        Path, typer.Argument(metavar="QUESTIONS.yaml", dir_okay=False, help="Questions by name, in either wire format.")
    ],
    source: Annotated[
        Path, typer.Argument(metavar="ITEMS.jsonl", dir_okay=False, help='Lines with "state" and perhaps "labels".')
    ],
    *,
    choice: ModelChoice,
    output: Annotated[Path, output_file("Answers, one line for each item.")],
    reading: Annotated[Reading, typer.Option(help="How probabilities are read.")] = "labels",
    orders: Annotated[int, typer.Option(min=0, help="Orders of the options that are averaged; 0: all.")] = 1,
    endpoint: EndpointOption = None,
    name: NameOption = None,
    key_env: KeyOption = "OPENAI_API_KEY",
    top_logprobs: TopOption = 20,
    calibrator: Annotated[
        Path | None, typer.Option(file_okay=False, help="Adds chance, decision and promise to each answer.")
    ] = None,
    spread: ExecutorChoice,
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
    from semtoken.decisions.auditing import DecisionSettings
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.running import DecisionJob, read_questions

    spread.check(keeping.journal)
    settings = DecisionSettings.beside(questions)
    server = None
    if endpoint is not None or not is_typed(ctx, "model"):  # a model that is named is asked itself
        server = _server(ctx, settings, endpoint, name, key_env)
    if calibrator is None and settings.calibrator is not None and settings.calibrator.exists():
        calibrator = settings.calibrator
    options = ReadingOptions(reading, orders or None)
    asked = read_questions(questions)
    fitted = None if calibrator is None else DecisionCalibrator.load(calibrator)
    job = DecisionJob(source, output, asked, options, fitted)
    job.check()
    if not job.lines_left():
        tell(f"{output} is complete.")
        return
    if server is not None:
        server.announce("the items")
    asking = _ModelOrServer(choice, server, top_logprobs)
    if (by_ray := spread.load()) is not None:
        written = job.run_in_shards(asking.load, by_ray)
        tell(f"{written:,} lines written to {output}.")
        return
    about = {"model": choice.model} if server is None else {"model": server.name or server.shown, "engine": "endpoint"}
    with keeping.keeper("decide", **about) as keeper:
        kept = replace(job, keep=None if keeper is None else keeper.keep_decision)
        written = kept.run(asking.load(), 1 if server is None else AT_ONCE)
        tell(f"{written:,} lines written to {output}.")


@dataclass(frozen=True)
class _NamedServer:
    """The server that this command, or the settings of this folder, named: plain data for other processes."""

    url: str
    name: str | None
    key_env: str | None
    """The variable with the key that is sent; None: no key is sent."""
    told: str = ""
    """A sentence on a key that stays here."""

    @property
    def shown(self) -> str:
        """The address without a password."""
        return shown_address(self.url)

    def announce(self, what: str) -> None:
        """Say what is sent where, before anything is sent."""
        key = " with the key" if self.key_env and key_from(self.key_env) else ""
        tell(f"Sending {what}{key} to {self.shown}. {self.told}".rstrip())

    def ask(self, top: int) -> Asker:
        """The function that asks this server questions."""
        from semtoken.decisions.remote import asker_of_endpoint

        key = None if self.key_env is None else key_from(self.key_env)
        return asker_of_endpoint(self.url, self.name, key=key, top=top, say=tell)


@dataclass(frozen=True)
class _ModelOrServer:
    """The model or the server that is asked: plain data, which can be sent to other processes."""

    choice: ModelChoice
    server: _NamedServer | None
    top: int

    def load(self) -> Asker:
        """The function that asks the server, or the model once it is loaded."""
        from semtoken.decisions.running import asker_of_model

        return asker_of_model(self.choice.load().backend) if self.server is None else self.server.ask(self.top)


def _server(
    ctx: typer.Context, settings: DecisionSettings, endpoint: str | None, name: str | None, key_env: str
) -> _NamedServer | None:
    """The server that is asked: as typed, else of the settings of this folder; None if neither names one.

    No variable and no file of another folder names a server: somebody else's folder must not take texts. The key goes
    to a server of the settings only if its variable is typed, since the folder may be a copy of somebody else's, too.
    """
    if endpoint == "":
        raise InvalidInput("--endpoint is empty. Give the address of a server, or leave it out.")
    name = name or settings.model
    if endpoint is not None:
        return _NamedServer(endpoint, name, key_env)
    if settings.upstream is None or settings.file is None:
        return None
    if not settings.is_of_this_folder:
        raise InvalidInput(
            f"{settings.file} names the server {shown_address(settings.upstream)}, but is not in this folder, so "
            "nothing is sent there. Give the address with --endpoint, or a model with --model."
        )
    if is_typed(ctx, "key_env"):
        return _NamedServer(settings.upstream, name, key_env)
    told = f"No key goes to a server that only {settings.file} names: type --endpoint, or --key-env {key_env}."
    return _NamedServer(settings.upstream, name, None, told if key_from(key_env) else "")


def _questions(path: Path | None, settings: DecisionSettings) -> dict[str, Question] | None:
    from semtoken.decisions.running import read_questions

    path = path or settings.questions
    return None if path is None else read_questions(path)


@app.command(cls=ShortHelp)
def fit(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="ANSWERS",
            help="What `semtoken decide run` wrote, or a file or folder of any server's saved replies.",
        ),
    ],
    output: Annotated[Path | None, output_folder("The calibrator's folder.")] = None,
    labels: LabelsOption = None,
    questions: QuestionsOption = None,
    promise: Annotated[
        Promise | None,
        typer.Option(
            help="selective: of the accepted at most alpha are wrong. missed: of the wrong ones at most alpha are "
            "accepted. joint: of all at most alpha are accepted and wrong. [selective]"
        ),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="The share that the promise allows. [0.1]")] = None,
    delta: Annotated[float | None, typer.Option(help="How likely the labels may mislead. [0.1]")] = None,
    start: Annotated[
        float | None,
        typer.Option(
            help="Share of answers that the first threshold tried accepts, for promise 'selective'; fix it before you "
            "see labels. [several starts from 5% on]"
        ),
    ] = None,
    require: Annotated[
        bool, typer.Option("--require", help="Exit with 1, and write nothing, if a promise is not possible.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a calibrator for every question from labelled answers: chances, and thresholds with a promise.

    A line says what is right under `labels`, as in `"labels": {"refund": false}`: write it into the file of states,
    into the answers, or into a file of its own (`--labels`), which has the ids of the replies. Replies that were saved
    from any server are read as they are; with `--questions` the calibrator knows the words of their questions.

    A predicate gets two, for what is called true and for what is called false: false alarms and misses cost
    differently. Each needs 30 labels, 5 of either kind; a promise needs more, and the message says how many. Each
    question gets a temperature for the probabilities of all its options, and a bias for each option that was right in
    at least 5 labels.

    Defaults come from a `semtoken.yaml` beside the answers. Exit status: 1 with `--require` where a promise is missing,
    2 for errors.

    For example:

    - `semtoken decide fit answers.jsonl -o calibrator --alpha 0.1`
    - `semtoken decide fit replies/ --labels labels.csv --questions questions.yaml -o calibrator --require`
    """
    from semtoken.decisions.answers import doubts_of
    from semtoken.decisions.auditing import DecisionSettings
    from semtoken.decisions.calibrating import DecisionCalibrator, doubts
    from semtoken.decisions.saved import decision_records
    from semtoken.support.files.outputs import check_not_inside

    settings = DecisionSettings.beside(source, questions)
    output = output or settings.calibrator
    if output is None:
        raise InvalidInput("Name the calibrator's folder with -o, or in semtoken.yaml.")
    check_not_inside(output, [source])
    if output.exists() and not (output / "decisions.json").exists():
        raise InvalidInput(f"{output} exists and is no calibrator of decisions. Name another folder.")
    asked = _questions(questions, settings) if labels or questions else None
    records = decision_records(source, labels=labels, questions=asked)
    promise, alpha = promise or settings.promise, settings.alpha if alpha is None else alpha
    delta = settings.delta if delta is None else delta
    for sentence in [*doubts_of(records), *doubts(records, promise, alpha, delta)]:
        tell(sentence)
    fitted = DecisionCalibrator.fit(
        records,
        promise=promise,
        alpha=alpha,
        delta=delta,
        start=settings.start if start is None else start,
    )
    missing = [
        side.what for side in fitted.sides.values() if not side.promises and _is_required(side, settings.require)
    ]
    unknown = set(settings.require) - {name for side in fitted.sides.values() for name in (side.name, side.what)}
    if require and unknown:
        raise InvalidInput(f"{settings.file} requires a promise for {min(unknown)!r:.60}, which no answer is about.")
    if not (require and missing):
        fitted.save(output)
    if as_json:
        for side in fitted.sides.values():
            counts = {"labels": side.n, "accepted": side.n_accepted, "wrong": side.n_wrong_accepted}
            told = {"promises": side.promises, "statement": side.statement}
            typer.echo(json.dumps({"question": side.name, "side": side.side, **counts, **told}))
    else:
        _tell_fitted(fitted)
    if require and missing:
        tell(f"Nothing was written, since there is no promise for {', '.join(missing)}.", style="red")
        raise typer.Exit(Status.DOES_NOT_HOLD)


def _is_required(side: DecisionSide, required: Sequence[str]) -> bool:
    return not required or side.name in required or side.what in required


def _tell_fitted(fitted: DecisionCalibrator) -> None:
    for side in fitted.sides.values():
        typer.echo(f"{side.what} ({side.n} labels): {side.statement}")
    names = {fingerprint: side.name for (fingerprint, _), side in fitted.sides.items()}
    for fingerprint, scale in fitted.scales.items():
        typer.echo(f"{names[fingerprint]}, probabilities of all options: {scale.statement}.")
    for fingerprint, sets in fitted.sets.items():
        typer.echo(f"{names[fingerprint]}, sets of options: {sets.statement}.")


@app.command(cls=ShortHelp)
def audit(
    ctx: typer.Context,
    calibrator: Annotated[
        Path | None, typer.Argument(metavar="DIR", file_okay=False, help="What `decide fit` wrote [semtoken.yaml].")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="LABELLED",
            help='What `decide run` wrote, or saved replies; lines with "state" and "labels" are put to the server '
            "[semtoken.yaml].",
        ),
    ] = None,
    endpoint: EndpointOption = None,
    name: NameOption = None,
    key_env: KeyOption = "OPENAI_API_KEY",
    top_logprobs: TopOption = 20,
    labels: LabelsOption = None,
    questions: QuestionsOption = None,
    output: Annotated[
        Path | None, output_file("Keep the endpoint's answers [beside LABELLED until all are there].")
    ] = None,
    wording: Annotated[
        Path | None,
        typer.Option(metavar="QUESTIONS.yaml", dir_okay=False, help="The same questions by name in other words."),
    ] = None,
    variants: Annotated[
        int, typer.Option(min=0, help="Items that are also asked in another order of the options and other words.")
    ] = 100,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Also count by the values of this field of the answers.")
    ] = None,
    level: Annotated[float, typer.Option(help="Chance of a false 'does not hold', in all.")] = 0.05,
    as_json: JsonOption = False,
) -> None:
    """Does a calibrator hold behind another server? A verdict for each question.

    Label items that the calibrator was not fitted on, and let the other server answer them: here with `--endpoint`, or
    before with `semtoken decide run`, or give the replies that you saved. It says how many run and how many go to a
    person, what other levels would mean, and the verdicts: `holds`, `does not hold`, or `cannot be told from N labels`.
    Arguments that you leave out, and limits, come from a `semtoken.yaml` beside the labelled items or in this folder.

    Exit status: 1 if a promise does not hold or a limit is exceeded, 2 for errors, 3 if nothing was measured (an
    unknown question, no labels, those of the fit, repeated items, no promise), else 0.

    For example:

    - `semtoken decide audit calibrator labelled.jsonl --endpoint http://localhost:8000/v1`
    - `semtoken decide audit calibrator there.jsonl`
    - `semtoken decide audit calibrator replies/ --labels labels.csv --questions questions.yaml`
    """
    from semtoken.decisions.auditing import DecisionSettings, exceeded
    from semtoken.decisions.auditing import audit as audited
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.comparing import sensitivity
    from semtoken.decisions.running import AskedAgain, are_items, ask_again, kept_until_asked, read_questions
    from semtoken.decisions.saved import decision_records

    settings = DecisionSettings.beside(source, calibrator)
    calibrator, source = calibrator or settings.calibrator, source or settings.labelled
    if calibrator is None or source is None:
        raise InvalidInput("Name a calibrator and labelled items, or write both into semtoken.yaml.")
    fitted = DecisionCalibrator.load(calibrator)
    server = None
    if endpoint is not None or are_items(source):
        server = _server(ctx, settings, endpoint, name, key_env)
    if server is not None:
        server.announce("the labelled items")
        ask = server.ask(top_logprobs)
        reworded = None if wording is None else read_questions(wording)
        with nullcontext(output) if output else kept_until_asked(source, calibrator, server.url, name) as target:
            answers = ask_again(fitted, source, ask, target, reworded=reworded, most=variants)
    else:
        if wording is not None or output is not None:
            raise InvalidInput("--wording and --output need --endpoint.")
        asked = _questions(questions, settings) if labels or questions else None
        answers = AskedAgain(decision_records(source, labels=labels, questions=asked), {})
    found = audited(
        fitted, answers.records, level=level, by=by, required=lambda side: _is_required(side, settings.require)
    )
    changes = [
        one for how, records in answers.variants.items() for one in sensitivity(fitted, answers.records, records, how)
    ]
    limits = settings.limits
    broken = {
        side.fitted.what: exceeded(side, limits)
        for question in found.questions
        for side in question.sides
        if _is_required(side.fitted, settings.require)
    }
    for line in _audit_values(found, broken, changes) if as_json else _audit_lines(found, broken, changes, by):
        typer.echo(json.dumps(line) if as_json else line)
    holds = not found.is_broken and not any(broken.values())
    raise typer.Exit(verdict(holds=holds, measured=not found.gaps or limits.undecided is True))


def _audit_lines(
    found: Audit, broken: Mapping[str, Sequence[str]], changes: Sequence[Sensitivity], by: str | None
) -> Iterator[str]:
    """What people read: the answer to each question first, then other levels, then the numbers behind the verdict."""
    for question in found.questions:
        yield question.answer
    for name in found.unknown:
        yield f"{name}: nothing was measured. The calibrator does not know this question as it was asked."
    for question in found.questions:
        yield from (f"{question.name}: {remark}" for remark in question.remarks)
        if question.choices:
            yield f"\n{question.name}, at other levels, by thresholds that these labels would get:"
            yield from question.choice_lines
        if question.slices:
            yield f"\n{question.name}, counting against the promise by {by}:"
            yield from question.slice_lines
        yield ""
        for side in question.sides:
            yield " ".join([side.statement, *broken.get(side.fitted.what, ())])
        if question.sets is not None:
            yield question.sets.statement
    yield from (change.statement for change in changes)


def _audit_values(
    found: Audit, broken: Mapping[str, Sequence[str]], changes: Sequence[Sensitivity]
) -> Iterator[Mapping[str, Any]]:
    """The same as JSON lines: each question, each of its sides, its sets, and what other ways of asking changed."""
    for question in found.questions:
        choices = [
            {"alpha": c.alpha, "run": c.run.count, "wrong": c.wrong.count, "judged": c.wrong.of}
            for c in question.choices
        ]
        slices = {value: {"wrong": seen.count, "judged": seen.of} for value, seen in question.slices.items()}
        about = {"question": question.name, "answer": question.answer, "verdict": question.verdict}
        yield {**about, "nothing": question.nothing, "choices": choices, "slices": slices}
        for side in question.sides:
            counts = {"accepted": side.fired.count, "asked": side.fired.of}
            counts |= {"wrong": side.wrong.count, "judged": side.wrong.of}
            values = {"question": question.name, "side": side.fitted.side, "verdict": side.verdict, **counts}
            yield {**values, "exceeded": list(broken.get(side.fitted.what, ()))}
        if question.sets is not None:
            held = question.sets.held
            values = {"question": question.name, "side": "set", "verdict": question.sets.verdict}
            yield {**values, "held": held.count, "judged": held.of}
    for name in found.unknown:
        yield {"question": name, "verdict": "nothing was measured", "nothing": "the calibrator does not know it"}
    for change in changes:
        counts = {"asked": change.changed.of, "changed": change.changed.count}
        more = {"decided_otherwise": change.decided_otherwise.count, "moved": change.moved.value}
        right = change.right
        if right is not None:
            more |= {"right_first": right.first.count, "right_second": right.second.count, "judged": right.first.of}
        yield {"question": change.name, "how": change.how, **counts, **more}


@app.command(cls=ShortHelp)
def compare(
    first: AnswersArgument,
    second: Annotated[Path, typer.Argument(metavar="THERE.jsonl", dir_okay=False, help="The other server's answers.")],
) -> None:
    """How far apart two servers' answers lie: agreement, rank correlation, shift, and by labels which is better.

    For example: `semtoken decide compare here.jsonl there.jsonl`
    """
    from semtoken.decisions.answers import read_decisions
    from semtoken.decisions.comparing import compare as compared

    for comparison in compared(read_decisions(first), read_decisions(second)):
        typer.echo(comparison.statement)
