"""The rules for what a command may overwrite: nothing that it reads, and only files that it has made itself.

A file counts by what it is, not by its name: links and hard links to an input are that input, and so is each file of a
folder that is read. That a file was made by a command is known from its content, of which a digest is kept in the
cache: a file that somebody has changed since is no longer the command's own.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from semtoken.errors import InvalidInputError
from semtoken.support.files.safe_files import ending_of
from semtoken.support.installation import cache_root

REPLY_SUFFIXES = (".json", ".jsonl", ".ndjson", ".sse", ".txt")
"""Endings of the files that are read of a folder of replies."""
KEPT = 2_000
"""So many digests are kept."""


def check_not_read(outputs: Iterable[Path], inputs: Iterable[str | Path]) -> None:
    """Refuse (`InvalidInputError`) to write files or folders that are inputs, or would be read as part of an input
    folder. Inputs are files, folders and globs; names of what does not exist are passed over.
    """
    read = [(given, path) for given in inputs for path in _paths(given)]
    for output in outputs:
        there = _identity(output)
        for name, path in read:
            if there is not None and there == _identity(path):
                raise InvalidInputError(
                    f"{output} is the input {name}: give the output another name. Nothing was written."
                )
            if path.is_dir() and _is_read_in(path, output, there):
                raise InvalidInputError(
                    f"{output} is read with the folder {name}: give the output a place outside it. Nothing was written."
                )


def check_not_inside(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse (`InvalidInputError`) to replace a folder as a whole if something that is read is inside it."""
    for path in inputs:
        if path.exists() and folder.exists() and path.resolve().is_relative_to(folder.resolve()):
            raise InvalidInputError(
                f"{path} is in {folder}, which is replaced: name another folder. Nothing was written."
            )


def _paths(given: str | Path) -> list[Path]:
    path = Path("/dev/stdin" if given == "-" else given)  # what is redirected to standard input is a file, too
    with suppress(OSError, ValueError):  # a text that is no path
        if path.exists():
            return [path]
        if isinstance(given, str) and glob.has_magic(given):
            return [Path(name) for name in glob.glob(given, recursive=True)]
    return []


def _identity(path: Path) -> tuple[int, int] | None:
    """The device and number of a file, the same under all its names; None if there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _is_read_in(folder: Path, output: Path, there: tuple[int, int] | None) -> bool:
    """True if a file is inside a folder, or is one of its files under another name, and has an ending that is read."""
    if ending_of(output) in REPLY_SUFFIXES and output.parent.resolve().is_relative_to(folder.resolve()):
        return True
    if there is None or output.is_dir():
        return False
    return any(there == _identity(path) for path in folder.rglob("*") if ending_of(path) in REPLY_SUFFIXES)


def refuse_existing(path: Path, what: str = "output", *, overwrite: bool) -> None:
    """Raise `InvalidInputError` if something would be replaced, unless that is asked for; for a folder always."""
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not overwrite:
        raise InvalidInputError(f"{path} exists. Choose another {what}, or replace it with --force.")


def check_own(output: Path, command: str) -> None:
    """Refuse (`InvalidInputError`) to replace a file that is not the command's own or was changed, unless it is
    empty.
    """
    if output.is_file() and output.stat().st_size and not _note(output, command).exists():
        raise InvalidInputError(
            f"{output} exists, and `semtoken {command}` did not write it, or it was changed since. Choose another "
            "output, or replace it with --force."
        )


def remember(output: Path, command: str) -> None:
    """Keep in the cache that a command has written a file; without a cache nothing is kept, and `check_own` refuses."""
    with suppress(OSError):
        if not output.is_file():
            return
        note = _note(output, command)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
        notes = sorted(_notes(note.parent))
        for _, old in notes[: max(len(notes) - KEPT, 0)]:
            old.unlink(missing_ok=True)


def _note(output: Path, command: str) -> Path:
    digest = hashlib.sha256(command.encode())
    with output.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return cache_root() / "outputs" / digest.hexdigest()


def _notes(folder: Path) -> Iterator[tuple[float, Path]]:
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            yield entry.stat().st_mtime, Path(entry.path)
