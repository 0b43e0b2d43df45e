"""The shards of a work in Ray's workers: on the cores and GPUs of one machine, or on a cluster."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.support.executors import Work
from semtoken.support.extras import require

MOST_LOSSES = 3
"""The most workers that may be lost at the same shard, or while they start, before the work is given up."""


@dataclass
class RayExecutor:
    """See `semtoken.support.executors.Executor`. Every worker is an actor that holds the models of its works.

    Workers are started by the first work and serve all works until `release`, which a run that has several calls at its
    end or after a failure. If one is lost, another is started in its place and makes the shard once more.

    The folder of its files, and models and files that it names, must lie under the same paths on every machine of a
    cluster (a shared file system). Without an `address` and outside of a cluster a local one is started, and Ray then
    listens on every network interface of this machine: start it where nothing else can reach it.
    """

    workers: int = 1
    """The number of shards that are made at the same time."""
    cpus_per_worker: float | None = None
    """Cores of each worker; by default those of the cluster are shared out among the workers."""
    gpus_per_worker: float = 0
    """GPUs of each worker: 1 for a model on a GPU; 0.5 lets two workers share one."""
    address: str | None = None
    """Address of a running cluster; "auto" is the one of this machine."""
    _started: list[Any] = field(default_factory=list, init=False, repr=False)
    """The workers that there are."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidInputError(f"Ray needs at least one worker, got {self.workers}.")

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
        try:
            self._run(ray, ray.put(work.resolved()), shards, done)
        except BaseException:
            self.release()  # no worker goes on with a work that was given up
            raise

    def _run(self, ray: Any, work: Any, shards: Sequence[int], done: Callable[[int], None]) -> None:
        waiting, made = deque(shards), 0
        under_way: dict[Any, tuple[int, int | None]] = {}
        """The tasks of workers by Ray's reference: the number of the worker, and its shard; None: it opens the work."""
        losses: Counter[int | None] = Counter()

        def open_work(number: int) -> None:
            under_way[self._started[number].open.remote(work)] = (number, None)

        for number in range(min(self.workers, len(shards))):
            if number == len(self._started):
                self._started.append(self._new_worker(ray))
            open_work(number)
        while made < len(shards):
            [ended], _ = ray.wait(list(under_way), num_returns=1)
            number, shard = under_way.pop(ended)
            try:
                failure = ray.get(ended)
            except ray.exceptions.RayError as error:
                losses[shard] += 1
                if losses[shard] > MOST_LOSSES:
                    raise BackendError(f"A Ray worker was lost: {error}") from error
                if shard is not None:
                    # In front, since lines are appended in order and all later ones wait for it.
                    waiting.appendleft(shard)
                ray.kill(self._started[number])  # one that cannot be reached may be there still
                self._started[number] = self._new_worker(ray)
                open_work(number)
                continue
            if failure:
                raise BackendError(failure)
            if shard is not None:
                done(shard)
                made += 1
            if waiting:  # a worker that waits for a place on the cluster gets no shard before it has opened the work
                shard = waiting.popleft()
                under_way[self._started[number].make.remote(shard)] = (number, shard)

    def release(self) -> None:
        """End the workers, with the models that they hold."""
        if not self._started:
            return
        ray = require("ray", extra="ray")
        while self._started:
            worker = self._started.pop()
            if ray.is_initialized():
                ray.kill(worker)

    def _new_worker(self, ray: Any) -> Any:
        cores = ray.cluster_resources().get("CPU", 1.0)
        cpus = self.cpus_per_worker or cores // self.workers or cores / self.workers
        return ray.remote(ShardMaker).options(num_cpus=cpus, num_gpus=self.gpus_per_worker or None).remote()

    def _ready(self) -> Any:
        """Ray, connected to the cluster that was asked for."""
        ray = require("ray", extra="ray")
        if ray.is_initialized():
            return ray
        # Ray sends statistics of use by default, and nothing here asked the user.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local: Mapping[str, Any] = {"include_dashboard": False} if self.address is None else {}
        try:
            ray.init(address=self.address, logging_level="error", log_to_driver=False, **local)
        except Exception as error:  # a node that does not start in time raises a bare Exception
            where = "cannot be started here" if self.address is None else f"cannot be reached at {self.address!r}"
            raise BackendError(f"Ray {where}: {error}") from error
        return ray


class ShardMaker:
    """A Ray worker: it opens one work after the other and makes their shards; failures come back as texts."""

    def __init__(self) -> None:
        self._loader: Any = None
        self._make: Callable[[int], None] | None = None
        self._failure = ""

    def open(self, work: Work) -> str:
        """Get ready for the shards of a work; returns "", since a failure is reported where a shard is to be made.

        The object that loads the models stays from the first work on, so that a model which the next work needs is not
        loaded again.
        """
        self._make, self._failure = None, ""
        try:
            if self._loader is None:
                self._loader = work.loader()
            self._make = work.open(self._loader)
        except Exception as error:  # reported by the driver, as the local executor's caller does
            self._failure = _error_text(error)
        return ""

    def make(self, shard: int) -> str:
        """Make a shard; returns why it could not be made, or "" if it was."""
        if self._make is None:
            return self._failure
        try:
            self._make(shard)
        except Exception as error:
            return _error_text(error)
        return ""


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, SemtokenError) else f"{type(error).__name__}: {error}"
