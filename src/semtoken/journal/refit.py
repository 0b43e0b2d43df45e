"""The answers of a journal that a calibrator may be fitted on."""

from __future__ import annotations

from semtoken.calibration.labels import AnswerRecord
from semtoken.errors import InvalidInput
from semtoken.journal.labels import labelled_sample
from semtoken.journal.records import answer_of
from semtoken.journal.store import Journal
from semtoken.journal.tables import entries

MOST_UNLABELLED = 5_000


def sampled_answers(journal: Journal) -> list[AnswerRecord]:
    """The labelled answers of the random sample, and the newest of it without labels, which place thresholds.

    Only answers that were scored like the newest labelled one count: those before a change of preset, of engine or of
    how many log-probabilities were asked for have scores of another kind.

    Raises
    ------
    InvalidInput
        The sample has no labels.
    """
    labelled = [one for one in labelled_sample(journal) if one.correct is not None]
    if not labelled:
        raise InvalidInput(
            "The random sample of this journal has no labels yet. Label answers in the Review view of the page, which "
            "`serve` and `proxy` show with --journal."
        )
    kind = ("signature", "distribution", "method", "k")
    newest = labelled[-1].row
    alike = [one for one in labelled if all(one.row[name] == newest[name] for name in kind)]
    known = {one.row["n"] for one in labelled}
    same = [entries.c[name].is_not_distinct_from(newest[name]) for name in kind]
    newest_first = journal.entries(
        entries.c.sampled, entries.c.unscored.is_(None), *same, newest_first=True, limit=MOST_UNLABELLED
    )
    rest = [answer_of(row) for row in newest_first if row["n"] not in known]
    return [answer_of(one.row, one.given) for one in alike] + rest
