"""Run campaigns: `python -m tests.hostile --help`."""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tests.hostile import functions, serving, texts, traffic
from tests.hostile import routes as of_routes
from tests.hostile.outcomes import Outcome, outcome_of, table

CAMPAIGNS = ("functions", "texts", "routes", "traffic", "serving")


def run(
    campaigns: Annotated[
        list[str] | None, typer.Argument(help=f"Some of: {', '.join(CAMPAIGNS)}. Default: all.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers; the same seed tries the same.")] = None,
    calls: Annotated[int, typer.Option(help="functions: calls of public functions.")] = 20_000,
    first: Annotated[int, typer.Option(help="functions: number of the first call.")] = 0,
    parts: Annotated[int, typer.Option(help="texts: pairs of a short and a long text, through every finder.")] = 4,
    routes: Annotated[int, typer.Option(help="routes: requests to each route that takes a body.")] = 100,
    requests: Annotated[int, typer.Option(help="traffic: requests through the proxy.")] = 1000,
    asked: Annotated[
        int, typer.Option(help="serving: requests to `serve`, each of them alone and among others.")
    ] = 100,
) -> None:
    """Attack semtoken, print what was tried and what survived, and exit with 1 unless all of it did."""
    chosen = campaigns or list(CAMPAIGNS)
    unknown = set(chosen) - set(CAMPAIGNS)
    if unknown:
        raise typer.BadParameter(
            f"There is no campaign {', '.join(sorted(unknown))}; there are {', '.join(CAMPAIGNS)}."
        )
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {seed}", flush=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        attacks: dict[str, Callable[[], Outcome]] = {
            "functions": partial(functions.attack, seed, calls, first),
            "texts": partial(texts.attack, seed, parts),
            "routes": partial(of_routes.attack, seed, routes, Path(folder)),
            "traffic": partial(traffic.attack, seed, requests),
            "serving": partial(serving.attack, seed, asked),
        }
        for name in chosen:
            # In a process of its own: some copy theirs (os.fork), and a copy of one that has used threads hangs.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                outcomes.append(pool.submit(outcome_of, attacks[name], folder).result())
            print(f"{name}: done", file=sys.stderr, flush=True)
    print(table(outcomes))
    raise typer.Exit(0 if all(not one.failures for one in outcomes) else 1)


if __name__ == "__main__":
    typer.run(run)
