"""One shard after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from semtoken.executors import Work


class LocalExecutor:
    """See `semtoken.executors.Executor`.

    Parameters
    ----------
    loader
        Holds the models from one work to the next, and has `release`.
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
        """Make what is missing of some shards, in their order."""
        make = work.open(self._loader, answered)
        for shard in shards:
            make(shard)
            done(shard)

    def release(self) -> None:
        """Forget the model that is held."""
        self._loader.release()
