"""Entries as plain records, under the names that files of scored answers have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from semtoken.calibration.labels import AnswerRecord, answer_record

Record = dict[str, Any]


def verdict(given: Iterable[bool | None]) -> bool | None:
    """The verdict of several people's labels: False if anybody says so, None if nobody can tell."""
    told = [one for one in given if one is not None]
    return all(told) if told else None


def record_of(row: Mapping[str, Any], given: Mapping[str, bool | None]) -> Record:
    """Convert a row of the journal to a record with the field names of files; empty fields are left out.

    Parameters
    ----------
    row
        A row as `Journal.entries` returns it.
    given
        The labels of the entry, by reviewer.
    """
    found: Record = {"id": row["id"], "at": when(row["at"])}
    for name, value in row.items():
        if value is not None and value != [] and name not in _ELSEWHERE:
            found[name] = value
    if row["unscored"] is None:
        found["log_score"] = row["log_score"]  # null here means minus infinity: a blank answer
    if row["headline"] is not None:
        found["headline_name"] = row["headline"]
    if row["method"] == "top-k":
        found["log_score_bounds"] = [row["log_score_low"], row["log_score_high"]]
    for name, (value, low, high) in (row["numbers"] or {}).items():
        if value is not None:
            found[score_name(name)] = value
        if low is not None or high is not None:
            found[bounds_name(name)] = [low, high]
    if given:
        found["correct"] = verdict(given.values())
        found["labels"] = [{"reviewer": name, "correct": correct} for name, correct in given.items()]
    return found


_ELSEWHERE = frozenset(("n", "id", "at", "numbers", "headline", "log_score", "log_score_low", "log_score_high"))
"""Columns that a record has under another name, or in another form."""


def score_name(name: str) -> str:
    """The name of the field that holds a further score."""
    return f"score_{name}"


def bounds_name(name: str) -> str:
    """The name of the field that holds the bounds of a further score."""
    return f"score_bounds_{name}"


def when(seconds: float) -> str:
    """A time as text in UTC, from seconds since 1970."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def answer_of(row: Mapping[str, Any], given: Mapping[str, bool | None] | None = None) -> AnswerRecord:
    """Convert a row of the journal to the form in which calibrators take answers."""
    return answer_record(f"entry {row['n']}", record_of(row, given or {}))
