"""The shards of a work as a Ray Data job: on the cores and GPUs of one machine, or on a cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken.errors import BackendError, InvalidInput, SemtokenError
from semtoken.executors import Work
from semtoken.support.extras import require

SHARD, FAILURE = "shard", "failure"


@dataclass(frozen=True)
class RayExecutor:
    """See `semtoken.executors.Executor`. Every worker is an actor that holds the models of its work.

    The folder of its files, and models and files that it names, must lie under the same paths on every machine of a
    cluster (a shared file system). Without an `address` and outside of a cluster a local one is started, and Ray then
    listens on every network interface of this machine: start it where nothing else can reach it.
    """

    workers: int = 1
    """Shards that are made at the same time."""
    cpus_per_worker: float | None = None
    """Cores of each worker; by default those of the cluster are shared out among the workers."""
    gpus_per_worker: float = 0
    """1 for a model on a GPU; 0.5 lets two workers share one."""
    address: str | None = None
    """Address of a running cluster; "auto" is the one of this machine."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidInput(f"Ray needs at least one worker, got {self.workers}.")

    def run(
        self,
        work: Work,
        shards: Sequence[int],
        done: Callable[[int], None],
        answered: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Make the shards that are missing, in whatever order workers become free, without progress inside a shard."""
        if not shards:
            return
        ray = self._ready()
        data = require("ray.data", extra="ray")
        cores = ray.cluster_resources().get("CPU", 1.0)
        cpus = self.cpus_per_worker or cores // self.workers or cores / self.workers
        wanted = data.from_items([{SHARD: shard} for shard in shards], override_num_blocks=len(shards))
        made = wanted.map_batches(
            ShardMaker,
            fn_constructor_args=(work.resolved(),),
            batch_size=1,
            # A shard that waited at a busy worker could not go to a free one.
            compute=data.ActorPoolStrategy(size=min(self.workers, len(shards)), max_tasks_in_flight_per_actor=1),
            num_cpus=cpus,
            num_gpus=self.gpus_per_worker or None,
        )
        try:
            for row in made.iter_rows():
                if row[FAILURE]:
                    raise BackendError(row[FAILURE])
                done(int(row[SHARD]))
        except ray.exceptions.RayError as error:
            raise BackendError(f"A Ray worker was lost: {error}") from error

    def release(self) -> None:
        """Does nothing: models are held by Ray's workers, which end with their work."""

    def _ready(self) -> Any:
        """Ray, connected to the cluster that was asked for."""
        ray = require("ray", extra="ray")
        if ray.is_initialized():
            return ray
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local: Mapping[str, Any] = {"include_dashboard": False} if self.address is None else {}
        try:
            ray.init(address=self.address, logging_level="error", log_to_driver=False, **local)
        except Exception as error:  # a node that does not start in time raises a bare Exception
            where = "cannot be started here" if self.address is None else f"cannot be reached at {self.address!r}"
            raise BackendError(f"Ray {where}: {error}") from error
        require("ray.data", extra="ray").DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # its progress would run into that of the run
        return ray


class ShardMaker:
    """A Ray worker that opens the work once and makes one shard a call; failures come back as data."""

    def __init__(self, work: Work) -> None:
        self._make: Callable[[int], None] | None = None
        self._failure = ""
        try:
            self._make = work.open(work.loader())
        except Exception as error:  # reported by the driver, as the local executor's caller does
            self._failure = _error_text(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Make the shards that a batch names."""
        failures = [self._attempt(int(shard)) for shard in batch[SHARD]]
        return {SHARD: batch[SHARD], FAILURE: np.array(failures)}

    def _attempt(self, shard: int) -> str:
        """Why a shard could not be made; empty if it was."""
        if self._make is None:
            return self._failure
        try:
            self._make(shard)
        except Exception as error:
            return _error_text(error)
        return ""


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, SemtokenError) else f"{type(error).__name__}: {error}"
