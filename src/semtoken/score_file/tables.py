"""Finished CSV and Parquet files of scored lines: what made them, and whether they are whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.files.record_files import PARQUET, convert_lines, format_of, read_records
from semtoken.files.safe_files import dump_json, is_sealed, parse_json, replace_text, seal
from semtoken.support.extras import require

METADATA_KEY = b"semtoken"


def facts_path(target: Path) -> Path:
    """Where the facts about a finished CSV file lie; a Parquet file holds its own."""
    return target.with_name(target.name + ".settings.json")


def write_table(lines: Path, target: Path, facts: Mapping[str, Any]) -> None:
    """Turn scored lines into a CSV or Parquet file with the facts that made it.

    Raises
    ------
    InvalidInput
        A field holds values of different kinds, or the file cannot be written; the lines stay as they are.
    """
    if format_of(target) == PARQUET:
        convert_lines(lines, target, {METADATA_KEY: dump_json(seal(facts))})
        return
    convert_lines(lines, target)
    whole = hashlib.sha256(target.read_bytes()).hexdigest()
    replace_text(facts_path(target), dump_json(seal({**facts, "sha256": whole})).decode() + "\n")


def read_facts(target: Path) -> tuple[dict[str, Any], int] | None:
    """The facts about a finished file and its number of rows; None for a file that no job wrote or that is damaged."""
    try:
        facts = parse_json(_stored_facts(target))
        if not isinstance(facts, dict) or not is_sealed(facts):
            return None
        if "sha256" in facts and hashlib.sha256(target.read_bytes()).hexdigest() != facts["sha256"]:
            return None
        return facts, sum(1 for _ in read_records(target))
    except (OSError, ValueError, KeyError):
        return None


def _stored_facts(target: Path) -> bytes:
    if format_of(target) != PARQUET:
        return facts_path(target).read_bytes()
    pyarrow = require("pyarrow", extra="frames")
    try:
        metadata = require("pyarrow.parquet", extra="frames").read_metadata(target).metadata or {}
    except pyarrow.ArrowException as error:
        raise InvalidInput(str(error)) from error
    return bytes(metadata[METADATA_KEY])
