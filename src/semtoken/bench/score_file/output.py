"""The output of a scoring job: appended line by line, continued after a kill, guarded by checksums.

Beside `answers.jsonl` lies `answers.jsonl.settings.jsonl`. Its first line says what made the answers; each further line
holds the checksums of a batch of them, written before the batch itself. A line of output counts only if it has the
checksum that was noted for it. A run with other settings, or on lines other than those already scored, is rejected
rather than mixed in.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

from semtoken.bench.score_file.lines import BadLine, Item
from semtoken.errors import InvalidInputError
from semtoken.support.extras import require
from semtoken.support.files.outputs import check_own
from semtoken.support.files.record_files import LINES, PARQUET, STANDARD, convert_lines, format_of, read_records
from semtoken.support.files.safe_files import locked, replace_text, writing_errors
from semtoken.support.files.strict_json import dump_json, is_sealed, json_lines, parse_json, seal

METADATA_KEY = b"semtoken"


def facts_path(target: Path) -> Path:
    """The path of the file with the facts about a finished CSV file; a Parquet file holds its own."""
    return target.with_name(target.name + ".settings.json")


def lines_beside(target: Path, source: Path, *, overwrite: bool) -> Path:
    """The place of the scored lines that a table of fields is made from; the target itself if it holds lines.

    `InvalidInputError` if `overwrite` would replace lines that no job wrote, or a table that somebody may have
    corrected would be replaced without it.
    """
    if str(target) == STANDARD or format_of(target) == LINES:
        return target
    lines = target.with_suffix(".jsonl")
    # The lines would overwrite the questions that they are made from.
    if lines.absolute() == source.absolute():
        lines = target.with_suffix(".scored.jsonl")
    if not overwrite:  # the table is written whole each time
        check_own(target, "score")
    elif lines.exists() and not OutputFile(lines).settings_path.exists():
        raise InvalidInputError(
            f"{lines}, where the lines of {target.name} go, exists, and `semtoken score` did not write it: --force "
            "replaces only the table. Choose another output."
        )
    return lines


def write_table(lines: Path, target: Path, facts: Mapping[str, Any]) -> None:
    """Turn scored lines into a CSV or Parquet file with the facts that made it.

    `InvalidInputError` if a field holds values of different kinds, or the file cannot be written; the lines stay as
    they are.
    """
    if format_of(target) == PARQUET:
        convert_lines(lines, target, {METADATA_KEY: dump_json(seal(facts))})
        return
    convert_lines(lines, target)
    # CSV has no place for facts, so these name the content that they are about.
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
        raise InvalidInputError(str(error)) from error
    return bytes(metadata[METADATA_KEY])


WriteLines: TypeAlias = Callable[[Sequence[bytes]], None]
"""Appends lines to a file and makes sure that they reach the disk; `InvalidInputError` if they cannot be written."""


@contextmanager
def _open_to_append(path: Path) -> Iterator[IO[bytes]]:
    with writing_errors(path):
        file = path.open("ab")
    try:
        yield file
    finally:
        with suppress(OSError):  # of what could not be written, and has been reported
            file.close()


def append(file: IO[bytes], lines: Sequence[bytes], path: Path) -> None:
    """Append lines to a file and make sure that they reach the disk; errors name `path`."""
    with writing_errors(path):
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())


def checksum(line: bytes) -> str:
    """A checksum of a line of output, which finds accidental damage but not deliberate changes."""
    return hashlib.sha256(line).hexdigest()[:16]


@dataclass(frozen=True)
class OutputFile:
    """A file of scored lines, with the settings and checksums next to it."""

    path: Path

    @property
    def settings_path(self) -> Path:
        """The path of the file with settings and checksums."""
        return self.path.with_name(self.path.name + ".settings.jsonl")

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise an error if the output was made with other settings. Only names that both have are compared.

        `InvalidInputError` if the settings differ, or there are lines but no settings; the message says what to do.
        """
        if self._has_lines():
            check_same_settings(self._read_notes()[0], settings, self.path)

    def _has_lines(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def _read_notes(self) -> tuple[Mapping[str, Any], list[str]]:
        """The settings, and the checksum of each line."""
        if not self.settings_path.exists():
            raise InvalidInputError(
                f"{self.path} exists, but {self.settings_path.name}, which says how it was made, is not next to it. "
                "Choose another output, or start from the beginning with --force."
            )
        try:
            data = self.settings_path.read_bytes()
        except OSError as error:
            raise InvalidInputError(f"{self.settings_path} cannot be read: {error.strerror or error}.") from error
        whole = data[: data.rfind(b"\n") + 1]  # a kill leaves the last write half done
        header, *batches = [line.value for line in json_lines(iter(whole.splitlines(keepends=True)))] or [None]
        valid = isinstance(header, dict) and all(isinstance(batch, list) for batch in batches)
        if not valid:
            raise InvalidInputError(
                f"{self.settings_path} is damaged, so {self.path.name} cannot be checked. Choose another output, or "
                "start from the beginning with --force."
            )
        return header, [str(digest) for batch in batches for digest in batch]

    def check_lines(self, items: Iterable[Item | BadLine]) -> int:
        """The number of complete lines, each unchanged and made from the input at its place.

        `InvalidInputError` if a line was changed or removed, or was made from another input line.
        """
        if not self._has_lines():
            return 0
        noted = self._read_notes()[1]
        count = 0
        expected = iter(items)
        for count, line in enumerate(complete_lines(self.path), start=1):
            item = next(expected, None)
            if item is None:
                raise InvalidInputError(
                    f"{self.path} holds {count:,} lines or more, the input only {count - 1:,}: it was made from "
                    "another input. Choose another output, or start from the beginning with --force."
                )
            fault = _fault(line, item)
            if not fault and (count > len(noted) or noted[count - 1] != checksum(line)):
                fault = "was changed after it was written, or a line before it was removed"
            if fault:
                raise InvalidInputError(
                    f"Line {count} of {self.path} {fault}. Choose another output, or start from the beginning with "
                    "--force."
                )
        return count

    @contextmanager
    def appending(self, settings: Mapping[str, Any], *, overwrite: bool) -> Iterator[WriteLines]:
        """The file open for appending whole lines, a half-written last one cut off; one writer at a time.

        With `overwrite` the first lines that are written take the place of all that was there.
        `InvalidInputError` if another run is writing to it, or it cannot be written.
        """
        busy = f"Another run is writing to {self.path}. Wait for it, or choose another output."
        with (
            locked(self.path.with_name(f".{self.path.name}.lock"), busy, remove=True),
            _open_to_append(self.path) as file,
        ):
            begun = not overwrite
            if begun:
                self._keep([(len(line), checksum(line)) for line in complete_lines(self.path)], file, settings)

            def write(lines: Sequence[bytes]) -> None:
                nonlocal begun
                if not begun:  # not earlier: a run that fails before its first batch loses nothing
                    self._keep([], file, settings)
                    begun = True
                # The checksums first: after a kill between the two, lines without a checksum would be refused.
                with _open_to_append(self.settings_path) as noted:
                    append(noted, [dump_json([checksum(line) for line in lines]) + b"\n"], self.path)
                append(file, lines, self.path)

            yield write

    def _keep(self, lines: Sequence[tuple[int, str]], file: IO[bytes], settings: Mapping[str, Any]) -> None:
        """Cut the open file behind its first lines, whose lengths and checksums these are, and note the settings."""
        with writing_errors(self.path):
            file.truncate(sum(length for length, _ in lines))
            checksums = [dump_json([digest for _, digest in lines]).decode()] if lines else []
            header = json.dumps(dict(settings), ensure_ascii=False)
            replace_text(self.settings_path, "".join(f"{line}\n" for line in [header, *checksums]))

    def remove(self) -> None:
        """Delete the file of lines, with the settings and checksums next to it."""
        self.path.unlink(missing_ok=True)
        self.settings_path.unlink(missing_ok=True)


def check_same_settings(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raise `InvalidInputError` if two runs have different settings; the message names what differs."""
    changed = [
        f"{name} was {json.dumps(before[name])}, now {json.dumps(now[name])}"
        for name in now
        if name in before and before[name] != now[name]
    ]
    if changed:
        raise InvalidInputError(
            f"{path} was made with other settings: {'; '.join(changed)}. Run with the former settings, choose another "
            "output, or start from the beginning with --force."
        )


def complete_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, without a last one that was cut off."""
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _fault(line: bytes, item: Item | BadLine) -> str:
    """The fault of a line of output; empty if there is none."""
    try:
        record = parse_json(line)
    except ValueError:
        return "is damaged"
    if not isinstance(record, dict):
        return "is damaged"
    if "error" in record:
        return "" if record.get("line") == item.number else f"was not made from line {item.number} of the input"
    if isinstance(item, BadLine):
        return f"was made from another input: line {item.number} cannot be scored now ({item.reason})"
    for name, value in item.record.items():
        generated = name == "response" and value is None
        if not generated and (name not in record or record[name] != value):
            return f"was not made from line {item.number} of the input: the field {name!r} differs"
    return ""


def digest_of_items(items: Iterable[Item | BadLine]) -> str:
    """A checksum of an input, by which a finished table is recognized as made from it."""
    total = hashlib.sha256()
    for item in items:
        content: Sequence[Any] = [item.number, dict(item.record)] if isinstance(item, Item) else [item.number]
        total.update(dump_json(content) + b"\n")
    return total.hexdigest()
