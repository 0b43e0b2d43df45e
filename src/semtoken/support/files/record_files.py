"""Files of answers, one record each: JSON lines, CSV and Parquet, with the same names of fields everywhere.

`ask`, `score`, `label`, `compare`, `bench` and `judge` read and write these names, so that what one command writes the
next one reads. A field that a command does not know is carried through.

    id                  names the answer or question (text or whole number)
    question            a bare question; the command puts it into the form that the model knows
    prompt              the very text to continue, or
    messages            a chat: a list of objects with role and content
    answers             what counts as correct: a list of texts
    response            what the model answered, or what is to be scored (text, or a list of token ids)
    correct             the verdict on the response: 1, 0 or nothing
    uncertainty, ...    the scores of `ScoredAnswer.to_dict`
    tokens              scores of every token
    line, error         a line of the input that could not be used, and why

CSV knows texts only, so a cell is read by the name of its column: scores are numbers, `answers`, `messages` and
`tokens` are JSON, everything else is text; an empty cell is null, as if the field were not there. A text that a
spreadsheet would take for a formula is written with an apostrophe before it, which is taken away on reading.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Any, TypeVar

from semtoken.errors import InvalidInputError
from semtoken.support.extras import require
from semtoken.support.files.safe_files import LONGEST_LINE, bounded_lines, ending_of, reading_errors, replacing_file
from semtoken.support.files.strict_json import dump_json, parse_json, read_json_lines
from semtoken.support.files.texts import encoding_of
from semtoken.support.inputs import first_repeated

Fields = TypeVar("Fields", bound=Mapping[str, Any])

STANDARD = "-"
"""Stands for standard input or output, as JSON lines."""
LINES, CSV, PARQUET = "JSON lines", "CSV", "Parquet"
_SUFFIXES = {".jsonl": LINES, ".ndjson": LINES, ".csv": CSV, ".parquet": PARQUET}
SUFFIXES = tuple(_SUFFIXES)
"""Endings that say how a file is written."""
LINES_ENDINGS = tuple(ending for ending, kind in _SUFFIXES.items() if kind == LINES)

NUMBERS = (
    "sequence_uncertainty",
    "confidence",
    "log_confidence",
    "log_probability",
    "length_normalized_uncertainty",  # of lines written before it was the method `length_normalized`
    "line",
)
FLAGS = ("neutral_only", "empty", "truncated")
JSON_CELLS = ("answers", "messages", "tokens", "probability_correct_interval")
"""Fields that a cell of CSV holds as numbers, as true or false, and as JSON."""
VERDICTS: Mapping[str, int | None] = {
    "1": 1,
    "1.0": 1,
    "true": 1,
    "yes": 1,
    "0": 0,
    "0.0": 0,
    "false": 0,
    "no": 0,
    "": None,
    "nan": None,
    "none": None,
    "null": None,
}
"""The spellings of verdicts in files, in lower case."""

ROWS_AT_ONCE = 4096
ROWS_OF_A_GROUP = 16_384
"""The number of rows of a Parquet file that are in memory while it is written; smaller groups make files larger."""
_UNSEEN = r"\x00-\x08\x0e-\x1b\u200b\ufeff'"
"""Characters besides blanks that may stand before a formula: spreadsheets leave some of them out. None of them is a
blank: if one were, a run of n of them could be read in 2^n ways.
"""
_FORMULA = rf"[\s;{_UNSEEN}]*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # the last four: full-width forms of the first
_CELL_INSIDE = rf"(?:[^\S\t\r\n]|[{_UNSEEN}])*(?:[=@\uff1d\uff20]|[+\-\uff0b\uff0d](?!\s))"
"""A formula for who separates by `;` or tabs, where quotes protect nothing; a list's `- ` is none."""
_BEGINS = rf"(?:\A(?={{}}{_FORMULA})|(?<=[;\t\r\n])(?={{}}{_CELL_INSIDE}))"
_TO_ESCAPE, _ESCAPED = re.compile(_BEGINS.format("", "")), re.compile(_BEGINS.format("'", "'") + "'")


@dataclass(frozen=True)
class Record:
    """One record of a file, with its line number and, if it cannot be read, the reason."""

    number: int
    """Its line, or its row in a Parquet file, counted from 1."""
    fields: Mapping[str, Any]
    """The fields that it holds; none if `fault` says why it cannot be read."""
    fault: str = ""


def format_of(path: Path) -> str:
    """`LINES`, `CSV` or `PARQUET`, by the ending of an output's name; `InvalidInputError`, naming those known, for
    another ending, such as .gz.
    """
    file_format = _SUFFIXES.get(ending_of(path))
    if file_format is None:
        raise InvalidInputError(
            f"{path.name!r} must end in .jsonl, .csv or .parquet, which says how the file is written."
        )
    return file_format


# --- reading -----------------------------------------------------------------------------------------------------


@contextmanager
def as_file(source: Path) -> Iterator[Path]:
    """A file that can be read several times: the source itself or, for "-" or a pipe, a temporary copy."""
    if str(source) != STANDARD and not source.is_fifo():
        yield source
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "standard-input.jsonl"
        named = Path("standard input") if str(source) == STANDARD else source
        opened = source.open("rb") if source.is_fifo() else nullcontext(sys.stdin.buffer)
        with opened as lines, copy.open("wb") as file, reading_errors(named):
            file.writelines(bounded_lines(lines))
        yield copy


def read_records(path: Path, *, only: Sequence[str] | None = None) -> Iterator[Record]:
    """Read the records of a file, by default JSON lines; those that cannot be read carry the reason.

    `only` names the fields that are wanted: others are not read where the file keeps them apart, in Parquet.
    """
    kind = _SUFFIXES.get(ending_of(path.with_suffix("") if ending_of(path) == ".gz" else path), LINES)
    if kind == CSV:
        return _read_csv(path)
    return _read_parquet(path, only) if kind == PARQUET else _read_lines(path)


def read_rows(path: Path, *, only: Sequence[str] | None = None) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Number, place for messages ("FILE, line 7") and fields of each record; the first bad one is an
    `InvalidInputError`. `only` is as for `read_records`.
    """
    for record in read_records(path, only=only):
        where = f"{path}, line {record.number}"
        if record.fault:
            raise InvalidInputError(f"{where}: {record.fault}.")
        yield record.number, where, dict(record.fields)


def _read_lines(path: Path) -> Iterator[Record]:
    for line in read_json_lines(path):
        if not line.fault and not isinstance(line.value, dict):
            yield Record(line.number, {}, f"a JSON object is needed, not {kind_of(line.value)}")
        else:
            yield Record(line.number, line.value or {}, line.fault)


def _read_csv(path: Path) -> Iterator[Record]:
    for number, cells, fault in read_cells(path):
        yield Record(number, {}, fault) if fault else _record_of_cells(number, cells)


def read_cells(path: Path) -> Iterator[tuple[int, dict[str, str], str]]:
    """Each row of a CSV file that holds anything: its line, its cells by column, and why it cannot be read, or "".

    Cells are separated by commas, semicolons or tabs, whichever the first line has most of; texts are UTF-8, or UTF-16
    with a byte order mark, as spreadsheets save them. Columns without a name are left out. `InvalidInputError` if the
    file is none such, or two columns have one name.
    """
    # Python's own limit is 131,072 characters, and a cell of tokens has more.
    csv.field_size_limit(LONGEST_LINE)
    with reading_errors(path), _opened_text(path) as file:
        number = 0
        try:
            lines = bounded_lines(file)
            first = next(lines, "")
            separator = max(",;\t", key=first.count)
            reader = csv.reader(chain([first], lines), strict=True, delimiter=separator)
            names: list[str] = []
            for row in reader:
                number = reader.line_num
                if not any(names):
                    names = [_unescaped(name.strip()) for name in row]
                    _check_names(filter(None, names), path)
                    continue
                # Spreadsheets write cells beyond the last column, and leave out empty ones at the end of a row.
                while len(row) > len(names) and not row[-1].strip():
                    row.pop()
                if len(row) > len(names):
                    yield number, {}, f"there are {len(row)} cells for {len(names)} columns"
                    continue
                cells = {name: cell for name, cell in zip_longest(names, row, fillvalue="") if name}
                if any(cells.values()):
                    yield number, cells, ""
        except csv.Error as error:
            raise InvalidInputError(f"{path}, line {number + 1}: not CSV: {error}.") from error
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                f"{path}, line {number + 1} or after: it is not UTF-8. Save it as CSV in UTF-8 (in Excel: CSV UTF-8), "
                "or in UTF-16 (Unicode text)."
            ) from error


@contextmanager
def _opened_text(path: Path) -> Iterator[IO[str]]:
    import gzip

    with gzip.open(path, "rb") if ending_of(path) == ".gz" else path.open("rb") as file:
        yield io.TextIOWrapper(file, encoding=encoding_of(file.peek(2)), newline="")


def _check_names(names: Iterable[str], path: Path) -> None:
    """Raise `InvalidInputError` if two columns have one name: one of them would be lost."""
    if (twice := first_repeated(names)) is not None:
        raise InvalidInputError(f"{path}: two columns have the name {twice!r}.")


def _record_of_cells(number: int, cells: Mapping[str, str]) -> Record:
    fields: dict[str, Any] = {}
    for name, cell in cells.items():
        try:
            fields[name] = None if cell == "" else _value_of_cell(name, cell)
        except (ValueError, KeyError):
            return Record(number, {}, f"the field {name!r} holds {cell[:40]!r}, which is {_why_unreadable(name)}")
    return Record(number, fields)


def _value_of_cell(name: str, cell: str) -> Any:
    if name in NUMBERS:
        return parse_json(cell)
    if name in FLAGS:
        return {"true": True, "false": False}[cell.lower()]
    # People write one accepted answer as it is, and JSON begins a list with a bracket.
    if name == "answers" and not cell.startswith("["):
        return [_unescaped(cell)]
    if name in JSON_CELLS:
        return parse_json(cell)
    if name == "correct":
        # What is no verdict stays as it is: whoever reads verdicts refuses it with its own words.
        return VERDICTS.get(cell.strip().lower(), cell)
    return _unescaped(cell)


def _why_unreadable(name: str) -> str:
    if name in NUMBERS:
        return "no number"
    return "not JSON" if name in JSON_CELLS else "neither true nor false (1 nor 0)"


def _read_parquet(path: Path, only: Sequence[str] | None) -> Iterator[Record]:
    pyarrow = require("pyarrow", extra="frames")
    parquet = require("pyarrow.parquet", extra="frames")
    number = 0
    try:
        with reading_errors(path), path.open("rb") as file:
            table = parquet.ParquetFile(file, page_checksum_verification=True)
            _check_names(table.schema_arrow.names, path)
            for batch in table.iter_batches(ROWS_AT_ONCE, columns=only):
                for row in batch.to_pylist():
                    number += 1
                    yield _plain_record(number, row)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is no Parquet file, or it is damaged after row {number}: {error}") from error


def _plain_record(number: int, row: dict[str, Any]) -> Record:
    """A record of values that JSON knows; others are rejected."""
    for name, value in row.items():
        try:
            dump_json(value)
        except (TypeError, ValueError):
            held = f"the field {name!r} holds {str(value)[:40]}, which JSON cannot hold"
            return Record(number, {}, f"{held}: make the column one of texts, in pandas with .astype(str)")
    return Record(number, row)


def kind_of(value: Any) -> str:
    """The type of a JSON value in words, for messages."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


# --- writing -----------------------------------------------------------------------------------------------------


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records whole or not at all (`InvalidInputError`), in the format of the ending; "-" is standard output."""
    if str(path) == STANDARD:
        for record in records:
            sys.stdout.buffer.write(dump_json(record) + b"\n")  # UTF-8, whatever encoding a terminal has
        sys.stdout.buffer.flush()
        return
    kind = format_of(path)
    if kind == LINES:
        with replacing_file(path) as file:
            file.writelines(dump_json(record) + b"\n" for record in records)
        return
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "records.jsonl"
        with lines.open("wb") as file:
            file.writelines(dump_json(record) + b"\n" for record in records)
        convert_lines(lines, path, named=path)


def write_table(path: Path, records: Iterable[Mapping[str, Any]], schema: Any) -> None:
    """Write a Parquet file whole or not at all, from records with a `pyarrow.Schema`; fields that are missing are null.
    Records are read once, up to `ROWS_OF_A_GROUP` in memory. `InvalidInputError` if a field does not fit its column.
    """
    _write_parquet(path, _chunks(records, ROWS_OF_A_GROUP), schema, path)


def _write_parquet(path: Path, chunks: Iterable[Sequence[Mapping[str, Any]]], schema: Any, source: Path) -> None:
    """Write each chunk of records as a group of rows; `source` is what a message names where that cannot be done."""
    pyarrow = require("pyarrow", extra="frames")
    parquet = require("pyarrow.parquet", extra="frames")
    try:
        with replacing_file(path) as file, parquet.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for rows in chunks:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
    except pyarrow.ArrowException as error:
        raise _not_a_table(source, error) from error


def convert_lines(
    lines: Path, target: Path, metadata: Mapping[bytes, bytes] | None = None, *, named: Path | None = None
) -> None:
    """Turn JSON lines, whose fields may differ, into a .csv or .parquet file, whole or not at all, in bounded memory.
    `metadata` is for Parquet. `InvalidInputError`, which names the lines or what is `named`, if a field holds values of
    different kinds; the lines stay as they are.
    """
    if format_of(target) == CSV:
        _write_csv(lines, target)
        return
    schema = schema_of(_chunks_of(lines), named or lines).with_metadata(dict(metadata or {}))
    _write_parquet(target, _chunks_of(lines), schema, named or lines)


def schema_of(chunks: Iterable[list[dict[str, Any]]], source: Path) -> Any:
    """The `pyarrow.Schema` that holds all records; `InvalidInputError` if a field holds values of different kinds."""
    pyarrow = require("pyarrow", extra="frames")
    schema = pyarrow.schema([])
    try:
        for rows in chunks:
            chunk_schema = pyarrow.Table.from_pylist(_all_fields(rows)).schema
            schema = pyarrow.unify_schemas([schema, chunk_schema], promote_options="permissive")
    except (pyarrow.ArrowException, OverflowError) as error:
        raise _not_a_table(source, error) from error
    return schema


def _not_a_table(source: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"{source} cannot become a table: {str(error).rstrip('.')}. In Parquet a field must hold values of one kind. "
        "Write the output as .jsonl, or make the field uniform."
    )


def _all_fields(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the first row every field that any row has: pyarrow takes the columns from the first."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: rows[0].get(name) for name in names}, *rows[1:]]


def _chunks(records: Iterable[Fields], size: int) -> Iterator[list[Fields]]:
    left = iter(records)
    while chunk := list(islice(left, size)):
        yield chunk


def _chunks_of(lines: Path) -> Iterator[list[dict[str, Any]]]:
    return _chunks((fields for _, _, fields in read_rows(lines)), ROWS_AT_ONCE)


def _write_csv(lines: Path, target: Path) -> None:
    # A first pass for the names alone: records differ in their fields, and all do not fit the memory.
    names = list(dict.fromkeys(name for rows in _chunks_of(lines) for row in rows for name in row))
    with replacing_file(target) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180; Python quotes what holds a part of it
        writer.writerow([no_formula(name) for name in names])
        for rows in _chunks_of(lines):
            writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
        text.flush()
        # Or the wrapper would close the file, which is yet to be forced to the disk.
        text.detach()


def _cell(value: Any) -> str:
    """A value as a cell: nothing for null, JSON for what is neither text nor number."""
    if value is None:
        return ""
    if isinstance(value, str):
        return no_formula(value)
    return dump_json(value).decode("utf-8")


def no_formula(text: str) -> str:
    """A text that no spreadsheet takes for a formula, also behind separators: with an apostrophe before it."""
    return _TO_ESCAPE.sub("'", text)


def _unescaped(cell: str) -> str:
    return _ESCAPED.sub("", cell)
