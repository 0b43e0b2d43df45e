"""What runs the shards of a work: here, one after another; elsewhere, many at a time.

`LocalExecutor` runs them in this process, `RayExecutor` (ray.py) on the cores and GPUs of a machine or a cluster, and
lines.py makes a file of lines shard by shard with either. The benchmark and the scoring of files enter by
`Executor.run`; an executor of your own is a class with its members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Executor", "LocalExecutor", "Work"]


class Work(Protocol):
    """Files that are made shard by shard, as plain data that other processes and machines can receive."""

    def resolved(self) -> Work:
        """A copy with absolute paths, so that another process can do the work."""

    def loader(self) -> Any:
        """A new object that loads the models of this work and holds them."""

    def open(self, loader: Any, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Load what the work needs; returns the function that makes the missing files of one shard.

        Parameters
        ----------
        loader
            The object that `loader` made.
        answered
            May be called with how many lines of the shard at work are done so far.
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
        """Make the shards that are missing, on any worker and in any order.

        Parameters
        ----------
        work
            The work, which is to be opened (`Work.open`) wherever its shards are made.
        shards
            The numbers of the shards.
        done
            A function to call with a shard's number once its files are there.
        answered
            A function that may be called before that with how many lines of the shard at work are done so far.

        Raises
        ------
        Exception
            Whatever opening the work or making a shard raised; shards that are done stay.
        """

    def release(self) -> None:
        """Free the memory of models that the executor holds."""


class LocalExecutor:
    """Runs one shard after another in this process; see `Executor`.

    Parameters
    ----------
    loader
        An object that loads models and holds them from one work to the next; its `release` frees them.
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
        """Make the shards that are missing, one after another."""
        make = work.open(self._loader, answered)
        for shard in shards:
            make(shard)
            done(shard)

    def release(self) -> None:
        """Free the memory of the model that was loaded."""
        self._loader.release()
