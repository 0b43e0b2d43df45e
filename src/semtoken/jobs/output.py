"""The output of a scoring job: appended line by line, taken up again after a kill, guarded by its settings.

Beside `answers.jsonl` lies `answers.jsonl.settings.json`, which says what made it. A run with other settings, or on
lines other than those already scored, is refused rather than mixed in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from semtoken._files import locked, replace_text, writing_errors
from semtoken.errors import InvalidInput
from semtoken.jobs.lines import BadLine, Item


@dataclass(frozen=True)
class LineWriter:
    """Appends lines to an open file."""

    path: Path
    file: IO[bytes]

    def write(self, lines: Iterable[bytes]) -> None:
        """Append lines and make sure that they reach the disk.

        Raises
        ------
        InvalidInput
            The disk is full, or the file cannot be written any more.
        """
        with writing_errors(self.path):
            self.file.write(b"".join(lines))
            self.file.flush()
            os.fsync(self.file.fileno())


@dataclass(frozen=True)
class OutputFile:
    """A file of scored lines and the settings beside it."""

    path: Path

    @property
    def settings_path(self) -> Path:
        """Where the settings lie."""
        return self.path.with_name(self.path.name + ".settings.json")

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse to go on with an output that other settings made. Only what both sides name is compared.

        Raises
        ------
        InvalidInput
            The settings differ, or there are lines but no settings; the message says what to do.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            return
        if not self.settings_path.exists():
            raise InvalidInput(
                f"{self.path} exists, but {self.settings_path.name}, which says how it was made, is not beside it. "
                "Choose another output, or start anew with --overwrite."
            )
        try:
            before = json.loads(self.settings_path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{self.settings_path} cannot be read: {error}. Start anew with --overwrite.") from error
        check_same_settings(before, settings, self.path)

    def check_lines(self, items: Iterable[Item | BadLine]) -> int:
        """Number of complete lines, each of which must come from the item at its place.

        Raises
        ------
        InvalidInput
            A line is damaged or was made from another input line.
        """
        if not self.path.exists():
            return 0
        count = 0
        expected = iter(items)
        for count, line in enumerate(complete_lines(self.path), start=1):
            item = next(expected, None)
            if item is None:
                raise InvalidInput(
                    f"{self.path} holds {count:,} lines or more, the input only {count - 1:,}: it was made from "
                    "another input. Choose another output, or start anew with --overwrite."
                )
            fault = _fault(line, item)
            if fault:
                raise InvalidInput(
                    f"Line {count} of {self.path} {fault}. Choose another output, or start anew with --overwrite."
                )
        return count

    @contextmanager
    def appending(self, settings: Mapping[str, Any], *, overwrite: bool) -> Iterator[LineWriter]:
        """The file open for appending whole lines, a half-written last one cut off; one writer at a time.

        Raises
        ------
        InvalidInput
            Another run is writing to it, or it cannot be written.
        """
        with self._locked():
            with writing_errors(self.path):
                file = self.path.open("ab")
            with file:
                with writing_errors(self.path):
                    file.truncate(0 if overwrite else sum(map(len, complete_lines(self.path))))
                replace_text(self.settings_path, json.dumps(dict(settings), indent=1, ensure_ascii=False) + "\n")
                yield LineWriter(self.path, file)

    def _locked(self) -> AbstractContextManager[None]:
        busy = f"Another run is writing to {self.path}. Wait for it, or choose another output."
        return locked(self.path.with_name(f".{self.path.name}.lock"), busy, remove=True)

    def remove(self) -> None:
        """Delete the lines and their settings."""
        self.path.unlink(missing_ok=True)
        self.settings_path.unlink(missing_ok=True)


def check_same_settings(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raise `InvalidInput` naming what differs between two runs."""
    changed = [
        f"{name} was {json.dumps(before[name])}, now {json.dumps(now[name])}"
        for name in now
        if name in before and before[name] != now[name]
    ]
    if changed:
        raise InvalidInput(
            f"{path} was made with other settings: {'; '.join(changed)}. Run with the former settings, choose another "
            "output, or start anew with --overwrite."
        )


def complete_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, without an unfinished last one."""
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _fault(line: bytes, item: Item | BadLine) -> str:
    """What is wrong with a line of output; empty if nothing is."""
    try:
        record = json.loads(line)
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
