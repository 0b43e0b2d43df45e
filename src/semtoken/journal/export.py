"""Entries as records for files, and as labelled answers for calibrators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from semtoken.journal.labels import labels_of, verdict
from semtoken.journal.store import AT_ONCE, Journal

Record = dict[str, Any]


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


def record_of(row: Mapping[str, Any], given: Mapping[str, bool | None]) -> Record:
    """One entry as a record.

    Parameters
    ----------
    row
        As `Journal.entries` gives it.
    given
        Its labels by reviewer.
    """
    numbers: Mapping[str, Any] = row["numbers"] or {}
    left_out = ("n", "numbers", "log_score", "log_score_low", "log_score_high")
    found: Record = {"id": row["id"], "at": when(row["at"])}
    found |= {name: value for name, value in row.items() if name not in left_out and name not in found}
    found["log_score"] = row["log_score"]
    if row["method"] == "top-k":
        found["log_score_bounds"] = [row["log_score_low"], row["log_score_high"]]
    for name, (value, *bounds) in numbers.items():
        found[f"score_{name}"] = value
        if bounds != [None, None]:
            found[f"score_bounds_{name}"] = bounds
    found["correct"] = verdict(given.values())
    found["labels"] = [{"reviewer": name, "correct": correct} for name, correct in given.items()]
    return {name: None if value in ([], {}, ()) else value for name, value in found.items()}


def when(seconds: float) -> str:
    """A time for people and programs, in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
