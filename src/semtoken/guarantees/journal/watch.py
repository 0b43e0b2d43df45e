"""The watch over a guarantee: is it kept now, by a journal's labels, and how far have scores moved since the fit?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from semtoken.errors import SemtokenError
from semtoken.guarantees.answer_records import AnswerRecord
from semtoken.guarantees.auditing import NO_LIMITS, AuditLimits
from semtoken.guarantees.betting import LEVEL
from semtoken.guarantees.calibrator import Calibrator
from semtoken.guarantees.drift import FEWEST_RECENT, Drift
from semtoken.guarantees.fingerprint import models_sentence
from semtoken.guarantees.journal.database import entries
from semtoken.guarantees.journal.entries import answer_of
from semtoken.guarantees.journal.labels import labeled_sample, open_before
from semtoken.guarantees.journal.store import InUse, Journal, Row
from semtoken.guarantees.judge import Claim, watched

State: TypeAlias = Literal["kept", "unknown", "broken", "no_guarantee"]
RECENT_SCORES = 2_000
"""The number of newest answers whose scores are compared with those of the labeled ones."""


@dataclass(frozen=True)
class GuaranteeReport:
    """The judgment whether the calibrator in use keeps its guarantee, from the labels so far."""

    state: State
    """`unknown`: the labels do not tell yet; `no_guarantee`: there is no calibrator, or it guarantees nothing."""
    sentence: str
    """The state in words, with its numbers, for people."""
    calibrator: str | None = None
    """SHA-256 of the calibrator's file; None where there is no calibrator."""
    alpha: float | None = None
    """The share that is guaranteed not to be exceeded; None where nothing is guaranteed."""
    level: float = LEVEL
    """The largest probability that a kept guarantee is ever called broken."""
    n: int = 0
    """Labeled answers that the guarantee is about."""
    wrong: int = 0
    """The number of them that count against the guarantee."""
    low: float = 0.0
    """Lower bound on the share, averaged over these answers, valid however often one looks."""
    high: float = 1.0
    """Upper bound on the share, as valid."""
    broken_since: float | None = None
    """When the first answer after the change was given, in seconds since 1970; None where nothing is broken."""
    order: Literal["draw", "labels"] = "labels"
    """In which order the labels count: that of the answers, as the random draw took them, or that of first labels."""
    without_label: int = 0
    """Answers of the sample before the last labeled one that have no label; with 0 the order is that of the draw."""
    undecided: int = 0
    """Answers that nobody could tell right from wrong, though people tried."""
    moved: Drift | None = None
    """The distance of the newest scores from those of the labeled answers."""
    moved_sentence: str = ""
    """The meaning of that in words; "" if it means nothing."""
    models: Mapping[str, int] = field(default_factory=dict)
    """The number of answers of each model, by its name in replies, of the newest since the calibrator came into use."""
    models_sentence: str = ""
    """A sentence on models that should not be among them; "" if all are right."""

    def remarks(self) -> list[str]:
        """Sentences on labels that say nothing, on models that should not be among the answers, and on scores that have
        moved.
        """
        undecided = f"Of {self.undecided} further answers people said that they cannot tell." if self.undecided else ""
        return list(filter(None, (undecided, self.models_sentence, self.moved_sentence)))

    def holds(self, limits: AuditLimits = NO_LIMITS) -> bool:
        """True if the guarantee holds, as far as the labels tell, and the scores have not moved beyond a limit; a limit
        of the accepted share has no effect.
        """
        too_far = self.moved is not None and self.moved.is_beyond(limits.distance)
        return self.state != "broken" and (limits.undecided or self.state != "unknown") and not too_far

    def is_measured(self, limits: AuditLimits = NO_LIMITS) -> bool:
        """Return True if there was anything to go by: labels, or scores whose distance is limited."""
        return self.n > 0 or (self.moved is not None and limits.distance is not None)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


def watch(journal: Journal, *, level: float = LEVEL) -> GuaranteeReport:
    """Test whether the calibrator that came into use last keeps its guarantee.

    Only labels of the random sample count, and only of answers that this calibrator decided. They count in the order of
    the answers, which the random draw gives, where every answer up to the last labeled one has a label; else in the
    order of their first labels. In either order a guarantee is called broken with a probability of at most `level`, in
    (0, 1), over all looks if no answer, given those before, is wrong with a probability above alpha. That is more than
    the guarantee, which limits the average. In the order of labels it also takes that when a label comes does not
    depend on what it says.
    """
    used = journal.in_use()
    if not used:
        return GuaranteeReport(
            "no_guarantee", "No calibrator has decided anything in this journal: nothing is guaranteed."
        )
    newest = used[0]
    about: dict[str, Any] = {"calibrator": newest.checksum, **_moved(journal, newest), **_models(journal, used)}
    threshold = newest.calibrator.threshold
    if threshold is None or threshold.min_log_score is None:
        return GuaranteeReport("no_guarantee", "The calibrator that decides guarantees nothing.", level=level, **about)
    labeled = labeled_sample(journal, newest.checksum, columns=("decision",))
    last = max((entry.row["n"] for entry in labeled), default=0)
    missing = open_before(journal, newest.checksum, last, accepted=threshold.guarantee == "selective_risk")
    # With every label in place the order is that of the random draw, in which nobody's choice of what to label counts.
    if not missing:
        labeled = sorted(labeled, key=lambda entry: int(entry.row["n"]))
    judged = [entry for entry in labeled if entry.correct is not None]
    about_it, against = threshold.claim.kind.counted(
        [entry.row["decision"] == "answer" for entry in judged], [bool(entry.correct) for entry in judged]
    )
    times = [float(entry.row["at"]) for entry, counts in zip(judged, about_it, strict=True) if counts]
    report = guarantee_report(against[about_it].tolist(), times, threshold.claim, level, without_label=missing)
    order: Literal["draw", "labels"] = "labels" if missing else "draw"
    return replace(report, order=order, undecided=len(labeled) - len(judged), **about)


def guarantee_report(
    bad: Sequence[bool], times: Sequence[float], claim: Claim, level: float = LEVEL, *, without_label: int = 0
) -> GuaranteeReport:
    """Test from labels alone whether a guarantee is kept (`judge.watched`).

    `bad` says of each answer that the guarantee is about, in the order of the labels, whether it counts against it, and
    `times` when it was answered, in seconds since 1970. `level` is as in `watch`; `without_label` is the number of
    older answers that have no label.
    """
    looked, n = watched(claim, bad, level), len(bad)
    low, high = looked.bounds
    figures = (
        f"{looked.seen.count} of {n} {claim.kind.answers} {claim.kind.limited} (between {percent(low)} and "
        f"{percent(high)}); guaranteed: at most {percent(claim.alpha)}."
    )
    since = None if looked.change is None else times[looked.change.since]
    if since is not None:
        sentence = f"Broken since about {day(since)}: take the threshold back. {figures}"
        if without_label:
            sentence += (
                f" This takes that wrong answers are not labeled sooner than right ones: {without_label} older answers "
                "of the sample have no label. Label them, and the order of the answers decides."
            )
    elif looked.state == "kept":
        sentence = f"Kept so far: {figures}"
    elif n:
        sentence = f"Too few labels to tell ({n}). {figures}"
    else:
        sentence = f"Too few labels to tell (0). Guaranteed: at most {percent(claim.alpha)}."
    return GuaranteeReport(
        looked.state,
        sentence,
        alpha=claim.alpha,
        level=level,
        n=n,
        wrong=looked.seen.count,
        low=low,
        high=high,
        broken_since=since,
        without_label=without_label,
    )


def _models(journal: Journal, in_use: Sequence[InUse]) -> dict[str, Any]:
    """Fields of a report: which models gave the answers that the calibrator which came into use last was to decide."""
    used, *former = in_use
    count, column, n = sa.func.count(), entries.c.model, entries.c.n
    own = entries.c.calibrator == used.checksum
    by_former = entries.c.calibrator.in_([one.checksum for one in former])
    last = sa.select(sa.func.coalesce(sa.func.max(n), 0)).where(by_former).scalar_subquery()
    first = sa.select(sa.func.min(n)).where(own, n > last).scalar_subquery()
    # Also from its first decision on, since a clock that was set back puts what follows before its coming into use.
    begun = sa.or_(entries.c.at >= used.since, n >= first)
    scored = (begun, entries.c.unscored.is_(None), sa.or_(own, entries.c.calibrator.is_(None)))
    newest = sa.select(column).where(column.is_not(None), *scored).order_by(entries.c.n.desc()).limit(RECENT_SCORES)
    names = newest.subquery().c.model
    query = sa.select(names, count).group_by(names).order_by(count.desc(), names)
    models = {str(name): int(answers) for name, answers in journal.read(query)}
    sentence = models_sentence(used.calibrator.fingerprint.model, models, "newest answers")
    return {"models": models, "models_sentence": sentence}


def _moved(journal: Journal, used: InUse) -> dict[str, Any]:
    """Fields of a report: how far the newest scores are from those that the calibrator was fitted on."""
    scored = (entries.c.calibrator == used.checksum, entries.c.unscored.is_(None))
    rows = list(journal.entries(*scored, newest_first=True, limit=RECENT_SCORES))
    if not rows:
        return {"moved_sentence": "No answer has been decided by it yet."}
    rows = _one_of_each_question(rows)
    if len(rows) < FEWEST_RECENT:
        too_few = (
            f"The newest answers are to {len(rows)} different questions: too few to tell whether scores have moved."
        )
        return {"moved_sentence": too_few}
    answers, calibrator = [answer_of(row) for row in rows], used.calibrator
    moved, sentence = _compared(calibrator, answers)
    return {"moved": moved, "moved_sentence": sentence}


def _one_of_each_question(rows: Sequence[Row]) -> list[Row]:
    """The first answer to each prompt, as calibrators are fitted: repeated ones are evidence that is not there."""
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(row["n"] if row["prompt"] is None else row["prompt"], row)
    return list(first.values())


def _compared(calibrator: Calibrator, answers: Sequence[AnswerRecord]) -> tuple[Drift | None, str]:
    """The distance of scores from those of the fit, or None if they cannot be compared, and a sentence about it."""
    try:
        moved = calibrator.drift(answers)
    except SemtokenError as error:
        return None, f"The scores cannot be compared: {error}"
    between = f"{moved.distance:.2f} (95% interval {moved.low:.2f} to {moved.high:.2f})"
    finding = (
        f"The newest scores, of {moved.n_recent:,} different questions, are at a distance of {between} from the "
        f"{moved.n_fitted:,} labeled ones"
    )
    if moved.low == 0:
        return moved, f"{finding}: no difference is shown."
    return moved, f"{finding}: questions or model have changed. Labels tell what that does to the guarantee."


def percent(share: float) -> str:
    """A share as percent."""
    return f"{100 * share:.1f}%".replace(".0%", "%")


def day(seconds: float) -> str:
    """A day as text in UTC, from seconds since 1970."""
    date = datetime.fromtimestamp(seconds, UTC)
    return f"{date.day} {date:%B %Y}"
