"""All entries of a journal with their labels, for files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from semtoken.errors import InvalidInputError
from semtoken.guarantees.journal.database import UtcTime, entries, labels
from semtoken.guarantees.journal.entries import Record, record_of
from semtoken.guarantees.journal.labels import labels_of
from semtoken.guarantees.journal.store import Journal
from semtoken.support.extras import require
from semtoken.support.files.record_files import PARQUET, STANDARD, format_of, read_rows, write_records, write_table
from semtoken.support.text import with_noun

AS_TEXT = ("numbers", "flags", "doubts")
"""Columns of JSON, fetched as text: parsing them here takes a third of the time that SQLAlchemy takes."""
_decoded = json.JSONDecoder().raw_decode
WANTED = [
    sa.cast(column, sa.Text).label(column.name) if column.name in AS_TEXT else column for column in entries.columns
]
NAMES = [column.name for column in entries.columns]


def export(journal: Journal, target: Path, *, labeled: bool = False) -> int:
    """Write entries into a .jsonl, .parquet or .csv file, or to standard output ("-"), the oldest first.

    With `labeled` only those of the random sample that somebody called right or wrong. Returns the number of entries.
    """
    exported = 0
    conditions = _conditions(labeled=labeled)

    def counted(found: Iterator[Record]) -> Iterator[Record]:
        nonlocal exported
        for record in found:
            exported += 1
            yield record

    if str(target) == STANDARD or format_of(target) != PARQUET:
        write_records(target, counted(records(journal, *conditions)))
        return exported
    newest = journal.newest()
    there = (entries.c.n <= newest, *conditions)  # what comes while this runs may have other scores
    write_table(target, counted(records(journal, *there)), schema(journal, *there))
    return exported


def _conditions(*, labeled: bool) -> list[Any]:
    """The conditions on entries that are exported."""
    if not labeled:
        return []
    of_entry = sa.select(labels.c.n).where(labels.c.entry == entries.c.n, labels.c.correct.is_not(None))
    return [entries.c.sampled, of_entry.exists()]


def check_nothing_lost(journal: Journal, target: Path, *, labeled: bool = False) -> None:
    """Refuse (`InvalidInputError`) to replace a file that holds entries which the same `export` would not write.

    They may be nowhere else: the journal has deleted them, or the file is of another one.
    """
    if str(target) == STANDARD or not target.is_file():
        return
    there = [str(fields.get("id")) for _, _, fields in read_rows(target, only=["id"])]
    pages = journal.pages([entries.c.n, entries.c.id], *_conditions(labeled=labeled)) if there else ()
    lost = set(there).difference(row.id for page in pages for row in page)
    if lost:
        raise InvalidInputError(
            f"{target} holds {with_noun(len(lost), 'entry')} that this export would not, such as {min(lost)}. Choose "
            "another output, or replace it with --force."
        )


def records(journal: Journal, *conditions: Any) -> Iterator[Record]:
    """Entries with their labels, in the order in which they were written; a few thousand in memory at one time.

    A record has the table's columns that hold something, `at` as text, further scores as `score_NAME` with their
    bounds as `score_bounds_NAME`, `log_confidence_interval` where only the best tokens were known, `labels` of people,
    and in the random sample `correct`, which is false where anybody said so. `semtoken calibrate` and `semtoken label`
    read such records.
    """
    for page in journal.pages(WANTED, *conditions):
        given = labels_of(journal, page[0].n, page[-1].n)
        for values in page:
            row = dict(zip(NAMES, values, strict=True))
            for name in AS_TEXT:
                row[name] = _decoded(row[name] or "null")[0]
            yield record_of(row, given.get(row["n"], {}))


def schema(journal: Journal, *conditions: Any) -> Any:
    """The `pyarrow.Schema` of what `records` gives, with fields for every further score that one of the entries has."""
    pyarrow = require("pyarrow", extra="frames")
    double, text = pyarrow.float64(), pyarrow.string()
    left_out = ("n", "at", "log_confidence_lower", "log_confidence_upper", *AS_TEXT)
    fields = {"id": text, "at": text}
    fields |= {column.name: _arrow(pyarrow, column.type) for column in entries.c if column.name not in left_out}
    bounds = pyarrow.list_(double)
    fields |= {"log_confidence_interval": bounds, "flags": pyarrow.list_(text)}
    place = {"start": pyarrow.int64(), "end": pyarrow.int64(), "confidence": double, "text": text}
    fields["doubts"] = pyarrow.list_(pyarrow.struct(list(place.items())))
    for name in _further_scores(journal, *conditions):
        fields |= {f"score_{name}": double, f"score_bounds_{name}": bounds}
    fields["correct"] = pyarrow.bool_()
    fields["labels"] = pyarrow.list_(pyarrow.struct([("reviewer", text), ("correct", pyarrow.bool_())]))
    return pyarrow.schema(list(fields.items()))


def _arrow(pyarrow: Any, kind: Any) -> Any:
    kinds = ((sa.Boolean, pyarrow.bool_()), (sa.Integer, pyarrow.int64()), (sa.Double, pyarrow.float64()))
    assert not isinstance(kind, UtcTime | sa.JSON)
    return next((arrow for sql, arrow in kinds if isinstance(kind, sql)), pyarrow.string())


def _further_scores(journal: Journal, *conditions: Any) -> list[str]:
    names: dict[str, None] = {}
    for page in journal.pages([entries.c.n, sa.cast(entries.c.numbers, sa.Text).label("numbers_text")], *conditions):
        for row in page:
            names |= dict.fromkeys(_decoded(row.numbers_text or "null")[0] or ())
    return list(names)
