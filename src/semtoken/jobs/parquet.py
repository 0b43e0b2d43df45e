"""Scored lines as one Parquet file: written whole at the end, with the settings inside, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from semtoken._extras import require
from semtoken._files import replacing_file
from semtoken.errors import InvalidInput

ROWS_AT_ONCE = 4096
METADATA_KEY = b"semtoken"


def write_parquet(lines: Path, target: Path, settings: Mapping[str, Any]) -> None:
    """Turn JSON lines into a Parquet file that appears whole or not at all.

    Raises
    ------
    InvalidInput
        A field holds values of different kinds, which a column cannot; the lines stay as they are.
    MissingExtra
        pyarrow is not installed.
    """
    pyarrow = require("pyarrow", extra="frames")
    parquet = require("pyarrow.parquet", extra="frames")
    try:
        schema = pyarrow.schema([])
        for rows in _chunks(lines):
            found = pyarrow.Table.from_pylist(_all_fields(rows)).schema
            schema = pyarrow.unify_schemas([schema, found], promote_options="permissive")
        schema = schema.with_metadata({METADATA_KEY: json.dumps(dict(settings)).encode()})
        with replacing_file(target) as file, parquet.ParquetWriter(file, schema) as writer:
            for rows in _chunks(lines):
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
    except pyarrow.ArrowException as error:
        raise InvalidInput(
            f"{lines} cannot become a table: {error}. In Parquet a field must hold values of one kind. "
            "Write the output as .jsonl, or make the field uniform."
        ) from error


def _all_fields(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows, the first with every field of all: pyarrow takes the columns from the first."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: rows[0].get(name) for name in names}, *rows[1:]]


def _chunks(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with lines.open("rb") as file:
        while chunk := list(islice(file, ROWS_AT_ONCE)):
            yield [json.loads(line) for line in chunk]


def read_settings(path: Path) -> tuple[dict[str, Any], int] | None:
    """The settings inside a Parquet file that a job wrote and its number of rows; None for any other file."""
    pyarrow = require("pyarrow", extra="frames")
    parquet = require("pyarrow.parquet", extra="frames")
    try:
        metadata = parquet.read_metadata(path)
    except (OSError, pyarrow.ArrowException):
        return None
    found = (metadata.metadata or {}).get(METADATA_KEY)
    return None if found is None else (json.loads(found), metadata.num_rows)
