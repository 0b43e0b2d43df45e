"""Writing and reading files so that nothing is ever half there, for all of semtoken.

- `replacing_file` and `replacing_folder` put a finished file or folder in the place of a former one in one step.
- `read_file` reads a file of somebody else: a regular one, of a bounded size.
- `read_folder` reads files of a folder that another process may be replacing, all of them from one version.
- `locked` keeps two runs from working on the same output.

Errors of the operating system (no permission, disk full, a missing folder) become `InvalidInputError`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import itertools
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, AnyStr

from semtoken.errors import InvalidInputError
from semtoken.support.files.temporary import make_locked, remove_abandoned, working_name

FORMER = ".former-"
"""Beginning of the name of a folder that is being replaced where two folders cannot be exchanged in one step."""
ATTEMPTS = 20  # other processes may replace the same folder at the same time
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)


# --- errors ------------------------------------------------------------------------------------------------------


def ending_of(path: Path) -> str:
    """The ending of a file's name in lower case, such as ".csv", or "" if it has none."""
    return path.suffix.lower()


@contextmanager
def writing_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into "PATH cannot be written: REASON."."""
    try:
        yield
    except OSError as error:
        missing = isinstance(error, FileNotFoundError) and not path.parent.exists()
        reason = f"the folder {path.parent} does not exist" if missing else error.strerror or str(error)
        raise InvalidInputError(f"{path} cannot be written: {reason}.") from error


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system or of decompression into "PATH cannot be read: REASON."."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def check_writable(path: Path) -> None:
    """Raise `InvalidInputError` unless a file can be written there. Nothing is changed."""
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; give the name of a file.")
    with writing_errors(path):
        if path.exists():
            path.open("ab").close()
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def check_place(path: Path) -> None:
    """Raise `InvalidInputError` unless a file or a folder can be made there, with the folders around it that are
    missing. Nothing is changed. Of a device or a pipe nothing is asked.
    """
    if path.is_file() or not path.exists():
        check_beside(path)


def check_beside(path: Path) -> None:
    """Raise `InvalidInputError` unless something can be made in the folder around a path, or in the nearest around that
    one that exists: there a new file or folder is written before it takes the place of the former one.
    """
    around = next(folder for folder in path.absolute().parents if folder.exists())
    with writing_errors(path), tempfile.TemporaryFile(dir=around):
        pass


def check_rereadable(path: Path) -> None:
    """Raise `InvalidInputError` for a pipe, which gives what it holds only once."""
    if path.is_fifo():
        raise InvalidInputError(f"{path} is a pipe, and this is read more than once: write it into a file first.")


SQLITE = b"SQLite format 3\0"
"""The first bytes of a database."""


def is_sqlite(path: Path) -> bool:
    """Return True if a file begins as those of SQLite do. A pipe is not looked into: what is read would be gone."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except (OSError, ValueError):
        return False


# --- files of others ----------------------------------------------------------------------------------------------

MEBIBYTE = 2**20
MOST_SETTINGS = 16 * MEBIBYTE
"""Largest file of settings, questions or a schema, in bytes."""
MOST_FITTED = 64 * MEBIBYTE
"""Largest calibrator, in bytes."""
LONGEST_LINE = 256 * MEBIBYTE
"""Longest line that is read of records, replies or questions: bytes, or characters of a text file."""
LARGEST_REPLIES = 1024 * MEBIBYTE
"""Largest file of replies that are not one on each line, in bytes."""
MOST_OF_FOLDER = 4096 * MEBIBYTE
"""Largest file of token clusters, in bytes."""


def read_file(path: Path, most: int = MOST_SETTINGS) -> bytes:
    """The content of a file of at most `most` bytes; `InvalidInputError` if it is larger, unreadable, or no regular
    file.
    """
    with reading_errors(path):
        return read_bounded(path, most)


def read_bounded(path: Path, most: int, folder: int | None = None) -> bytes:
    """As `read_file`, with the system's errors as they are; a pipe does not block, and a device is not read.
    `folder` is a descriptor that the path starts from.
    """
    # Opened first and looked at then: between a look and the opening, a file can become a pipe.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInputError(f"{path} cannot be read: it is no regular file.")
        # `read` takes memory for as much as it is asked for, however small the file is.
        data = b"" if status.st_size > most else file.read(status.st_size + 1)
        if len(data) > status.st_size:  # it grows, or its size is not known beforehand
            data += file.read(most + 1 - len(data))
    if status.st_size > most or len(data) > most:
        raise InvalidInputError(f"{path} cannot be read: it is larger than {most // MEBIBYTE:,} MiB.")
    return data


def bounded_lines(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines of an open file; `OSError` at one beyond `LONGEST_LINE`, since few bytes may unpack to many, and a
    device has no end.
    """
    for number in itertools.count(1):
        line = file.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise OSError(errno.EFBIG, f"line {number:,} is longer than {LONGEST_LINE // MEBIBYTE:,} MiB")
        if not line:
            return
        yield line


# --- files and folders that appear whole -------------------------------------------------------------------------


@contextmanager
def replacing_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that gets the name `path`, replacing a former file, once it is complete and on the disk,
    so that it outlives a power cut. Folders around it that are missing are made.
    A link stays, and the file that it names is replaced.
    `InvalidInputError` if the folder cannot be written or the disk is full; a former file stays as it is.
    """
    with writing_errors(path), ExitStack() as kept:
        path = _named_by(path)
        working = path.with_name(working_name(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        make = functools.partial(os.open, working, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        kept.callback(working.unlink, missing_ok=True)
        with open(make_locked(working, make, kept), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(working, path)
        _sync(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all (UTF-8, newlines as they are)."""
    with replacing_file(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder that gets the name `path`, replacing a former folder, once it is complete.
    The two are exchanged in one step where the system can (Linux, macOS). Elsewhere the former is moved to
    `former_folder(path)` first, where `read_folder` looks too, so that a reader finds a whole folder at any moment.
    A link stays, and the folder that it names is replaced.
    `InvalidInputError` if the place cannot be written or the disk is full; the former folder stays.
    """
    with writing_errors(path), ExitStack() as kept:
        path = _named_by(path)
        working = path.with_name(working_name(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        kept.callback(shutil.rmtree, working, ignore_errors=True)
        make_locked(working, working.mkdir, kept)
        yield working
        # Contents before names: a folder that has its name and empty files after a power cut would pass for whole.
        for file in working.rglob("*"):
            _sync(file)
        _sync(working)
        publish_folder(working, path)
        _sync(path.parent)


def _named_by(path: Path) -> Path:
    """The file or folder that a link names, also if it is not there yet; the path itself if it is no link, or one to a
    device.
    """
    if path.is_symlink() and (path.is_file() or path.is_dir() or not path.exists()):
        return Path(os.path.realpath(path))
    return path


def former_folder(path: Path) -> Path:
    """The place of a folder while it is being replaced on a system that cannot exchange two folders."""
    return path.with_name(f"{FORMER}{path.name}")


def publish_folder(working: Path, path: Path) -> None:
    """Rename a finished folder to its name. Afterwards `working` is free, or holds the folder that had the name."""
    for _ in range(ATTEMPTS):
        try:
            working.rename(path)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
        else:
            shutil.rmtree(former_folder(path), ignore_errors=True)
            return
        try:
            if _exchange(working, path):
                shutil.rmtree(former_folder(path), ignore_errors=True)  # of a process that was killed
                return
        except FileNotFoundError:
            continue
        _move_aside(path)
    raise OSError(errno.EBUSY, "another process keeps replacing it")


def _move_aside(path: Path) -> None:
    """Free the name of a folder; until another folder has it, readers find this one under `former_folder`."""
    from filelock import FileLock

    # Two writers at once would each delete the former folder that the other has just put aside.
    with FileLock(path.with_name(f".{path.name}.lock")), suppress(FileNotFoundError):
        if path.exists():
            shutil.rmtree(former_folder(path), ignore_errors=True)
            path.rename(former_folder(path))


def _exchange(one: Path, two: Path) -> bool:
    """Exchange two folders in one step; False where the system or the file system cannot."""
    call = _exchange_call()
    if call is None:
        return False
    if call(os.fsencode(one), os.fsencode(two)) == 0:
        return True
    number = ctypes.get_errno()
    # EPERM, too: the seccomp rules of some containers answer so to calls that they do not know.
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(two))


@functools.cache
def _exchange_call() -> Any:
    """A function of two encoded paths that exchanges them, or None."""
    system: str = sys.platform
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if system.startswith("linux"):
            rename, here, exchange = library.renameat2, -100, 2  # AT_FDCWD, RENAME_EXCHANGE
            return lambda one, two: rename(here, one, here, two, exchange)
        if system == "darwin":
            swap, flag = library.renamex_np, 2  # RENAME_SWAP
            return lambda one, two: swap(one, two, flag)
    except (OSError, AttributeError, TypeError):
        pass
    return None


def read_folder(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Some files of a folder, all of one version of it even while it is being replaced; `OSError` if one is missing."""
    attempts = iter(range(ATTEMPTS, 0, -1))
    while True:
        before = _identity(path)
        try:
            with _opened_folder(path if before else former_folder(path)) as (folder, descriptor):
                places = {name: folder / name if descriptor is None else Path(name) for name in names}
                return {name: read_bounded(place, MOST_OF_FOLDER, descriptor) for name, place in places.items()}
        except FileNotFoundError:  # a file is missing, or the folder was replaced and deleted while it was read
            # In a folder that nobody replaced, the file is really missing.
            unchanged = before is not None and _identity(path) == before
            if unchanged or next(attempts) == 1:
                raise


def _identity(folder: Path) -> tuple[int, int, int] | None:
    """The device, number and time of a folder, which another of the same name does not share; None if there is none."""
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


@contextmanager
def _opened_folder(folder: Path) -> Iterator[tuple[Path, int | None]]:
    """A folder, with a descriptor that goes on to mean it whatever becomes of its name (None on Windows)."""
    if os.open not in os.supports_dir_fd:
        yield folder, None
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield folder, descriptor
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk; not every system can do so for folders."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, busy: str, *, remove: bool = False, seconds: float = 0) -> Iterator[None]:
    """Hold a lock file while the block runs; the system releases it when the process ends, however it ends.

    With `remove` it is deleted at the end, safely, since filelock does not count a lock on a deleted file.
    `InvalidInputError`, with the message `busy`, if another process still holds it after these seconds; also if the
    folder cannot be written.
    """
    from filelock import FileLock, Timeout

    with writing_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=seconds)
        except Timeout as error:
            raise InvalidInputError(busy) from error
    try:
        yield
    finally:
        if remove:
            with suppress(OSError):
                path.unlink()
        lock.release()
