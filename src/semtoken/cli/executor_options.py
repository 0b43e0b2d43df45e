"""The options that say what runs the shards of a large job, declared once as the fields of `ExecutorChoice`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from semtoken.cli.console import tell
from semtoken.cli.journal_options import JournalChoice
from semtoken.cli.model_options import option_group

if TYPE_CHECKING:
    from semtoken.executors import Executor

PANEL = "Many workers"


@dataclass(frozen=True)
class ExecutorChoice:
    """What runs the shards, and with Ray how many workers where."""

    executor: Annotated[
        Literal["local", "ray"],
        typer.Option("--executor", help="What runs the shards: this process, or Ray's workers."),
    ] = "local"
    ray_workers: Annotated[int, typer.Option(min=1, help="With --executor ray: shards made at the same time.")] = 1
    ray_gpus: Annotated[float, typer.Option(min=0, help="With --executor ray: GPUs per worker; 0.5 shares one.")] = 0
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="With --executor ray: a running cluster, 'auto' for this machine's. Default: a cluster is started "
            "here, and Ray then listens on every network interface."
        ),
    ] = None

    @property
    def by_ray(self) -> bool:
        """Whether Ray runs the shards."""
        return self.executor == "ray"

    def check(self, keeping: JournalChoice, *, files: bool = True) -> None:
        """Refuse what Ray's workers cannot do: keep a journal, or read and write anything but `files`."""
        if self.by_ray and keeping.journal is not None:
            raise typer.BadParameter("Ray's processes keep no journal: leave out --journal.", param_hint="--executor")
        if self.by_ray and not files:
            raise typer.BadParameter("Ray reads and writes files: name both.", param_hint="--executor")

    def load(self) -> Executor | None:
        """Ray's executor, with a warning that Ray opens sockets; None for this process."""
        if not self.by_ray:
            return None
        from semtoken.executors.ray import RayExecutor
        from semtoken.support.extras import require

        require("ray", extra="ray")
        if self.ray_address is None:
            tell("Ray starts a cluster on this machine and listens on every network interface.", style="yellow")
        return RayExecutor(workers=self.ray_workers, gpus_per_worker=self.ray_gpus, address=self.ray_address)


def executor_options(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `ExecutorChoice`, in place of its parameter `spread`."""
    return option_group(ExecutorChoice, "spread", PANEL, **defaults)
