"""People's labels: which answer a person is asked about next, what they said, how far they agree."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import sqlalchemy as sa

from semtoken.errors import LABEL_ON_PAGE, InvalidInputError, SemtokenError
from semtoken.guarantees.answer_records import AnswerRecord
from semtoken.guarantees.journal.database import entries, labels
from semtoken.guarantees.journal.entries import answer_of, verdict
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.measures import wilson
from semtoken.support.inputs import shown, text, whole

QueueName: TypeAlias = Literal["sample", "doubtful", "disagreement"]
"""`sample`: the random sample, which alone tells whether a guarantee is kept; `doubtful`: the least sure of the last
answers; `disagreement`: those of the last answers on which models disagree, or the last two calibrators."""
RECENT = 2_000
"""The number of newest entries that are searched for doubtful answers and disagreements."""
MOST_IN_QUEUE = 200
"""Most answers that a queue of doubtful answers or of disagreements gives at one time."""
OLDEST = 100
"""A person's next answers of the sample are among so many of the oldest that are open. With more, labels would come
too much out of order to tell when a guarantee was broken.
"""
MOST_UNLABELED = 5_000
"""Most unlabeled answers that help to place a threshold: the newest ones."""


@dataclass(frozen=True)
class LabelAgreement:
    """The agreement of people who labeled the same answers."""

    twice: int
    """Answers that two people or more labeled right or wrong."""
    disagreed: int

    @property
    def sentence(self) -> str:
        """The agreement as a sentence, with what disagreement does to the guarantee."""
        if not self.twice:
            return "No answer has labels of two people yet, so nobody knows how far they agree."
        low, high = wilson(self.disagreed, self.twice)
        sentence = (
            f"People disagree on {self.disagreed} of {self.twice} answers that two of them labeled "
            f"({100 * self.disagreed / self.twice:.0f}%; 95% interval {100 * low:.0f} to {100 * high:.0f}%)."
        )
        if not self.disagreed:
            return sentence
        return (
            f"{sentence} Such an answer counts as wrong. A guarantee stays on the safe side by that, but fewer answers "
            "can be accepted: with 5% of wrong labels a guarantee of 10% accepts as if it were one of 6%, and with 10% "
            "it accepts none. Agree on what is right before you label more."
        )


def add_label(journal: Journal, entry: str, reviewer: str, correct: bool | None) -> None:
    """Store the label that a reviewer gave to an answer of a journal; `correct` None: the person cannot tell.

    `entry` is the answer's id there, `reviewer` the name of the person. The label replaces an earlier one by the same
    person, in the order of first labels, too: `watch` would else take answers that are looked at again for new ones.
    `InvalidInputError` if there is no such entry, the label is none, or the name cannot be used.
    """
    name = checked_name(reviewer)
    if correct is not None and correct not in (True, False):
        raise InvalidInputError(f"A label is True, False or None, got {shown(correct)}.")
    with journal.writing() as connection:
        n = connection.execute(sa.select(entries.c.n).where(entries.c.id == entry)).scalar()
        if n is None:
            raise InvalidInputError("There is no such answer in the journal; perhaps it was deleted.")
        last = connection.execute(sa.select(sa.func.max(labels.c.at)).where(labels.c.reviewer == name)).scalar()
        # Behind the person's last one, which `undo` takes back, also where the clock was set back.
        said = {"correct": None if correct is None else bool(correct), "at": max(time.time(), (last or 0.0) + 1e-6)}
        again = sa.update(labels).where(labels.c.entry == n, labels.c.reviewer == name).values(said)
        if connection.execute(again).rowcount == 0:
            connection.execute(sa.insert(labels).values(entry=n, reviewer=name, **said))


def undo(journal: Journal, reviewer: str) -> str | None:
    """Delete the last label of a person; returns the identifier of its entry, or None if there is no label."""
    last = sa.select(labels.c.n, entries.c.id).join(entries, entries.c.n == labels.c.entry)
    newest = labels.c.at.desc(), labels.c.n.desc()
    last = last.where(labels.c.reviewer == checked_name(reviewer)).order_by(*newest).limit(1)
    with journal.writing() as connection:
        label = connection.execute(last).first()
        if label is None:
            return None
        connection.execute(sa.delete(labels).where(labels.c.n == label.n))
        return str(label.id)


def checked_name(reviewer: str) -> str:
    """The name of a person who labels, in single blanks; `InvalidInputError` if it is empty, long, or cannot be
    printed.
    """
    name = " ".join(text(reviewer, "reviewer").split())
    if not 0 < len(name) <= 100 or not name.isprintable():
        raise InvalidInputError("Say who labels: a name of up to 100 characters, none of them invisible.")
    return name


def queue(journal: Journal, reviewer: str, name: QueueName = "sample", *, limit: int = 20) -> list[dict[str, Any]]:
    """Answers for a person to label next: with texts, and not labeled by that person yet.

    Of the random sample each answer is for one person, and a fifth of it, fixed beforehand, for two. Everybody has an
    order of their own in it, so that people who label at the same time seldom meet at the same answer. Doubtful answers
    and disagreements are never of the random sample, so that their labels cannot enter a guarantee. `InvalidInputError`
    if there is no such queue, the limit is no whole number from 0, or the reviewer's name cannot be used.
    """
    whole(limit, "limit", low=0)
    if name not in get_args(QueueName):
        raise InvalidInputError(f"There is no queue {name!r}; there are {', '.join(get_args(QueueName))}.")
    person = checked_name(reviewer)
    said = sa.select(labels.c.n).where(labels.c.entry == entries.c.n)
    open_to_me = [entries.c.answer.is_not(None), ~said.where(labels.c.reviewer == person).exists()]
    if name == "sample":
        others = sa.select(sa.func.count()).where(labels.c.entry == entries.c.n).scalar_subquery()
        wanted = sa.or_(others == 0, sa.and_(entries.c.seen_twice, others < 2))
        oldest = journal.entries(entries.c.sampled, *open_to_me, wanted, limit=OLDEST)
        return sorted(oldest, key=lambda row: _turn(person, row["id"]))[:limit]
    newest = journal.newest()
    # Answers that were chosen for their doubt are no fair sample, so none of them may be of the random one.
    recent = [entries.c.n > newest - RECENT, ~entries.c.sampled, *open_to_me, ~said.exists()]
    if name == "disagreement":
        recent.append(entries.c.n.in_(_disagreements(journal, newest - RECENT)))
    rows = sorted(journal.entries(*recent), key=_doubt)
    return rows[: min(limit, MOST_IN_QUEUE)]


def _turn(person: str, entry: str) -> bytes:
    """The place of an answer in a person's order."""
    return hashlib.blake2b(f"{person}:{entry}".encode(), digest_size=8).digest()


def _doubt(row: Mapping[str, Any]) -> tuple[float, int]:
    """The least sure first: by the probability, or else the confidence."""
    sure = row["probability_correct"] if row["probability_correct"] is not None else row["confidence"]
    return (-1.0 if sure is None else sure, row["n"])


def _disagreements(journal: Journal, after: int) -> list[int]:
    """Recent entries that the calibrator before the newest would have decided otherwise, or another model did."""
    used = journal.in_use()[:2]
    rows = list(journal.entries(entries.c.n > after, entries.c.decision.is_not(None)))
    numbers: set[int] = set()
    if len(used) == 2 and used[1].calibrator.threshold is not None:
        decided = [row for row in rows if row["calibrator"] == used[0].checksum]
        with suppress(SemtokenError):  # the two read different scores, so nobody can tell
            before = used[1].calibrator.threshold.accepts([answer_of(row) for row in decided])
            pairs = zip(decided, before, strict=True)
            numbers |= {row["n"] for row, accepted in pairs if accepted != (row["decision"] == "answer")}
    by_prompt: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["prompt"] is not None:
            by_prompt[row["prompt"]].append(row)
    for same in by_prompt.values():
        if len({row["model"] for row in same}) > 1 and len({row["decision"] for row in same}) > 1:
            numbers |= {row["n"] for row in same}
    return sorted(numbers)


def labels_of(journal: Journal, first: int, last: int) -> dict[int, dict[str, bool | None]]:
    """The labels of the entries numbered from first to last, by entry and reviewer."""
    query = sa.select(labels.c.entry, labels.c.reviewer, labels.c.correct)
    query = query.where(labels.c.entry.between(first, last)).order_by(labels.c.n)
    by_entry: dict[int, dict[str, bool | None]] = defaultdict(dict)
    for entry, reviewer, correct in journal.read(query):
        by_entry[entry][reviewer] = correct
    return by_entry


@dataclass(frozen=True)
class LabeledEntry:
    """An answer of the random sample, with the labels that people gave it."""

    row: Mapping[str, Any]
    given: dict[str, bool | None]
    """Labels by reviewer."""

    @property
    def correct(self) -> bool | None:
        """The label that counts: False if anybody says so, None if nobody could tell."""
        return verdict(self.given.values())


def labeled_sample(journal: Journal, calibrator: str | None = None, columns: Sequence[str] = ()) -> list[LabeledEntry]:
    """The labeled answers of the random sample, of one calibrator or of all, in the order of their first labels.

    `columns` are those of the entries to read besides `n` and `at`; all if none is named.
    """
    wanted = [entries.c[name] for name in ("n", "at", *columns)] if columns else [entries]
    query = sa.select(*wanted, labels.c.reviewer.label("by"), labels.c.correct.label("said"))
    query = query.join(labels, labels.c.entry == entries.c.n).where(entries.c.sampled).order_by(labels.c.n)
    if calibrator is not None:  # `+ ""`: else SQLite begins with all entries that it decided, which may be millions
        query = query.where(entries.c.calibrator + "" == calibrator)
    by_number: dict[int, LabeledEntry] = {}
    for row in journal.read(query):
        entry = by_number.setdefault(row.n, LabeledEntry(row._mapping, {}))
        entry.given[row.by] = row.said
    return list(by_number.values())


def open_before(journal: Journal, calibrator: str, last: int, *, accepted: bool) -> int:
    """The number of decided, or `accepted`, answers of the random sample before entry `last` that nobody labeled."""
    seen = sa.exists().where(labels.c.entry == entries.c.n)
    query = sa.select(sa.func.count()).select_from(entries).where(entries.c.sampled, entries.c.n < last, ~seen)
    query = query.where(entries.c.calibrator + "" == calibrator)
    if accepted:
        query = query.where(entries.c.decision == "answer")
    [(n,)] = journal.read(query)
    return int(n)


def sampled_answers(journal: Journal) -> list[AnswerRecord]:
    """The labeled answers of the random sample, and its newest unlabeled ones, by which thresholds are placed.

    Only answers that were scored like the one labeled last count: those before a change of preset, of engine or of
    how many log-probabilities were asked for have scores of another kind. `InvalidInputError` if nothing has a label.
    """
    labeled = [entry for entry in labeled_sample(journal) if entry.correct is not None]
    if not labeled:
        raise InvalidInputError(f"The random sample of this journal has no labels yet. {LABEL_ON_PAGE}")
    kind = ("signature", "distribution", "method", "k")
    newest = labeled[-1].row
    alike = [entry for entry in labeled if all(entry.row[name] == newest[name] for name in kind)]
    known = {entry.row["n"] for entry in labeled}
    same = [entries.c[name].is_not_distinct_from(newest[name]) for name in kind]
    newest_first = journal.entries(
        entries.c.sampled, entries.c.unscored.is_(None), *same, newest_first=True, limit=MOST_UNLABELED
    )
    rest = [answer_of(row) for row in newest_first if row["n"] not in known]
    return [answer_of(entry.row, entry.given) for entry in alike] + rest


def agreement(journal: Journal) -> LabelAgreement:
    """Compute how often people agree, over all answers that two or more have labeled."""
    as_number = sa.case((labels.c.correct, 1), else_=0)
    each = sa.select(sa.func.min(as_number).label("low"), sa.func.max(as_number).label("high"))
    each = each.where(labels.c.correct.is_not(None)).group_by(labels.c.entry).having(sa.func.count() > 1)
    both = each.subquery()
    query = sa.select(
        sa.func.count(), sa.func.coalesce(sa.func.sum(sa.case((both.c.low != both.c.high, 1), else_=0)), 0)
    )
    [(twice, disagreed)] = journal.read(query.select_from(both))
    return LabelAgreement(int(twice), int(disagreed))
