"""The options that say what runs the shards of a large work: this process, or Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from semtoken.cli.console import tell

if TYPE_CHECKING:
    from semtoken.executors import Executor

ExecutorName = Literal["local", "ray"]
ExecutorOption = Annotated[
    ExecutorName,
    typer.Option("--executor", "--engine", help="What runs the shards: this process, or Ray Data jobs."),
]
RayWorkersOption = Annotated[int, typer.Option(min=1, help="With --executor ray: shards made at the same time.")]
RayGpusOption = Annotated[float, typer.Option(min=0, help="With --executor ray: GPUs per worker; 0.5 shares one.")]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        help="With --executor ray: a running cluster, 'auto' for this machine's. Default: a cluster is started "
        "here, and Ray then listens on every network interface."
    ),
]


def ray_executor(workers: int, gpus: float, address: str | None) -> Executor:
    """Ray as the executor, with a word about its sockets."""
    from semtoken.executors.ray import RayExecutor
    from semtoken.support.extras import require

    require("ray.data", extra="ray")
    if address is None:
        tell("Ray starts a cluster on this machine and listens on every network interface.", style="yellow")
    return RayExecutor(workers=workers, gpus_per_worker=gpus, address=address)
