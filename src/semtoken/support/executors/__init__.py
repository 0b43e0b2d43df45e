"""Executors run the shards of a work: here, one after another; elsewhere, many at a time.

`LocalExecutor` runs them in this process, `RayExecutor` (ray.py) on the cores and GPUs of a machine or a cluster, and
`LinesWork` makes a file of lines shard by shard with either. The benchmark and the scoring of files enter by
`Executor.run`; an executor of your own is a class with its members.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from semtoken.errors import InvalidInputError

__all__ = ["Executor", "LocalExecutor", "Work"]


class Work(Protocol):
    """Files that are made shard by shard, as plain data that other processes and machines can receive."""

    def resolved(self) -> Work:
        """A copy with absolute paths, so that another process can do the work."""

    def loader(self) -> Any:
        """A new object that loads the models of this work and holds them."""

    def open(self, loader: Any, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Load what the work needs with what `loader` made; returns the function that makes one shard's missing files.

        It may call `answered` with how many lines of the shard at work are done so far.
        """


class Executor(Protocol):
    """Makes the files of a work. Each shard has the same lines and batches, whoever makes it."""

    def run(
        self,
        work: Work,
        shards: Sequence[int],
        done: Callable[[int], None],
        answered: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Make the shards with these numbers that are missing, on any worker and in any order.

        The work is opened (`Work.open`) wherever its shards are made. `done` is called with a shard's number once its
        files are there, `answered` perhaps before that, as `Work.open` says. Whatever opening the work or making a
        shard raises is raised here; shards that are done stay.
        """

    def release(self) -> None:
        """Free the memory of models that the executor holds."""


class LocalExecutor:
    """Runs one shard after another in this process; see `Executor`.

    The `loader` loads models and holds them from one work to the next; its `release` frees them.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def run(
        self,
        work: Work,
        shards: Sequence[int],
        done: Callable[[int], None],
        answered: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Make the shards that are missing, one after another in this process.

        `done` is called with the number of each shard once it is made, `answered` as in `Work.open`.
        """
        make = work.open(self._loader, answered)
        for shard in shards:
            make(shard)
            done(shard)

    def release(self) -> None:
        """Free the memory of the model that was loaded."""
        self._loader.release()


T = TypeVar("T")

LINES_IN_SHARD = 256


@dataclass(frozen=True)
class LinesWork(Work):
    """The shards of a file of lines; a subclass has `resolved` and `open`, whose function makes the lines of one shard
    and writes them to its `file`.
    """

    folder: Path
    """The folder of the shards' files until their lines are appended."""
    size: int
    """The number of lines of a shard."""
    load: Callable[[], Any]
    """Loads what makes the lines; sent to other processes."""

    def file(self, shard: int) -> Path:
        """The path of the file that holds the lines of a shard."""
        return self.folder / f"{shard:08}.jsonl"

    def loader(self) -> Callable[[], Any]:
        """The function that loads the model."""
        return self.load


def append_in_order(
    work: LinesWork, executor: Executor, first: int, last: int, append: Callable[[list[bytes]], None]
) -> None:
    """Make the lines from `first` to `last` in shards, and append the shards in order.

    Files of the work must lie under the same paths wherever shards are made. `first` lines are there already, `last`
    are to be; `append` is called with further lines as soon as all before them are there.
    """
    if work.folder.exists() and any(
        not re.fullmatch(r"(\..*)?\d{8}\.jsonl", path.name) for path in work.folder.iterdir()
    ):
        raise InvalidInputError(
            f"{work.folder} holds files that are no shards: move them, or give the output another name."
        )
    shutil.rmtree(work.folder, ignore_errors=True)  # of a run that was killed, perhaps with other settings
    work.folder.mkdir()
    ready: set[int] = set()
    written = first

    def done(shard: int) -> None:
        nonlocal written
        ready.add(shard)
        while (next_one := written // work.size) in ready and written < last:
            # A run that goes on may begin in the middle of a shard, which is made as a whole, so that batches are the
            # same.
            lines = work.file(next_one).read_bytes().splitlines(keepends=True)[written - next_one * work.size :]
            append(lines)
            written += len(lines)
            work.file(next_one).unlink()

    executor.run(work, range(first // work.size, -(-last // work.size)), done)
    work.folder.rmdir()


class InputLines(Generic[T]):
    """The lines of an input, which is read only once if they are asked for in order; `read` begins to read it."""

    def __init__(self, read: Callable[[], Iterator[T]]) -> None:
        self._read = read
        self._items: Iterator[T] | None = None
        self._at = 0

    def lines(self, first: int, count: int) -> Sequence[T]:
        """`count` lines from `first` on; the last shard may have fewer."""
        if self._items is None or first < self._at:
            self._items, self._at = self._read(), 0
        shard = list(islice(self._items, first - self._at, first - self._at + count))
        self._at = first + len(shard)
        return shard
