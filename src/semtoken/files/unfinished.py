"""Files and folders that are being written under another name, and what is left of them where a process was killed.

Each is locked while somebody writes it. The system releases the lock when the process ends, however it ends: what
nobody holds a lock on is abandoned.
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
"""Beginning of their names. A kill leaves such files behind; whoever writes the same file next deletes them, and so
does `remove_leftovers`."""
ATTEMPTS = 20
NAME = 100  # characters of the name of the finished file that are kept
_locks: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def working_name(path: Path) -> str:
    """A new name for a file or folder that will be called otherwise when it is finished."""
    return f"{WORKING}{uuid4().hex}-{path.name[-NAME:]}"


def make_in_use(working: Path, make: Callable[[], T], kept: ExitStack) -> T:
    """Make a file or folder and lock it.

    Parameters
    ----------
    working
        Its place.
    make
        Makes it, and gives a descriptor or nothing.
    kept
        Releases the lock in the end.
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
    """Delete what killed processes left of their attempts to write a file or folder."""
    if _locks is None:
        return
    ending = f"-{path.name[-NAME:]}"
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
    """Delete what killed runs left half-written below a folder. Only whoever has locked the folder may call this."""
    for path in sorted(folder.rglob(f"{WORKING}*")):
        with suppress(OSError):
            _remove(path)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
