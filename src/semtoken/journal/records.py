"""Entries as plain records, under the names that files of scored answers have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from semtoken.calibration.labels import AnswerRecord, answer_record

Record = dict[str, Any]


def verdict(given: Iterable[bool | None]) -> bool | None:
    """What labels of several people say together: false where anybody says so; None where nobody can tell."""
    told = [one for one in given if one is not None]
    return all(told) if told else None


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
    left_out = ("n", "numbers", "headline", "log_score", "log_score_low", "log_score_high")
    found: Record = {"id": row["id"], "at": when(row["at"])}
    found |= {name: value for name, value in row.items() if name not in left_out and name not in found}
    found |= {"headline_name": row["headline"], "log_score": row["log_score"]}
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


def answer_of(row: Mapping[str, Any], given: Mapping[str, bool | None] | None = None) -> AnswerRecord:
    """One entry as what calibrators take for a scored answer."""
    return answer_record(f"entry {row['n']}", record_of(row, given or {}))
