"""All entries of a journal with their labels, for files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from semtoken.journal.labels import labels_of
from semtoken.journal.records import Record, record_of
from semtoken.journal.store import AT_ONCE, Journal


def records(journal: Journal, *conditions: Any) -> Iterator[Record]:
    """Entries with their labels, in the order in which they were written; a few thousand in memory at one time.

    A record has the table's columns that hold something, `at` as text, further scores as `score_NAME` with their
    bounds as `score_bounds_NAME`, `log_score_bounds` where only the best tokens were known, `labels` of people, and
    `correct`, which is false where anybody said so. `semtoken calibrate` and `semtoken label` read such records.
    """
    some: list[Record] = []
    for row in journal.entries(*conditions):
        some.append(row)
        if len(some) == AT_ONCE:
            yield from _with_labels(journal, some)
            some = []
    yield from _with_labels(journal, some)


def _with_labels(journal: Journal, rows: list[Record]) -> Iterator[Record]:
    if not rows:
        return
    given = labels_of(journal, rows[0]["n"], rows[-1]["n"])
    for row in rows:
        yield record_of(row, given.get(row["n"], {}))
