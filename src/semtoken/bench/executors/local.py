"""One shard after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semtoken.bench.models import Models
from semtoken.bench.stages import Work


class LocalExecutor:
    """See `semtoken.bench.executors.Executor`.

    Parameters
    ----------
    models
        Those of the run.
    """

    def __init__(self, models: Models) -> None:
        self._models = models

    def run(
        self,
        work: Work,
        shards: Sequence[int],
        done: Callable[[int], None],
        answered: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Make what is missing of some shards, in their order."""
        make = work.open(self._models, answered)
        for shard in shards:
            make(shard)
            done(shard)

    def release(self) -> None:
        """Forget the model that is held."""
        self._models.release()
