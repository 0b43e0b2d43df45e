"""Temporary files and folders: they are written under another name and renamed once they are whole.

Each is locked while somebody writes it. The system releases the lock when the process ends, however it ends. A
temporary file that nobody holds a lock on was therefore left by a process that was killed, and can be deleted.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

T = TypeVar("T")
WORKING = ".writing-"
"""The beginning of the names of temporary files. A killed process leaves them behind; the next one that writes the
same file deletes them, and so does `remove_leftovers`."""
ATTEMPTS = 20
NAME = 100  # bytes of the name of the finished file that are kept
_locks: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def working_name(path: Path) -> str:
    """A new temporary name, in the same folder, for a file or folder that is going to be renamed to `path`."""
    return f"{WORKING}{uuid4().hex}{_ending(path)}"


def _ending(path: Path) -> str:
    """The end of the temporary names for a file or folder: names are limited to 255 bytes, and endings tell files
    apart.
    """
    return f"-{os.fsencode(path.name)[-NAME:].decode('utf-8', 'ignore')}"


def make_locked(working: Path, make: Callable[[], T], kept: ExitStack) -> T:
    """Make a temporary file or folder, locked until `kept` is closed, so that no process takes it for an abandoned one.
    Returns what `make` does, an open descriptor or None; `OSError` if others deleted it each time before the lock.
    """
    for _ in range(ATTEMPTS):
        made = make()
        if _locks is None:
            return made
        with suppress(OSError):  # file systems without locks
            descriptor = os.open(working, os.O_RDONLY)
            kept.callback(os.close, descriptor)
            _locks.flock(descriptor, _locks.LOCK_EX)
        if working.exists():  # nobody took it for an abandoned one before it was locked
            return made
        if isinstance(made, int):
            os.close(made)
    raise OSError(errno.EBUSY, "another process keeps deleting it")


def remove_abandoned(path: Path) -> None:
    """Delete the temporary files that killed processes left when they wrote the file or folder `path`."""
    if _locks is None:
        return
    ending = _ending(path)
    for left in path.parent.iterdir():
        if left.name.startswith(WORKING) and left.name.endswith(ending):
            with suppress(OSError):
                _remove_unless_locked(left)


def _remove_unless_locked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _locks.flock(descriptor, _locks.LOCK_EX | _locks.LOCK_NB)
        _remove(path)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Delete every temporary file below a folder. Call this only while you hold the lock of the folder."""
    for path in sorted(folder.rglob(f"{WORKING}*")):
        with suppress(OSError):
            _remove(path)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
