"""Calibrators of answers in files: one for all of them, or one for each group, with guarantees that hold together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

from semtoken.choices import Guarantee
from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import AnswerRecord
from semtoken.guarantees.calibrator import NAME, Calibrator
from semtoken.guarantees.exact import forecast
from semtoken.guarantees.fingerprint import NOTHING_KNOWN, Fingerprint, models_named
from semtoken.guarantees.fitting import FEWEST_UNLABELED
from semtoken.guarantees.group_names import Group, group_name
from semtoken.guarantees.labels import LabeledScores, labeled
from semtoken.guarantees.measures import Report
from semtoken.guarantees.threshold_sets import places_of_groups
from semtoken.support.files.outputs import refuse_existing
from semtoken.support.files.safe_files import locked
from semtoken.support.text import shortened

REPORT = "report.html"
"""The name of the report beside a calibrator."""
LONGEST_NAME = 255
"""The most bytes in the name of a file or folder, on all usual file systems."""


@dataclass(frozen=True)
class AnswerGroup:
    """Answers that get a calibrator of their own."""

    task: Group | None
    """The field by which answers were grouped, with its value in this group; None where all are one group."""
    answers: tuple[AnswerRecord, ...] = field(repr=False)
    """The answers, with and without labels."""
    further: tuple[AnswerRecord, ...] = field(default=(), repr=False)
    """Answers that only place the threshold, whatever their labels say."""

    @property
    def labeled(self) -> list[AnswerRecord]:
        """The answers that have a label."""
        return [answer for answer in self.answers if answer.correct is not None]

    @property
    def unlabeled(self) -> list[AnswerRecord]:
        """The answers that can only place the threshold: those of another model than the labeled ones cannot."""
        rest = [answer for answer in self.answers if answer.correct is None] + list(self.further)
        # Scores of another model have another distribution, and would place thresholds where no label is.
        models = models_named(self.labeled)
        return [answer for answer in rest if not models or answer.model in (None, *models)]

    @property
    def value(self) -> str:
        """The value of the field in this group; empty where all answers are one group."""
        return "" if self.task is None else self.task.value

    @property
    def title(self) -> str:
        """The field with its value; empty where all answers are one group."""
        return "" if self.task is None else str(self.task)

    @property
    def folder(self) -> str:
        """A name for the folder of the group, which cannot lead elsewhere; empty where all answers are one group."""
        name = quote(self.value, safe="")
        # `quote` leaves dots as they are, and ".." would be another folder.
        return name.replace(".", "%2E") if name.startswith(".") else name


@dataclass(frozen=True)
class FittedGroup:
    """The calibrator of a group of answers, and how good it is."""

    group: AnswerGroup
    calibrator: Calibrator
    """The calibrator with its threshold."""
    report: Report
    """The quality of its probabilities on the labeled answers, cross-validated."""
    scores: LabeledScores = field(repr=False)
    """The scores and labels that it was fitted on, [n]."""

    @cached_property
    def forecast(self) -> str:
        """A sentence on what more labels would do; empty where the threshold is there, or its guarantee is of another
        kind than `selective_risk`.
        """
        threshold = self.calibrator.threshold
        if threshold is None or self.calibrator.guarantees or threshold.guarantee != "selective_risk":
            return ""
        return forecast(self.scores.uncertainty, self.scores.correct, threshold.alpha, threshold.delta, None)

    def to_dict(self) -> dict[str, Any]:
        """The fit as plain values: its group where there are several, labels, guarantee and the quality of its
        probabilities.
        """
        threshold = self.calibrator.threshold
        values = {
            "labels": self.calibrator.n,
            "guarantees": self.calibrator.guarantees,
            "statement": None if threshold is None else threshold.statement,
            "log_loss": self.report.log_loss.value,
            "calibration_error": self.report.calibration_error,
        }
        return {"group": self.group.value, **values} if self.group.value else values

    def save(self, directory: Path) -> None:
        """Write the calibrator and the page `report.html` into a directory, which is made if it is missing.

        `MissingExtra` without Jinja2 or matplotlib, and `InvalidInputError` if the place cannot be written.
        """
        from semtoken.guarantees.report_page import write_report  # matplotlib, which fitting does not need

        directory.mkdir(parents=True, exist_ok=True)
        # The report first: a calibrator is there only when all is.
        write_report(directory / REPORT, self.calibrator, self.report, self.scores, self.forecast)
        self.calibrator.save(directory)


def require_effect(path: Path, groups: Sequence[AnswerGroup]) -> None:
    """Raise `InvalidInputError` if the further answers of groups, which come from a file, place the threshold of none:
    they are all of other groups or models, or too few together with the answers of the group that have no label.
    """
    with_and_without = [(group, replace(group, further=())) for group in groups]
    if any(_placing(group) != _placing(alone) for group, alone in with_and_without):
        return
    n = max(len(group.unlabeled) for group in groups)
    there = f"there are {n}" if len(groups) == 1 else f"no group has more than {n}"
    reason = f"at least {FEWEST_UNLABELED} answers without labels place a threshold, and {there}. Give more"
    if all(group.unlabeled == alone.unlabeled for group, alone in with_and_without):
        kind = "model" if groups[0].task is None else "group and model"
        reason = f"none of its answers is of the {kind} of labeled ones. Give others"
    raise InvalidInputError(f"{path} has no effect: {reason}, or leave it out.")


def answer_groups(
    answers: Sequence[AnswerRecord], further: Sequence[AnswerRecord] = (), by: str | None = None
) -> list[AnswerGroup]:
    """The groups of answers by the value of a field, in alphabetical order; one group without a field.

    `further` only place thresholds; those of a value that none of the answers has are left out. `InvalidInputError`
    names an answer whose field is missing or empty; it is raised, too, for more groups than can have guarantees.
    """
    if by is None:
        return [AnswerGroup(None, tuple(answers), tuple(further))]
    for answer in (*answers, *further):
        if not group_name(answer.record.get(by)):
            raise InvalidInputError(f"{answer.where}: the field {by!r}, which --group-by names, is missing or empty.")
    own = places_of_groups([answer.record[by] for answer in answers], len(answers))
    rest = {name: tuple(other for other in further if group_name(other.record[by]) == name) for name in own}
    return [AnswerGroup(Group(by, name), tuple(answers[i] for i in places), rest[name]) for name, places in own.items()]


def fit_groups(
    groups: Sequence[AnswerGroup],
    *,
    alpha: float = 0.1,
    delta: float = 0.1,
    guarantee: Guarantee = "selective_risk",
    score: str | None = None,
    fingerprint: Fingerprint = NOTHING_KNOWN,
) -> list[FittedGroup]:
    """Fit a calibrator with a threshold to each group of answers; the guarantees hold together.

    The labeled answers of a group make its calibrator. With a guarantee of `selective_risk` its answers without a label
    place the threshold, if there are at least 200 of them; those of another model than that of the labeled ones are
    left out.

    Parameters
    ----------
    groups : list of AnswerGroup
        The groups, as `answer_groups` makes them; within a group all answers are to different questions
        (`one_of_each_question`).
    alpha : float
        The error rate that each guarantee allows, in (0, 1).
    delta : float
        The probability, in (0, 1), that any of the guarantees fails; each group gets delta divided by their number.
    guarantee, score, fingerprint
        As for `Calibrator.fit`. A group that has a field and a value takes the place of the fingerprint's task.

    Returns
    -------
    list of FittedGroup
        One for each group, in the same order. A threshold that accepts nothing guarantees nothing
        (`Calibrator.guarantees`).

    Raises
    ------
    CalibratorMismatchError, InvalidInputError
        A group cannot be fitted, as with too few labels; an `InvalidInputError` names the group.
    """
    each = delta / max(len(groups), 1)  # Bonferroni: the probabilities of failure add up at the worst
    fitted = []
    for group in groups:
        own = group.labeled
        correct = [answer.correct for answer in own]
        try:
            placing = _placing(group) if guarantee == "selective_risk" else None
            calibrator = Calibrator.fit(
                own,
                correct,
                fingerprint=replace(fingerprint, task=group.task or fingerprint.task),
                score=score,
                alpha=alpha,
                delta=each,
                guarantee=guarantee,
                unlabeled=placing,
            )
            report = calibrator.report(own, correct)
        except InvalidInputError as error:
            raise InvalidInputError(": ".join(filter(None, (group.title, str(error))))) from error
        scores = labeled(own, correct, by=calibrator.fingerprint.method)
        fitted.append(FittedGroup(group, calibrator, report, scores))
    return fitted


def check_folders(directory: Path, groups: Sequence[AnswerGroup] = (), *, overwrite: bool = False) -> None:
    """Raise `InvalidInputError` if the directory is a file, a group's value is too long for the name of a folder, or a
    calibrator or a report of one of these groups in it would be replaced; without groups that of the directory itself.
    """
    if directory.exists() and not directory.is_dir():
        raise InvalidInputError(f"{directory} is a file; give the name of a folder.")
    for group in groups:
        if group.task is not None and len(group.folder) > LONGEST_NAME:
            raise InvalidInputError(
                f"The value {shortened(group.value)!r} of the field {group.task.by!r} is too long: its calibrator "
                f"gets a folder of that name, for which it makes {len(group.folder)} of at most {LONGEST_NAME} bytes. "
                "Shorten it."
            )
    for folder, name in product([group.folder for group in groups] or [""], (NAME, REPORT)):
        refuse_existing(directory / folder / name, "directory", overwrite=overwrite)


def save_groups(fitted: Sequence[FittedGroup], directory: Path, *, overwrite: bool = False) -> None:
    """Write the calibrator of each group, with its report, into its folder in a directory.

    Without `overwrite` nothing is written if any of it would replace something.

    Raises
    ------
    InvalidInputError
        Another process is writing there, something would be replaced, or the place cannot be written.
    """
    busy = f"Another `semtoken calibrate` is writing to {directory}. Wait for it, or choose another directory."
    whole = directory.resolve()
    with locked(whole.with_name(f".{whole.name}.lock"), busy, remove=True):
        # another one may have ended while this one fitted
        check_folders(directory, [one.group for one in fitted], overwrite=overwrite)
        for one in fitted:
            one.save(directory / one.group.folder)


def _placing(group: AnswerGroup) -> list[AnswerRecord] | None:
    """The answers whose scores place the threshold; None where they are too few."""
    rest = group.unlabeled
    return rest if len(rest) >= FEWEST_UNLABELED else None
