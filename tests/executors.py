"""An executor that makes shards in an unusual order, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from semtoken.errors import BackendError
from semtoken.support.executors import LocalExecutor, Work


class Backwards(LocalExecutor):
    """Makes the last shard first, with absolute paths, as other processes do; it is lost after some shards."""

    def __init__(self, load: Callable[[], Any], most: int = 1000) -> None:
        super().__init__(load)
        self._most = most

    def run(
        self, work: Work, shards: Sequence[int], done: Callable[[int], None], answered: Any = lambda count: None
    ) -> None:
        """Make at most so many of the shards; `BackendError` if others are left."""
        super().run(work.resolved(), list(shards)[::-1][: self._most], done)
        if len(shards) > self._most:
            raise BackendError("a worker was lost")
