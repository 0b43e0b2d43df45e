"""A file of lines that is made in shards: whoever makes a shard writes it apart, and shards are appended in order.

So the file is that of a single process, and a run that was stopped goes on after the last line of the file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from semtoken.errors import InvalidInput
from semtoken.executors import Executor, Work

T = TypeVar("T")

LINES_IN_SHARD = 256


@dataclass(frozen=True)
class LinesWork(Work):
    """The shards of a file of lines; a subclass has `resolved` and `open`, whose function makes the lines of one shard
    and writes them to its `file`.
    """

    folder: Path
    """Where the files of shards lie until their lines are appended."""
    size: int
    """How many lines a shard has."""
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

    Parameters
    ----------
    work
        The shards to make; their files must lie under the same paths wherever shards are made.
    executor
        The executor that makes the shards.
    first, last
        How many lines are there already, and how many there are to be.
    append
        Called with further lines as soon as all before them are there.
    """
    if work.folder.exists() and any(
        not re.fullmatch(r"(\..*)?\d{8}\.jsonl", one.name) for one in work.folder.iterdir()
    ):
        raise InvalidInput(f"{work.folder} holds files that are no shards: move them, or give the output another name.")
    shutil.rmtree(work.folder, ignore_errors=True)  # of a run that was killed, perhaps with other settings
    work.folder.mkdir()
    ready: set[int] = set()
    written = first

    def done(shard: int) -> None:
        nonlocal written
        ready.add(shard)
        while (next_one := written // work.size) in ready and written < last:
            lines = work.file(next_one).read_bytes().splitlines(keepends=True)[written - next_one * work.size :]
            append(lines)
            written += len(lines)
            work.file(next_one).unlink()

    executor.run(work, range(first // work.size, -(-last // work.size)), done)
    work.folder.rmdir()


class InputLines(Generic[T]):
    """The lines of an input, which is read only once if they are asked for in order.

    Parameters
    ----------
    read
        A function that begins to read the input.
    """

    def __init__(self, read: Callable[[], Iterator[T]]) -> None:
        self._read = read
        self._items: Iterator[T] | None = None
        self._at = 0

    def lines(self, first: int, count: int) -> Sequence[T]:
        """`count` lines from `first` on; the last shard may have fewer."""
        if self._items is None or first < self._at:
            self._items, self._at = self._read(), 0
        found = list(islice(self._items, first - self._at, first - self._at + count))
        self._at = first + len(found)
        return found
