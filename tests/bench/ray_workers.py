"""Works by Ray's workers, for test_run_ray.py: python -m tests.bench.ray_workers serve|kill|always FOLDER.

It writes what came of them into the file `told` of the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Loader:
    """Counts how often a model was loaded in this process."""

    loaded = 0

    def model(self) -> None:
        """Load it once."""
        if not self.loaded:
            self.loaded = 1
            with Path(os.environ["LOADED"]).open("a") as file:
                file.write(f"{os.getpid()}\n")


@dataclass(frozen=True)
class Lines:
    """A work whose shards say who made them; one of them kills its worker, once or always."""

    folder: Path
    name: str
    together: int
    """So many workers have begun before any of them makes a shard."""
    kills: int = -1
    always: bool = False

    def resolved(self) -> Lines:
        """Its folder is absolute."""
        return self

    def loader(self) -> Loader:
        """Holds the model."""
        return Loader()

    def open(self, loader: Loader, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Get ready."""
        loader.model()

        def make(shard: int) -> None:
            died = self.folder / "died"
            if shard == self.kills and (self.always or not died.exists()):
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (self.folder / f"{self.name}-{os.getpid()}.here").touch()
            until = time.monotonic() + 120
            while len(list(self.folder.glob(f"{self.name}-*.here"))) < self.together and time.monotonic() < until:
                time.sleep(0.02)
            with (self.folder / f"{self.name}.jsonl").open("a") as file:
                file.write(json.dumps({"shard": shard, "pid": os.getpid()}) + "\n")

        return make


def main(how: str, folder: Path) -> dict[str, Any]:
    """Run three works; returns the shards that were done, and why the executor gave up."""
    from semtoken.errors import BackendError
    from semtoken.support.executors.ray import RayExecutor

    executor, told, failure = RayExecutor(workers=2), {}, None
    try:
        for name, count in (("first", 6), ("second", 1), ("third", 6)):
            kills = 3 if name == "first" and how != "serve" else -1
            done: list[int] = []
            executor.run(Lines(folder, name, min(count, 2), kills, how == "always"), range(count), done.append)
            told[name] = done
    except BackendError as error:
        failure = str(error)
    executor.release()
    executor.release()  # there is nothing left, which is no error
    return {"done": told, "failure": failure}


if __name__ == "__main__":
    Path(sys.argv[2], "told").write_text(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
