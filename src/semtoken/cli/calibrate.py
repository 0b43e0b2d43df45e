"""`semtoken calibrate`: from labelled answers to a promise."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote as quoted_name

import typer

from semtoken.choices import CurveName, Promise
from semtoken.cli.console import counting, out, plain_table, tell
from semtoken.cli.options import (
    BatchSizeOption,
    MaxNewTokensOption,
    ModelChoice,
    as_methods,
    model_options,
    output_folder,
)
from semtoken.errors import InvalidInput
from semtoken.models.prompts import how_to_ask

if TYPE_CHECKING:
    from semtoken.guarantees import Calibrator, Report
    from semtoken.guarantees.fingerprint import Fingerprint
    from semtoken.guarantees.labels import AnswerRecord

ALMANAC_DEV = "almanac-dev"


@model_options()
def calibrate(
    output: Annotated[Path, output_folder("Directory of the calibrator.")],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[LABELLED.jsonl]",
            dir_okay=False,
            help="Scored answers with `correct`, or with `answers` (accepted ones) to judge by, or questions "
            "with `answers` to be answered first. JSON lines or CSV. Or 'almanac-dev': the built-in model's questions.",
        ),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            "--journal", metavar="URL", help="Instead of a file: a journal, of which the labelled random sample counts."
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Share of wrong answers that the promise allows.")] = 0.1,
    delta: Annotated[float, typer.Option(help="How likely the labels may mislead.")] = 0.1,
    promise: Annotated[
        Promise,
        typer.Option(
            help="At most alpha: 'selective': of the accepted answers are wrong; 'missed': of the wrong answers are "
            "accepted; 'joint': of all questions get a wrong answer."
        ),
    ] = "selective",
    method: Annotated[CurveName, typer.Option(help="How a score becomes a chance.")] = "blend",
    by: Annotated[
        str | None,
        typer.Option(
            help="The method whose scores are calibrated, such as mean_new_word (see --methods of `semtoken score`), "
            "or NAME for a field score_NAME of your own, where higher is riskier. Default: the headline of each "
            "answer; 'stc' is the product over the tokens."
        ),
    ] = None,
    start: Annotated[
        float | None,
        typer.Option(
            help="Share of answers that the first threshold tried accepts, for promise 'selective'; fix it before you "
            "see labels. Default: several starts from 5% on."
        ),
    ] = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Further scored answers without labels, 200 or more, to place the thresholds."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="A field of the answers, such as a language: a calibrator with a promise of its own for each value, "
            "in a folder of that name. delta is divided by their number, so that all promises hold together.",
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="The field that says whether an answer is right.")] = "correct",
    judge: Annotated[
        str,
        typer.Option(help="Judge of answers that have no label but accepted answers: 'exact', 'contains', 'rouge'."),
    ] = "exact",
    task: Annotated[str | None, typer.Option(help="A name for the kind of question, for the report.")] = None,
    overwrite: Annotated[bool, typer.Option("--force", help="Replace a calibrator that exists.")] = False,
    *,
    choice: ModelChoice,
    max_new_tokens: MaxNewTokensOption = 64,
    batch_size: BatchSizeOption = 8,
) -> None:
    """Make a calibrator from labelled answers: the chance of being right, a threshold with a promise, a report.

    Answers that have a label are taken as they are; those with accepted answers are judged; questions without an answer
    are answered first, with --model. Answers that have a score but neither label nor accepted answers serve as scores
    without labels. Only one answer to a question counts. Make labels with `semtoken label`.

    For example:

    - `semtoken calibrate labelled.jsonl -o my-calibrator --alpha 0.1`
    - `semtoken calibrate questions.jsonl -o my-calibrator --model Qwen/Qwen2.5-3B --judge contains`
    - `semtoken calibrate labelled.jsonl -o my-calibrators --groups language`
    - `semtoken calibrate --journal journal.db -o my-calibrator --force`
    - `semtoken ask --calibrator my-calibrator "What is the capital of Japan?"`
    """
    from semtoken.guarantees import Fingerprint
    from semtoken.guarantees.labels import read_answers, require_labels
    from semtoken.guarantees.promises import shortage
    from semtoken.support.files.safe_files import locked

    _check_target(output, overwrite=overwrite)
    if (source is None) == (journal is None):
        raise InvalidInput("Name the file of labelled answers, or a journal with --journal; one of them.")
    answers = read_answers(_embedded(source), label) if source is not None else _sampled(str(journal))
    if source is not None:
        require_labels(answers, label)
    further = [] if unlabelled is None else read_answers(unlabelled, label)
    if promise == "selective":
        missing = shortage(sum(answer.can_be_labelled for answer in answers), alpha, delta)
        if missing:
            tell(missing)
    known = Fingerprint(task=task)
    if any(answer.log_score is None for answer in answers):
        if groups is not None:
            raise InvalidInput(
                "--groups needs answers that are scored already. Score them with `semtoken score` first."
            )
        if by is not None and by not in as_methods(choice.methods):
            choice = replace(choice, methods=",".join([*as_methods(choice.methods), *as_methods(by)]))
        answers, known = _answered(answers, choice, output, batch_size, max_new_tokens, known)
    answers, known = _judged(_one_of_each(answers), judge, known)
    parts = _parts(answers, further, groups)
    settings = {"promise": promise, "alpha": alpha, "delta": delta / len(parts), "start": start}
    places = {name: output / _folder_name(name) for name in parts}
    for place in places.values():
        _check_target(place, overwrite=overwrite)
    made = {}
    for name, (own, rest) in parts.items():
        try:
            made[name] = _fitted(own, rest, known, method, by, settings)
        except InvalidInput as error:
            raise InvalidInput(f"{groups} {name}: {error} Nothing was written." if name else str(error)) from error
    busy = f"Another `semtoken calibrate` is writing to {output}. Wait for it, or choose another directory."
    whole = output.resolve()
    with locked(whole.with_name(f".{whole.name}.lock"), busy, remove=True):
        for place in places.values():  # another one may have ended meanwhile
            _check_target(place, overwrite=overwrite)
        for name, (calibrator, report, labelled) in made.items():
            if name:
                tell(f"{groups} {name}:")
            _write(places[name], calibrator, report, labelled, start)
            _show(calibrator, report)
            tell(f"Calibrator and report in {places[name]}. Use it with --calibrator {quote(str(places[name]))}.")


def _folder_name(group: str) -> str:
    """A name for the folder of a group, which cannot lead elsewhere."""
    name = quoted_name(group, safe="")
    return name.replace(".", "%2E") if name.startswith(".") else name


def _parts(
    answers: Sequence[AnswerRecord], further: Sequence[AnswerRecord], column: str | None
) -> dict[str, tuple[list[AnswerRecord], list[AnswerRecord]]]:
    """The answers and the further scores of each group; all under no name where there are no groups."""
    from semtoken.guarantees.threshold import places_of_groups

    if column is None:
        return {"": (list(answers), list(further))}
    for answer in (*answers, *further):
        if answer.record.get(column) in (None, ""):
            raise InvalidInput(f"{answer.where}: the field {column!r}, which --groups names, is missing or empty.")
    own = places_of_groups([answer.record[column] for answer in answers], len(answers))
    rest = {name: [other for other in further if str(other.record[column]).strip() == name] for name in own}
    return {name: ([answers[i] for i in places], rest[name]) for name, places in own.items()}


def _sampled(url: str) -> list[AnswerRecord]:
    """The random sample of a journal: its labels, and its scores without labels. No other labels may make a promise."""
    from semtoken.cli.journal import open_journal
    from semtoken.guarantees.journal.labels import agreement, sampled_answers

    journal = open_journal(url)
    answers = sampled_answers(journal)
    n = sum(answer.correct is not None for answer in answers)
    tell(f"{n:,} labelled answers and {len(answers) - n:,} further scores of the random sample of {journal.name}.")
    tell(agreement(journal).sentence)
    return answers


def _embedded(source: Path) -> Path:
    """The file of an embedded question set, by its name."""
    from semtoken.support.almanac import QUESTIONS

    names = {"almanac": "test", ALMANAC_DEV: "dev"}
    split = names.get(str(source))
    return source if split is None or source.exists() else QUESTIONS / f"{split}.jsonl.gz"


def _check_target(output: Path, *, overwrite: bool) -> None:
    from semtoken.guarantees.calibrator import NAME

    if (output / NAME).exists() and not overwrite:
        raise InvalidInput(f"{output / NAME} exists. Choose another directory, or replace it with --force.")


def _answered(
    answers: Sequence[AnswerRecord],
    choice: ModelChoice,
    output: Path,
    batch_size: int,
    max_new_tokens: int,
    known: Fingerprint,
) -> tuple[list[AnswerRecord], Fingerprint]:
    """Answer the questions; what is done is kept in the directory, and an interrupted command goes on."""
    from semtoken.bench.score_file import ScoringJob
    from semtoken.cli.score import batch_scorer
    from semtoken.guarantees.apply import origin_of
    from semtoken.guarantees.labels import read_answers
    from semtoken.support.files.record_files import write_records

    if scored := [answer for answer in answers if answer.log_score is not None]:
        raise InvalidInput(
            f"{scored[0].where} has a score and other lines have none. Score all of them alike, in one run."
        )
    if unasked := [answer for answer in answers if not answer.question]:
        raise InvalidInput(f"{unasked[0].where}: 'question' or 'log_score' is needed.")
    asked = output / "questions.jsonl"
    write_records(
        asked,
        (
            {"id": answer.record.get("id", i), "question": answer.question, "answers": list(answer.references)}
            for i, answer in enumerate(answers)
        ),
    )
    job = ScoringJob(
        source=asked,
        target=output / "answers.jsonl",
        settings=choice.settings | {"max_new_tokens": max_new_tokens},
        batch_size=batch_size,
    )
    so_far = job.check()
    stc = choice.load()
    generation = {"max_new_tokens": max_new_tokens, "stop_at_newline": False}
    with counting("answering", so_far.total, so_far.done) as progress:
        job.run(batch_scorer(stc, choice.model, generation), progress)
    asking = how_to_ask(choice.model, stc.tokenizer, raw=False)
    known = replace(
        known,
        **origin_of(stc.model, choice.model),
        template=hashlib.sha256(asking.template.encode()).hexdigest()[:16],
    )
    return read_answers(output / "answers.jsonl"), known


def _one_of_each(answers: Sequence[AnswerRecord]) -> list[AnswerRecord]:
    """One answer for each question: repeated ones count as evidence that is not there.

    Which of them is drawn by the question alone: in a file that is ranked, the first is the most doubtful one.
    """
    several: dict[str, list[AnswerRecord]] = {}
    for i, answer in enumerate(answers):
        several.setdefault(answer.question or f"line {i}", []).append(answer)
    if left_out := len(answers) - len(several):
        tell(f"{left_out:,} further answers to the same questions are left out: labels must be of different questions.")
    return [same[zlib.crc32(question.encode("utf-8", "replace")) % len(same)] for question, same in several.items()]


def _judged(answers: Sequence[AnswerRecord], judge: str, known: Fingerprint) -> tuple[list[AnswerRecord], Fingerprint]:
    """Labels for answers that have accepted ones and no label."""
    from semtoken.support.almanac import Question

    open_ones = [i for i, answer in enumerate(answers) if answer.correct is None and answer.references]
    if not open_ones:
        return list(answers), replace(known, judge="labels in the file")
    from semtoken.bench.judges import AnswerToJudge
    from semtoken.bench.judges.kinds import judge_from

    chosen = judge_from(judge)
    items = [
        AnswerToJudge(Question(str(i), answers[i].question, answers[i].references), answers[i].text) for i in open_ones
    ]
    labels = {i: verdict.correct for i, verdict in zip(open_ones, chosen.judge(items), strict=True)}
    judged = [
        replace(answer, correct=bool(labels[i])) if labels.get(i) in (0.0, 1.0) else answer
        for i, answer in enumerate(answers)
    ]
    return judged, replace(known, judge=chosen.name)


def _fitted(
    answers: Sequence[AnswerRecord],
    further: Sequence[AnswerRecord],
    known: Fingerprint,
    method: Any,
    by: str | None,
    settings: dict[str, Any],
) -> tuple[Calibrator, Report, list[AnswerRecord]]:
    """The calibrator with its threshold, its report, and the labelled answers that both were fitted on."""
    from semtoken.guarantees import Calibrator, Threshold
    from semtoken.guarantees.fingerprint import one_model
    from semtoken.guarantees.fitting import FEWEST_UNLABELLED

    labelled = [answer for answer in answers if answer.correct is not None]
    correct = [answer.correct for answer in labelled]
    rest = [answer for answer in answers if answer.correct is None] + list(further)
    if model := one_model(labelled):
        rest = [answer for answer in rest if answer.model in (None, model)]
    calibrator = Calibrator.fit(labelled, correct, method, fingerprint=known, by=by)
    enough = settings["promise"] == "selective" and len(rest) >= FEWEST_UNLABELLED
    threshold = Threshold.fit(
        labelled, correct, unlabelled=rest if enough else None, fingerprint=calibrator.fingerprint, by=by, **settings
    )
    report = calibrator.report(labelled, correct)
    return replace(calibrator, threshold=threshold), report, labelled


def _write(
    output: Path, calibrator: Calibrator, report: Report, answers: Sequence[AnswerRecord], start: float | None
) -> None:
    """The report first: a calibrator is there only when all is."""
    from semtoken.guarantees.labels import labelled
    from semtoken.guarantees.promises import forecast
    from semtoken.guarantees.report_page import write_report

    own = [answer for answer in answers if answer.correct is not None]
    scores = labelled(own, [a.correct for a in own], by=calibrator.fingerprint.method)
    threshold, said = calibrator.threshold, ""
    if threshold is not None and threshold.uncertainty is None and threshold.promise == "selective":
        said = forecast(scores.uncertainty, scores.correct, threshold.alpha, threshold.delta, start)
        tell(said)
    output.mkdir(parents=True, exist_ok=True)
    write_report(output / "report.html", calibrator, report, scores, said)
    calibrator.save(output)


def _show(calibrator: Calibrator, report: Report) -> None:
    from rich.text import Text

    from semtoken.guarantees.labels import PRODUCT

    out.print(f"Calibrated by {calibrator.fingerprint.method or PRODUCT}.")
    columns = ("chance given", "right", "95% interval", "answers")
    table = plain_table(*columns, "", numbers=columns, gap=1)
    for b in report.bins:
        bar = "█" * round(20 * b.right)
        table.add_row(f"{b.chance:.0%}", f"{b.right:.0%}", f"{b.low:.0%} to {b.high:.0%}", f"{b.n:,}", bar)
    out.print(table)
    gain = report.log_loss_gain
    verdict = "better than" if gain.high < 0 else "worse than" if gain.low > 0 else "not shown to be better than"
    out.print(
        f"Log loss {report.log_loss.value:.3f}, {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] against always "
        f"giving {report.base_rate:.1%}: {verdict} the base rate. ECE {report.calibration_error:.3f}.",
        soft_wrap=True,
    )
    if calibrator.threshold is not None:
        out.print(Text(calibrator.threshold.statement, style="bold"), soft_wrap=True)
