"""Audits of a calibrator by newer answers: whether its guarantee still holds, and how far the scores have moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import (
    AnswerRecord,
    disputes_sentence,
    one_of_each_question,
    without_disputes,
)
from semtoken.guarantees.betting import LEVEL
from semtoken.guarantees.calibrator import Calibrator
from semtoken.guarantees.drift import FEWEST_RECENT, Drift
from semtoken.guarantees.fingerprint import models_sentence
from semtoken.guarantees.group_names import Group
from semtoken.guarantees.judge import Share, Verdict, judge
from semtoken.guarantees.labels import PRODUCT


@dataclass(frozen=True)
class AuditLimits:
    """Limits that have to hold besides the guarantee. One is exceeded where the whole 95% interval lies beyond it:
    chance alone would else fail half of the audits of what is just at its limit.
    """

    distance: float | None = None
    """Largest distance of the scores from those of the fit, in [0, 1]; the lower end of its interval counts. None: no
    limit.
    """
    accepted: float = 0.0
    """Smallest share of answers that is accepted, in [0, 1]; the upper end of its interval counts. 0: no limit."""
    undecided: bool = True
    """True if a guarantee counts as one that holds where the labels cannot tell."""

    def accepts_too_few(self, accepted: Share) -> bool:
        """Return True if the share of accepted answers is shown to be below its limit; never without one."""
        return self.accepted > 0 and accepted.interval[1] < self.accepted


NO_LIMITS = AuditLimits()
NO_LABELS = "The guarantee was not tested: no answer has a label in the field 'correct'."
REPEATS_FIT = "The calibrator was fitted on some or all of these labels, so they show little: label other answers."


@dataclass(frozen=True)
class AnswersAudit:
    """The results of an audit of a calibrator of answers."""

    calibrator: Calibrator
    verdict: Verdict
    n_labeled: int
    n_accepted: int
    """The number of labeled answers that the threshold accepts; 0 without one."""
    seen: Share | None
    """The share that the guarantee bounds, as these labels have it; None without a guarantee or labels."""
    drift: Drift
    models: Mapping[str, int]
    """The number of answers of each model, as far as they name it."""
    other_groups: Mapping[str, int] = field(default_factory=dict)
    """The number of answers of each group that is not the calibrator's, which count nowhere else."""
    repeats_fit: bool = False
    """True if labeled answers are those that the calibrator was fitted on, for which its guarantee says nothing."""
    n_repeated: int = 0
    """The number of labeled answers that were left out, since others to the same questions count."""
    n_disputed: int = 0
    """The number of answers that are labeled both right and wrong, which count as wrong."""

    @property
    def is_measured(self) -> bool:
        """True if the answers could tell anything: labels of a guarantee, or scores enough for a distance."""
        return self.seen is not None or self.drift.n_recent >= FEWEST_RECENT

    def exceeded(self, limits: AuditLimits) -> list[str]:
        """The limits that are not kept, each as a sentence."""
        sentences = []
        if self.drift.is_beyond(limits.distance):
            sentences.append(f"That is further than the limit of {limits.distance}.")
        if limits.accepts_too_few(Share(self.n_accepted, self.n_labeled)):
            sentences.append(f"Accepted are fewer than the limit of {limits.accepted:g}.")
        return sentences

    def holds(self, limits: AuditLimits = NO_LIMITS) -> bool:
        """Return True if the guarantee and the limits hold, as far as the answers tell."""
        undecided = self.verdict == "cannot be told" and not limits.undecided
        return self.verdict != "does not hold" and not undecided and not self.exceeded(limits)

    @property
    def answer(self) -> str:
        """The verdict on the guarantee, as a sentence, or why there is none; empty where none was tested."""
        if self.seen is None:
            return "" if self.calibrator.guarantees else self.calibrator.guarantee
        return f"{self.verdict}: {self.calibrator.guarantee}"

    @property
    def models_sentence(self) -> str:
        """A sentence on the models that answered, if they are others than the calibrator's; else empty."""
        return models_sentence(self.calibrator.fingerprint.model, self.models, "answers")

    @property
    def groups_sentence(self) -> str:
        """A sentence on answers of other groups than the calibrator's; empty if there are none."""
        task = self.calibrator.fingerprint.task
        return _groups_sentence(task, self.other_groups) if self.other_groups and isinstance(task, Group) else ""

    def remarks(self) -> Iterator[str]:
        """The numbers behind the verdict, and how far the scores have moved, in sentences."""
        threshold, drift = self.calibrator.threshold, self.drift
        if threshold is not None and self.seen is not None:
            about = f"{threshold.claim.kind.among} {self.seen}."
            yield f"Accepted {self.n_accepted:,} of {self.n_labeled:,} labeled answers. {about}"
        elif self.calibrator.guarantees:
            yield NO_LABELS
        if self.n_repeated:
            are = "labels are left out: they are" if self.n_repeated > 1 else "label is left out: it is"
            yield f"{self.n_repeated:,} further {are} of answers to the same questions."
        if self.n_disputed:
            yield disputes_sentence(self.n_disputed)
        if self.repeats_fit:
            yield REPEATS_FIT
        yield from filter(None, (self.models_sentence, self.groups_sentence))
        yield (
            f"Distance {drift.distance:.3f} [{drift.low:.3f}, {drift.high:.3f}] between {drift.n_recent:,} recent "
            f"scores and the {drift.n_fitted:,} that the calibrator was fitted on, by "
            f"{self.calibrator.fingerprint.method or PRODUCT}."
        )
        if drift.n_recent < FEWEST_RECENT:
            yield f"That says nothing: it takes {FEWEST_RECENT} recent scores, of different questions."
        elif drift.low == 0:
            yield "The interval holds 0: no difference is shown."

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        counts = {"labels": self.n_labeled, "accepted": self.n_accepted, "verdict": self.verdict}
        against = {} if self.seen is None else {"wrong": self.seen.count, "judged": self.seen.of}
        of_models = {"models": dict(self.models), "models_sentence": self.models_sentence}
        of_groups = {"other_groups": dict(self.other_groups), "groups_sentence": self.groups_sentence}
        labels = {"repeats_fit": self.repeats_fit, "repeated": self.n_repeated, "disputed": self.n_disputed}
        return {**counts, **against, **labels, **of_models, **of_groups, **asdict(self.drift)}


def audit_answers(calibrator: Calibrator, answers: Sequence[AnswerRecord], level: float = LEVEL) -> AnswersAudit:
    """Test the guarantee of a calibrator by newer labeled answers, once, and compare their scores with those of the
    fit.

    One answer to each question counts, as in the fit: repeated ones are evidence that is not there. Answers of another
    group than the calibrator's are left out. `level` is the probability that a guarantee which holds is called broken.
    `InvalidInputError` if no answer is left.
    """
    answers, other_groups = _own(calibrator, answers)
    drift = calibrator.drift(one_of_each_question(answers))
    models = dict(Counter(answer.model for answer in answers if answer.model is not None).most_common())
    settled, n_disputed = without_disputes(answers)
    with_label = [answer for answer in settled if answer.correct is not None]
    labeled = one_of_each_question(with_label)
    about: dict[str, Any] = {"drift": drift, "models": models, "other_groups": other_groups}
    about["n_disputed"] = n_disputed
    about["n_repeated"] = len(with_label) - len(labeled)
    about["repeats_fit"] = bool(labeled) and calibrator.was_fitted_on(labeled)
    threshold = calibrator.threshold
    if threshold is None or not calibrator.guarantees:
        return AnswersAudit(calibrator, "nothing was guaranteed", len(labeled), 0, None, **about)
    if not labeled:
        return AnswersAudit(calibrator, "nothing was measured", 0, 0, None, **about)
    passed = threshold.accepts(labeled)
    seen = threshold.claim.kind.count(passed, [bool(answer.correct) for answer in labeled])
    [verdict] = judge([(threshold.claim, seen)], level)
    return AnswersAudit(calibrator, verdict, len(labeled), int(passed.sum()), seen, **about)


def _own(calibrator: Calibrator, answers: Sequence[AnswerRecord]) -> tuple[list[AnswerRecord], dict[str, int]]:
    """The answers that may be of the calibrator's group, and the number of those of each other group."""
    task = calibrator.fingerprint.task
    if not isinstance(task, Group):
        return list(answers), {}
    groups = [calibrator.fingerprint.group_of(answer.record) for answer in answers]
    own = [answer for answer, group in zip(answers, groups, strict=True) if group in (None, task)]
    others = dict(Counter(str(group) for group in groups if group not in (None, task)).most_common())
    if not own:
        raise InvalidInputError(f"There is nothing to audit. {_groups_sentence(task, others)}")
    return own, others


def _groups_sentence(task: Group, others: Mapping[str, int]) -> str:
    n = sum(others.values())
    left_out = "answer is left out: it is" if n == 1 else "answers are left out: they are"
    theirs = "calibrator of that group" if len(others) == 1 else "calibrators of those groups"
    return f"{n:,} {left_out} of {task.unlike(others)}. Use the {theirs}."
