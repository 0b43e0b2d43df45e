"""Files that hold entries until the database has them: a process that is killed loses none that it has acknowledged.

A spool is a folder of one process, with files of JSON lines. The process holds a lock beside the folder for as long as
it lives; whoever finds a folder whose lock is free takes its entries over.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from platformdirs import user_state_path

from semtoken.support.files.safe_files import replace_text, writing_errors

SUFFIX = ".jsonl"
SET_ASIDE = "set-aside.jsonl"
"""Beside the spools: entries that no database would ever take, each with the reason."""
PRIVATE = 0o600


class Spool:
    """The files of this process that hold journal entries until the database has them, `most_bytes` at most, in a
    folder that holds the spools of all processes of one journal.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._lock = Lock()
        self._most_bytes = most_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / uuid.uuid4().hex
        self._owner = FileLock(_lock_of(self.path), timeout=10)
        self._owner.acquire()  # before the folder is there, so that nobody takes it for one that was left
        self.path.mkdir(mode=0o700)
        self._number = 0
        self._waiting = 0
        self._size = 0
        self._file = self._open_new_file()

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes of entries that are not yet in the database."""
        return self._waiting

    def append(self, line: bytes) -> str | None:
        """Write an entry, which then outlives this process; or say why not: "full" (too many bytes wait) or "disk"."""
        with self._lock:
            if self._waiting + len(line) > self._most_bytes:
                return "full"
            try:
                # Not forced to the disk: that would cost each answer milliseconds, and only a power cut loses the line.
                if os.write(self._file, line) == len(line):
                    self._waiting += len(line)
                    self._size += len(line)
                    return None
            except OSError:
                pass
            with suppress(OSError):  # what was written of it; else the next line would begin in its midst
                os.ftruncate(self._file, self._size)
            return "disk"

    def take(self) -> list[Path]:
        """The files with all entries so far, oldest first; later entries go into another file, if one can be opened."""
        with self._lock:
            if self._size:
                try:
                    following = self._open_new_file()
                except OSError:
                    pass  # the file in use takes the later entries, too
                else:
                    os.close(self._file)
                    self._file, self._size = following, 0
            return sorted(self.path.glob(f"*{SUFFIX}"))[:-1]

    def remove(self, file: Path) -> None:
        """Delete a file whose entries are in the database."""
        size = file.stat().st_size
        file.unlink()
        with self._lock:
            self._waiting -= size

    def close(self) -> None:
        """Close the spool; entries that are not yet in the database stay for the next process."""
        with self._lock:
            os.close(self._file)
            for file in self.path.glob(f"*{SUFFIX}"):
                if file.stat().st_size == 0:
                    file.unlink()
            with suppress(OSError):
                self.path.rmdir()
            self._owner.release()
            if not self.path.exists():
                Path(self._owner.lock_file).unlink(missing_ok=True)

    def _open_new_file(self) -> int:
        self._number += 1
        name = self.path / f"{self._number:012d}{SUFFIX}"
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, PRIVATE)


def spool_folder(url: sa.URL) -> Path:
    """The folder of a journal's spools, unless the user named another one."""
    if url.get_backend_name() == "sqlite":
        return Path(f"{url.database}.spool")
    name = hashlib.sha256(url.render_as_string(hide_password=True).encode()).hexdigest()[:16]
    return user_state_path("semtoken") / "journal" / name


def check_spool(folder: Path) -> None:
    """Make the folder of the spools, and raise `InvalidInputError` unless files can be written there."""
    with writing_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=folder):
            pass


def set_aside_beside(file: Path) -> Path:
    """The file for entries of a spool's file that can never be written."""
    return file.parent.parent / SET_ASIDE


def set_aside(file: Path, entries: Sequence[Mapping[str, Any]], reasons: Sequence[str]) -> None:
    """Add entries that can never be written to a file, which only its owner may read, with why, under `refused`."""
    with FileLock(_lock_of(file), timeout=10):
        taken = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        with os.fdopen(taken, "wb") as lines:
            for entry, why in zip(entries, reasons, strict=True):
                lines.write(json.dumps({**entry, "refused": why}).encode() + b"\n")


def forget_set_aside(folder: Path, matches: Callable[[Mapping[str, Any]], bool]) -> int:
    """Delete the entries that match from those set aside beside a folder's spools; returns how many they were."""
    file = folder / SET_ASIDE
    if not file.exists():
        return 0
    with FileLock(_lock_of(file), timeout=10):
        before = list(lines_of(file))
        kept = [entry for entry in before if not matches(entry)]
        if len(kept) < len(before):
            replace_text(file, "".join(json.dumps(entry) + "\n" for entry in kept))
            file.chmod(PRIVATE)
    return len(before) - len(kept)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


@contextmanager
def left_behind(folder: Path) -> Iterator[list[Path]]:
    """The files of processes that have ended, oldest first. Nobody else gets them inside the block."""
    held: list[tuple[Path, FileLock]] = []
    try:
        for path in sorted(subfolder for subfolder in folder.glob("*") if subfolder.is_dir()):
            lock = FileLock(_lock_of(path), timeout=0)
            with suppress(Timeout, OSError):
                lock.acquire()
                held.append((path, lock))
        yield [file for path, _ in held for file in sorted(path.glob(f"*{SUFFIX}"))]
    finally:
        for path, lock in held:
            with suppress(OSError):
                path.rmdir()  # only if nothing is left in it
            lock.release()
            if not path.exists():
                Path(lock.lock_file).unlink(missing_ok=True)


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    """Read the entries of a file. A line that was cut off is skipped: it was never acknowledged."""
    with file.open("rb") as lines:
        for line in lines:
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, dict) and line.endswith(b"\n"):
                    yield entry
