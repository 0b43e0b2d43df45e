"""`semtoken calibrate`: from labeled answers, or answers to typed questions, to a guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from semtoken.choices import Guarantee
from semtoken.cli.console import json_line, out, plain_table, print_json, say, tell
from semtoken.cli.journals import is_journal, open_journal
from semtoken.cli.parameters import Json, Labels, Overwrite, Questions, ToFolder
from semtoken.cli.settings import GuaranteeSection, Level, Read, SettingsInUse, path_of
from semtoken.cli.statuses import Status, UsageError, refuse_useless, typed_options
from semtoken.errors import InvalidInputError

if TYPE_CHECKING:
    from semtoken.guarantees.answer_records import AnswerRecord
    from semtoken.guarantees.groups import FittedGroup


@Parameter(name="*")
@dataclass(frozen=True)
class AnswerOptions:
    """The options that only answers in text have."""

    label_field: str | None = None
    """Field that says whether an answer is right. Default: correct."""
    judge: str | None = None
    """Judge answers against accepted ones: exact, contains or rouge. Default: exact."""
    by: Annotated[str | None, Parameter(metavar="METHOD")] = None
    """Calibrate this score instead of the confidence."""
    group_by: Annotated[str | None, Parameter(metavar="FIELD")] = None
    """Fit one calibrator per value of a field; the guarantees hold jointly."""
    unlabeled: Path | None = None
    """Scores without labels, to place the thresholds."""


def calibrate(
    source: str,
    /,
    *,
    output: ToFolder[Path],
    alpha: Level | None = None,
    delta: Level | None = None,
    guarantee: Annotated[Guarantee | None, Parameter(metavar="KIND")] = None,
    labels: Labels = None,
    questions: Questions = None,
    of_answers: AnswerOptions = AnswerOptions(),
    require: bool = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    in_use: Read[SettingsInUse],
) -> int | None:
    """Fit a calibrator: probabilities, and a threshold with a guarantee.

    Writes a folder with the calibrator and a report. If the labels do not support the guarantee, it says so and accepts
    nothing. Answers without a label are judged by their accepted answers (`answers`), and serve as scores without
    labels where they have none.

    Example: `semtoken calibrate answers.labeled.jsonl -o my-calibrator --alpha 0.1`

    Parameters
    ----------
    source
        Labeled answers, answers to typed questions, or a journal.
    output
        Folder of the calibrator.
    alpha
        Error rate that the guarantee allows. Default: 0.1.
    delta
        Probability that the guarantee fails. Default: 0.1.
    guarantee
        selective_risk: errors among accepted answers; miss_rate: accepted among errors; joint_risk: accepted
        errors among all. Default: selective_risk.
    require
        Exit with 1, and write nothing, if a guarantee is not possible.
    """
    from semtoken.decisions.saved import holds_decisions

    known = in_use.settings.guarantee
    wanted = GuaranteeSection(alpha or known.alpha, delta or known.delta, guarantee or known.kind)
    target = _Target(output, overwrite=overwrite, require=require, as_json=as_json)
    if not is_journal(source) and (labels or questions or holds_decisions(Path(source))):
        refuse_useless(typed_options(of_answers), "on answers to typed questions")
        return _fit_decisions(Path(source), {"labels": labels, "questions": questions}, wanted, target, in_use)
    return _fit_answers(source, of_answers, wanted, target)


@dataclass(frozen=True)
class _Target:
    """The folder of a calibrator, and the conditions under which it is written."""

    output: Path
    overwrite: bool
    require: bool
    """True writes nothing if a guarantee is not possible."""
    as_json: bool
    """True prints the result as JSON."""


def _read(source: str, how: AnswerOptions, wanted: GuaranteeSection) -> tuple[list[AnswerRecord], list[AnswerRecord]]:
    """The answers of a file or a journal, and those of --unlabeled."""
    from semtoken.guarantees.answer_records import read_answers, require_labels, require_scores
    from semtoken.guarantees.exact import shortage

    field, for_accepted = how.label_field or "correct", wanted.kind == "selective_risk"
    if is_journal(source):
        if how.label_field is not None or how.judge is not None:
            raise UsageError("--label-field and --judge have no effect on a journal, which has its labels.")
        answers = _sampled(source)
    else:
        answers = read_answers(Path(source), field)
        require_labels(answers, field)
    require_scores(answers)
    if how.unlabeled is not None and not for_accepted:
        raise UsageError(f"--unlabeled has no effect on --guarantee {wanted.kind}: leave it out.")
    further = [] if how.unlabeled is None else read_answers(how.unlabeled, field)
    n_labels = sum(answer.can_be_labeled for answer in answers)
    if for_accepted and (missing := shortage(n_labels, wanted.alpha, wanted.delta)):
        tell(missing)
    return answers, further


def _fit_answers(source: str, how: AnswerOptions, wanted: GuaranteeSection, target: _Target) -> int | None:
    """Fit a calibrator of answers, or one for each group of them, and write all of them or none."""
    from semtoken.decisions import calibrating as of_decisions
    from semtoken.guarantees import Fingerprint
    from semtoken.guarantees.groups import answer_groups, check_folders, fit_groups, require_effect, save_groups

    if (target.output / of_decisions.NAME).exists():
        raise InvalidInputError(f"{target.output} holds a calibrator of typed questions. Name another folder.")
    check_folders(target.output, overwrite=target.overwrite)
    answers, further = _read(source, how, wanted)
    # Before one of each is chosen: beside an answer that is judged, the same one may have a label that differs.
    answers, judge = _judged(answers, how.judge)
    judged_by = judge or f"labels in the {'journal' if is_journal(source) else 'file'}"
    groups = answer_groups(_one_of_each(answers, how.group_by), further, how.group_by)
    if how.unlabeled is not None:
        require_effect(how.unlabeled, groups)
    check_folders(target.output, groups, overwrite=target.overwrite)  # before anything is fitted, which takes a while
    try:
        fitted = fit_groups(groups, **wanted.levels, score=how.by, fingerprint=Fingerprint(judge=judged_by))
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} Nothing was written." if how.group_by else str(error)) from error
    without = [one.group.value for one in fitted if not one.calibrator.guarantees]
    if target.require and without:
        named = f" for {', '.join(without)}" if without != [""] else ""
        tell(f"Nothing was written, since no guarantee is possible{named}.", style="red")
        return Status.DOES_NOT_HOLD
    save_groups(fitted, target.output, overwrite=target.overwrite)
    for one in fitted:
        _show(one, target)
    return None


def _show(fitted: FittedGroup, target: _Target) -> None:
    """Print how good a calibrator is that was written, and where it is."""
    from semtoken.guarantees.labels import PRODUCT

    if fitted.forecast:
        tell(fitted.forecast)
    if target.as_json:
        print_json(fitted.to_dict())
        return
    if fitted.group.title:
        tell(f"{fitted.group.title}:")
    calibrator, report = fitted.calibrator, fitted.report
    say(f"Calibrated by {calibrator.fingerprint.method or PRODUCT}.")
    columns = ("probability given", "right", "95% interval", "answers")
    table = plain_table(*columns, "", numbers=columns, gap=1)
    for b in report.bins:
        bar = "█" * round(20 * b.right)
        table.add_row(f"{b.probability_correct:.0%}", f"{b.right:.0%}", f"{b.low:.0%} to {b.high:.0%}", f"{b.n:,}", bar)
    out().print(table)
    say(report.sentence)
    if calibrator.threshold is not None:
        say(calibrator.threshold.statement, "bold")
    place = target.output / fitted.group.folder
    tell(f"Calibrator and report in {place}. Use it with --calibrator {quote(str(place))}.")


def _fit_decisions(
    source: Path,
    named: Mapping[str, Path | None],
    wanted: GuaranteeSection,
    target: _Target,
    in_use: SettingsInUse,
) -> int | None:
    """Fit a calibrator of each typed question: of a predicate two, for what is called true and what is called false."""
    from semtoken.decisions.calibrating import NAME, DecisionCalibrator
    from semtoken.decisions.doubts import doubts_of_answers, doubts_of_labels
    from semtoken.decisions.saved import decision_records
    from semtoken.support.files.outputs import check_not_inside, refuse_existing

    required = in_use.settings.decisions.require
    check_not_inside(target.output, [source])
    if target.output.exists() and not (target.output / NAME).exists():
        raise InvalidInputError(f"{target.output} exists and is no calibrator of decisions. Name another folder.")
    refuse_existing(target.output / NAME, "directory", overwrite=target.overwrite)
    records = decision_records(source, **named, usual=path_of(in_use.settings.decisions.questions))
    for sentence in [*doubts_of_answers(records), *doubts_of_labels(records, **wanted.levels)]:
        tell(sentence)
    fitted = DecisionCalibrator.fit(records, **wanted.levels)
    if target.require and (unknown := fitted.unknown(required)):
        raise InvalidInputError(f"require under [decisions] names {unknown[0]!r:.60}, which no answer is about.")
    missing = fitted.without_guarantee(required) if target.require else []
    if not missing:
        fitted.save(target.output)
    for line in map(json_line, fitted.plain_values()) if target.as_json else fitted.lines():
        print(line)
    if missing:
        tell(f"Nothing was written, since there is no guarantee for {', '.join(missing)}.", style="red")
        return Status.DOES_NOT_HOLD
    return None


def _sampled(url: str) -> list[AnswerRecord]:
    """The random sample of a journal: its labels, and its scores without labels. No other labels may make a
    guarantee.
    """
    from semtoken.guarantees.journal.labels import agreement, sampled_answers

    journal = open_journal(url)
    answers = sampled_answers(journal)
    n = sum(answer.correct is not None for answer in answers)
    tell(f"{n:,} labeled answers and {len(answers) - n:,} further scores of the random sample of {journal.name}.")
    tell(agreement(journal).sentence)
    return answers


def _judged(answers: Sequence[AnswerRecord], judge: str | None) -> tuple[list[AnswerRecord], str | None]:
    """The answers with labels by a judge (None: exact) where they need one, and its name; None if none needs it."""
    if not any(answer.needs_a_judge for answer in answers):
        if judge is not None:
            raise UsageError("--judge has no effect: no answer without a label has accepted ones. Leave it out.")
        return list(answers), None
    from semtoken.bench.judges import label_records
    from semtoken.bench.judges.kinds import judge_from

    chosen = judge_from(judge or "exact")
    return label_records(answers, chosen), chosen.name


def _one_of_each(answers: Sequence[AnswerRecord], group_by: str | None) -> list[AnswerRecord]:
    """One of the answers to each question, in each group; whoever labeled them, disputes count as wrong."""
    from semtoken.guarantees.answer_records import disputes_sentence, one_of_each_question, without_disputes

    settled, n_disputed = without_disputes(answers, group_by)
    if disputed := disputes_sentence(n_disputed):
        tell(disputed)
    kept = one_of_each_question(settled, group_by, labeled_first=True)
    if left_out := len(answers) - len(kept):
        tell(f"{left_out:,} further answers to the same questions are left out: labels must be of different questions.")
    return kept
