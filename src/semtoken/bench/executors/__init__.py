"""What runs the shards of a work: here, one after another; elsewhere, many at a time.

local.py runs them in this process; ray.py on the cores and GPUs of a machine or a cluster. Enter by
`run_benchmark(executor=...)`; one of your own is a class with the members of `Executor`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from semtoken.bench.stages import Work

__all__ = ["Executor"]


class Executor(Protocol):
    """Makes the files of a work. Every shard is made from the same questions in the same batches, whoever makes it."""

    def run(
        self,
        work: Work,
        shards: Sequence[int],
        done: Callable[[int], None],
        answered: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Make what is missing of some shards, wherever and in whatever order.

        Parameters
        ----------
        work
            To be opened (`Work.open`) wherever its shards are made.
        shards
            Their numbers.
        done
            To be called with a shard's number once its files are there.
        answered
            May be called before that with how many questions of the shard at work are done so far.

        Raises
        ------
        Exception
            Whatever opening the work or making a shard raised; shards that are done stay.
        """

    def release(self) -> None:
        """Give back the memory of models that are held."""
