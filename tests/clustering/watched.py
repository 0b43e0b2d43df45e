"""Writes down whatever asks for clusters, for their cache or for another machine while something else is done.

`python -m tests.clustering.watched LOG WORDS...` runs a command of semtoken in this way, as a process of its own.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import semtoken.cli.app
from semtoken.clustering import cache, partition, token_clusters
from semtoken.clustering.token_clusters import TokenClusters

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    partition.cluster_table,
    partition.cluster_tokens,
    token_clusters.cluster_vocabulary,
    cache.clusters_for_model,
    cache.directory,
    cache.find,
    cache.store,
    cache.kept_for,
)


@contextmanager
def watched(see: Callable[[str], None]) -> Iterator[None]:
    """Call `see` with a line for each such call, from any thread; the calls do what they always do."""
    changed: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, name: str, what: str) -> None:
        original = getattr(owner, name)
        changed.append((owner, name, original))

        @wraps(original)
        def told(*args: Any, **kwargs: Any) -> Any:
            see(what)
            return original(*args, **kwargs)

        setattr(owner, name, told)

    for function in FUNCTIONS:
        for module in [one for name, one in sys.modules.items() if name.startswith("semtoken")]:
            for name in [name for name, value in vars(module).items() if value is function]:
                replace(module, name, f"{function.__module__}.{function.__name__}")
    replace(TokenClusters, "__post_init__", "clusters came to be")
    connect = socket.socket.connect

    def connected(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            see(f"a connection to {address[0]}")
        connect(self, address)

    changed.append((socket.socket, "connect", connect))
    setattr(socket.socket, "connect", connected)  # noqa: B010
    try:
        yield
    finally:
        for owner, name, original in reversed(changed):
            setattr(owner, name, original)


def main(log: Path, words: list[str]) -> None:
    """Run a command under watch; the lines go to a file."""

    def see(what: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(what + "\n")

    with watched(see):
        sys.exit(semtoken.cli.app.launch(words))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
