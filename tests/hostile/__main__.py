"""Run campaigns: `python -m tests.hostile --help`."""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from tests.hostile.campaigns import ATTACKS, outcomes_of
from tests.hostile.outcomes import Outcome, table


def run(
    campaigns: Annotated[list[str] | None, typer.Argument(help=f"Some of: {', '.join(ATTACKS)}. Default: all.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers; the same seed tries the same.")] = None,
    calls: Annotated[int, typer.Option(help="functions: calls of public functions.")] = 20_000,
    first: Annotated[int, typer.Option(help="functions, questions: number of the first case.")] = 0,
    answers: Annotated[int, typer.Option(help="intervals: answers, each with its list and all its logits.")] = 300,
    texts: Annotated[int, typer.Option(help="outputs: texts, each through five outputs.")] = 100,
    parts: Annotated[int, typer.Option(help="texts: pairs of a short and a long text, through every finder.")] = 4,
    every: Annotated[int, typer.Option(help="damage: change one byte in so many; 1: every one.")] = 499,
    kills: Annotated[int, typer.Option(help="kills: of each of eight commands.")] = 3,
    requests: Annotated[int, typer.Option(help="traffic: requests through the proxy.")] = 1000,
    asked: Annotated[
        int, typer.Option(help="serving: requests to `serve`, each of them alone and among others.")
    ] = 100,
    questions: Annotated[int, typer.Option(help="questions: odd requests for typed questions.")] = 300,
    parents: Annotated[int, typer.Option(help="parents: first processes of servers that are killed.")] = 2,
    routes: Annotated[int, typer.Option(help="routes: requests to each route that takes a body.")] = 100,
) -> None:
    """Attack semtoken, print what was tried and what survived, and exit with 1 unless all of it did."""
    chosen = campaigns or list(ATTACKS)
    unknown = set(chosen) - set(ATTACKS)
    if unknown:
        raise typer.BadParameter(f"There is no campaign {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}.")
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {seed}", flush=True)
    outcomes: list[Outcome] = []
    sizes: dict[str, tuple[int, ...]] = {
        "functions": (calls, first),
        "intervals": (answers,),
        "outputs": (texts,),
        "texts": (parts,),
    }
    sizes |= {"damage": (every,), "kills": (kills,), "traffic": (requests,), "serving": (asked,)}
    sizes |= {"questions": (questions, first), "parents": (parents,), "routes": (routes,)}
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            # In a process of its own: some copy theirs (os.fork), and a copy of one that has used threads hangs.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                outcomes += pool.submit(outcomes_of, name, seed, sizes[name], Path(folder)).result()
            print(f"{name}: done", file=sys.stderr, flush=True)
    print(table(outcomes))
    raise typer.Exit(0 if all(not one.failures for one in outcomes) else 1)


if __name__ == "__main__":
    typer.run(run)
