"""`semtoken calibrate`: from labeled answers, or answers to typed questions, to a guarantee."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote as quoted_name

from cyclopts import Parameter
from cyclopts.validators import Number

from semtoken.choices import Guarantee
from semtoken.cli.audit import is_journal, is_required
from semtoken.cli.console import json_line, out, plain_table, tell
from semtoken.cli.parameters import Json, Labels, Overwrite, Questions
from semtoken.cli.settings import Read, Settings, SettingsInUse
from semtoken.cli.statuses import Status, UsageError, refuse_useless
from semtoken.errors import InvalidInputError

if TYPE_CHECKING:
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.guarantees import Calibrator, Report
    from semtoken.guarantees.answer_records import AnswerRecord
    from semtoken.guarantees.fingerprint import Fingerprint

Rate = Annotated[float | None, Parameter(metavar="RATE", validator=Number(gt=0, lt=1))]


def calibrate(
    source: Annotated[
        str,
        Parameter(metavar="SOURCE", help="Labeled answers, answers to typed questions, or a journal."),
    ],
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), metavar="DIR", help="Folder of the calibrator.")],
    alpha: Annotated[Rate, Parameter(help="Error rate that the guarantee allows. Default: 0.1.")] = None,
    delta: Annotated[Rate, Parameter(help="Probability that the guarantee fails. Default: 0.1.")] = None,
    guarantee: Annotated[
        Guarantee | None,
        Parameter(
            metavar="KIND",
            help="selective_risk: errors among accepted answers; miss_rate: accepted among errors; joint_risk: "
            "accepted errors among all. Default: selective_risk.",
        ),
    ] = None,
    labels: Labels = None,
    questions: Questions = None,
    label_field: Annotated[
        str | None, Parameter(help="Field that says whether an answer is right. Default: correct.")
    ] = None,
    judge: Annotated[
        str | None,
        Parameter(help="Judge answers against accepted ones: exact, contains or rouge. Default: exact."),
    ] = None,
    by: Annotated[
        str | None, Parameter(metavar="METHOD", help="Calibrate this score instead of the confidence.")
    ] = None,
    group_by: Annotated[
        str | None,
        Parameter(
            metavar="FIELD",
            help="Fit one calibrator per value of a field; the guarantees hold jointly.",
        ),
    ] = None,
    unlabeled: Annotated[
        Path | None, Parameter(metavar="FILE", help="Scores without labels, to place the thresholds.")
    ] = None,
    require: Annotated[bool, Parameter(help="Exit with 1, and write nothing, if a guarantee is not possible.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    in_use: Read[SettingsInUse],
) -> int | None:
    """Fit a calibrator: probabilities, and a threshold with a guarantee.

    Writes a folder with the calibrator and a report. If the labels do not support the guarantee, it says so and accepts
    nothing. Answers without a label are judged by their accepted answers (`answers`), and serve as scores without
    labels where they have none.

    Example: `semtoken calibrate answers.labeled.jsonl -o my-calibrator --alpha 0.1`
    """
    wanted = in_use.settings.guarantee
    aim = {"alpha": alpha or wanted.alpha, "delta": delta or wanted.delta, "guarantee": guarantee or wanted.kind}
    of_answers: dict[str, object] = {"--label-field": label_field, "--judge": judge, "--by": by}
    of_answers |= {"--group-by": group_by, "--unlabeled": unlabeled}
    if not is_journal(source) and (labels or questions or holds_decisions(Path(source))):
        refuse_useless(of_answers, "on answers to typed questions")
        asked = questions or (
            Path(in_use.settings.decisions.questions) if in_use.settings.decisions.questions else None
        )
        named = labels, asked if labels or questions else None
        return _fit_decisions(
            Path(source), output, named, aim, in_use.settings, overwrite=overwrite, require=require, as_json=as_json
        )
    return _fit_answers(
        source,
        output,
        aim,
        (label_field, judge, by, group_by, unlabeled),
        overwrite=overwrite,
        require=require,
        as_json=as_json,
    )


def holds_decisions(source: Path) -> bool:
    """Whether a file or folder holds answers to typed questions, written by `decide` or saved as a server gave them.

    Answers in text are one file of JSON lines, CSV or Parquet, whose field `answers`, if it is there, lists texts.
    """
    from semtoken.support.files.strict_json import read_json_lines

    if source.is_dir() or source.suffix == ".json":
        return True
    if source.suffix in (".csv", ".parquet") or not source.is_file():
        return False
    line = next(iter(read_json_lines(source)), None)
    if line is None or line.fault or not isinstance(line.value, Mapping):
        return False
    if any(isinstance(line.value.get(name), Mapping) for name in ("response", "reply", "body", "decision", "answers")):
        return True
    answers = line.value.get("answers")
    return isinstance(answers, list) and bool(answers) and isinstance(answers[0], Mapping)


def _fit_answers(
    source: str,
    output: Path,
    aim: dict[str, Any],
    how: tuple[str | None, str | None, str | None, str | None, Path | None],
    *,
    overwrite: bool,
    require: bool,
    as_json: bool,
) -> int | None:
    """Fit a calibrator of answers, or one for each group of them, and write all of them or none."""
    from semtoken.guarantees import Fingerprint
    from semtoken.guarantees.answer_records import read_answers, require_labels, require_scores
    from semtoken.guarantees.exact import shortage
    from semtoken.support.files.safe_files import locked

    label_field, judge, by, group_by, unlabeled = how
    _check_target(output, overwrite=overwrite)
    field = label_field or "correct"
    if is_journal(source):
        if label_field is not None or judge is not None:
            raise UsageError("--label-field and --judge have no effect on a journal, which has its labels.")
        answers = _sampled(source)
    else:
        answers = read_answers(Path(source), field)
        require_labels(answers, field)
    require_scores(answers)
    further = [] if unlabeled is None else _to_place(unlabeled, field, answers, aim["guarantee"])
    if aim["guarantee"] == "selective_risk":
        missing = shortage(sum(answer.can_be_labeled for answer in answers), aim["alpha"], aim["delta"])
        if missing:
            tell(missing)
    answers, known = _judged(_one_of_each(answers), judge, Fingerprint())
    parts = _parts(answers, further, group_by)
    # Bonferroni: delta is the chance that any of the guarantees fails, however many groups there are.
    settings = aim | {"delta": aim["delta"] / len(parts)}
    places = {name: output / _folder_name(name) for name in parts}
    # Before anything is fitted, which takes a while: all are written, or none.
    for place in places.values():
        _check_target(place, overwrite=overwrite)
    made = {}
    for name, (own, rest) in parts.items():
        try:
            made[name] = _fitted(own, rest, known, by, settings)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{group_by} {name}: {error} Nothing was written." if name else str(error)
            ) from error
    without = [name for name, (calibrator, _, _) in made.items() if not _accepts(calibrator)]
    if require and without:
        named = f" for {', '.join(without)}" if without != [""] else ""
        tell(f"Nothing was written, since no guarantee is possible{named}.", style="red")
        return Status.DOES_NOT_HOLD
    busy = f"Another `semtoken calibrate` is writing to {output}. Wait for it, or choose another directory."
    whole = output.resolve()
    with locked(whole.with_name(f".{whole.name}.lock"), busy, remove=True):
        for place in places.values():  # another one may have ended meanwhile
            _check_target(place, overwrite=overwrite)
        for name, (calibrator, report, labeled) in made.items():
            _write(places[name], calibrator, report, labeled)
            if as_json:
                print(json_line(_summary(name, calibrator, report)))
                continue
            if name:
                tell(f"{group_by} {name}:")
            _show(calibrator, report)
            tell(f"Calibrator and report in {places[name]}. Use it with --calibrator {quote(str(places[name]))}.")
    return None


def _accepts(calibrator: Calibrator) -> bool:
    """Whether there is a threshold that accepts anything: without one nothing is guaranteed."""
    return calibrator.threshold is not None and calibrator.threshold.uncertainty is not None


def _summary(group: str, calibrator: Calibrator, report: Report) -> dict[str, Any]:
    """What was fitted, as plain values."""
    statement = None if calibrator.threshold is None else calibrator.threshold.statement
    values: dict[str, Any] = {"labels": calibrator.n, "guarantees": _accepts(calibrator), "statement": statement}
    values |= {"log_loss": report.log_loss.value, "calibration_error": report.calibration_error}
    return {"group": group, **values} if group else values


def _fit_decisions(
    source: Path,
    output: Path,
    named: tuple[Path | None, Path | None],
    aim: dict[str, Any],
    settings: Settings,
    *,
    overwrite: bool,
    require: bool,
    as_json: bool,
) -> int | None:
    """Fit a calibrator of each typed question: of a predicate two, for what is called true and what is called false."""
    from semtoken.decisions.calibrating import NAME, DecisionCalibrator
    from semtoken.decisions.doubts import doubts_of_answers, doubts_of_labels
    from semtoken.decisions.running import read_questions
    from semtoken.decisions.saved import decision_records
    from semtoken.support.files.outputs import check_not_inside

    labels, questions = named
    check_not_inside(output, [source])
    if output.exists() and not (output / NAME).exists():
        raise InvalidInputError(f"{output} exists and is no calibrator of decisions. Name another folder.")
    if (output / NAME).exists() and not overwrite:
        raise InvalidInputError(f"{output / NAME} exists. Choose another directory, or replace it with --force.")
    asked = None if questions is None else read_questions(questions)
    records = decision_records(source, labels=labels, questions=asked)
    for sentence in [*doubts_of_answers(records), *doubts_of_labels(records, **aim)]:
        tell(sentence)
    fitted = DecisionCalibrator.fit(records, **aim)
    required = settings.decisions.require
    missing = [side.what for side in fitted.sides.values() if not side.guarantees and is_required(side, required)]
    unknown = set(required) - {name for side in fitted.sides.values() for name in (side.name, side.what)}
    if require and unknown:
        raise InvalidInputError(f"require under [decisions] names {min(unknown)!r:.60}, which no answer is about.")
    if not (require and missing):
        fitted.save(output)
    if as_json:
        for side in fitted.sides.values():
            counts = {"labels": side.n, "accepted": side.n_accepted, "wrong": side.n_wrong_accepted}
            guarantee = {"guarantees": side.guarantees, "statement": side.statement}
            print(json.dumps({"question": side.name, "side": side.side, **counts, **guarantee}))
    else:
        _tell_fitted(fitted)
    if require and missing:
        tell(f"Nothing was written, since there is no guarantee for {', '.join(missing)}.", style="red")
        return Status.DOES_NOT_HOLD
    return None


def _tell_fitted(fitted: DecisionCalibrator) -> None:
    for side in fitted.sides.values():
        print(f"{side.what} ({side.n} labels): {side.statement}")
    names = {fingerprint: side.name for (fingerprint, _), side in fitted.sides.items()}
    for fingerprint, scale in fitted.scales.items():
        print(f"{names[fingerprint]}, probabilities of all options: {scale.statement}.")
    for fingerprint, sets in fitted.sets.items():
        print(f"{names[fingerprint]}, sets of options: {sets.statement}.")


def _folder_name(group: str) -> str:
    """A name for the folder of a group, which cannot lead elsewhere."""
    name = quoted_name(group, safe="")
    # `quote` leaves dots as they are, and ".." would be another folder.
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
            raise InvalidInputError(
                f"{answer.where}: the field {column!r}, which --group-by names, is missing or empty."
            )
    own = places_of_groups([answer.record[column] for answer in answers], len(answers))
    rest = {name: [other for other in further if str(other.record[column]).strip() == name] for name in own}
    return {name: ([answers[i] for i in places], rest[name]) for name, places in own.items()}


def _sampled(url: str) -> list[AnswerRecord]:
    """The random sample of a journal: its labels, and its scores without labels. No other labels may make a
    guarantee.
    """
    from semtoken.cli.journal import open_journal
    from semtoken.guarantees.journal.labels import agreement, sampled_answers

    journal = open_journal(url)
    answers = sampled_answers(journal)
    n = sum(answer.correct is not None for answer in answers)
    tell(f"{n:,} labeled answers and {len(answers) - n:,} further scores of the random sample of {journal.name}.")
    tell(agreement(journal).sentence)
    return answers


def _check_target(output: Path, *, overwrite: bool) -> None:
    from semtoken.guarantees.calibrator import NAME

    if (output / NAME).exists() and not overwrite:
        raise InvalidInputError(f"{output / NAME} exists. Choose another directory, or replace it with --force.")


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


def _judged(
    answers: Sequence[AnswerRecord], judge: str | None, known: Fingerprint
) -> tuple[list[AnswerRecord], Fingerprint]:
    """Labels for answers that have accepted ones and no label, by a judge (None: exact)."""
    from semtoken.support.almanac import Question

    open_ones = [i for i, answer in enumerate(answers) if answer.correct is None and answer.references]
    if not open_ones:
        if judge is not None:
            raise UsageError("--judge has no effect: no answer without a label has accepted ones. Leave it out.")
        return list(answers), replace(known, judge="labels in the file")
    from semtoken.bench.judges import AnswerToJudge
    from semtoken.bench.judges.kinds import judge_from

    chosen = judge_from(judge or "exact")
    items = [
        AnswerToJudge(Question(str(i), answers[i].question, answers[i].references), answers[i].text) for i in open_ones
    ]
    labels = {i: verdict.correct for i, verdict in zip(open_ones, chosen.judge(items), strict=True)}
    judged = [
        replace(answer, correct=bool(labels[i])) if labels.get(i) in (0.0, 1.0) else answer
        for i, answer in enumerate(answers)
    ]
    return judged, replace(known, judge=chosen.name)


def _to_place(path: Path, field: str, answers: Sequence[AnswerRecord], guarantee: str) -> list[AnswerRecord]:
    """The answers of --unlabeled, which place thresholds; `UsageError` if they cannot, since it would do nothing."""
    from semtoken.guarantees.answer_records import read_answers
    from semtoken.guarantees.fitting import FEWEST_UNLABELED

    if guarantee != "selective_risk":
        raise UsageError(f"--unlabeled has no effect on --guarantee {guarantee}: leave it out.")
    further = read_answers(path, field)
    n = len(further) + sum(answer.correct is None for answer in answers)
    if n < FEWEST_UNLABELED:
        raise UsageError(
            f"--unlabeled has no effect: at least {FEWEST_UNLABELED} answers without labels place the thresholds, and "
            f"there are {n}. Give more, or leave it out."
        )
    return further


def _fitted(
    answers: Sequence[AnswerRecord],
    further: Sequence[AnswerRecord],
    known: Fingerprint,
    by: str | None,
    settings: dict[str, Any],
) -> tuple[Calibrator, Report, list[AnswerRecord]]:
    """The calibrator with its threshold, its report, and the labeled answers that both were fitted on."""
    from semtoken.guarantees import Calibrator
    from semtoken.guarantees.fingerprint import one_model
    from semtoken.guarantees.fitting import FEWEST_UNLABELED

    labeled = [answer for answer in answers if answer.correct is not None]
    correct = [answer.correct for answer in labeled]
    rest = [answer for answer in answers if answer.correct is None] + list(further)
    # Scores of another model have another distribution, and would place thresholds where no label is.
    if model := one_model(labeled):
        rest = [answer for answer in rest if answer.model in (None, model)]
    enough = settings["guarantee"] == "selective_risk" and len(rest) >= FEWEST_UNLABELED
    settings = settings | {"unlabeled": rest if enough else None}
    calibrator = Calibrator.fit(labeled, correct, fingerprint=known, score=by, **settings)
    return calibrator, calibrator.report(labeled, correct), labeled


def _write(output: Path, calibrator: Calibrator, report: Report, answers: Sequence[AnswerRecord]) -> None:
    """The report first: a calibrator is there only when all is."""
    from semtoken.guarantees.exact import forecast
    from semtoken.guarantees.labels import labeled
    from semtoken.guarantees.report_page import write_report

    own = [answer for answer in answers if answer.correct is not None]
    scores = labeled(own, [a.correct for a in own], by=calibrator.fingerprint.method)
    threshold, said = calibrator.threshold, ""
    if threshold is not None and threshold.uncertainty is None and threshold.guarantee == "selective_risk":
        said = forecast(scores.uncertainty, scores.correct, threshold.alpha, threshold.delta, None)
        tell(said)
    output.mkdir(parents=True, exist_ok=True)
    write_report(output / "report.html", calibrator, report, scores, said)
    calibrator.save(output)


def _show(calibrator: Calibrator, report: Report) -> None:
    from rich.text import Text

    from semtoken.guarantees.labels import PRODUCT

    out().print(f"Calibrated by {calibrator.fingerprint.method or PRODUCT}.")
    columns = ("probability given", "right", "95% interval", "answers")
    table = plain_table(*columns, "", numbers=columns, gap=1)
    for b in report.bins:
        bar = "█" * round(20 * b.right)
        table.add_row(f"{b.probability_correct:.0%}", f"{b.right:.0%}", f"{b.low:.0%} to {b.high:.0%}", f"{b.n:,}", bar)
    out().print(table)
    gain = report.log_loss_gain
    verdict = "better than" if gain.high < 0 else "worse than" if gain.low > 0 else "not shown to be better than"
    out().print(
        f"Log loss {report.log_loss.value:.3f}, {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] against always "
        f"giving {report.base_rate:.1%}: {verdict} the base rate. ECE {report.calibration_error:.3f}.",
        soft_wrap=True,
    )
    if calibrator.threshold is not None:
        out().print(Text(calibrator.threshold.statement, style="bold"), soft_wrap=True)
