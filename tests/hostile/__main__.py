"""Run campaigns: `python -m tests.hostile --help`."""

from __future__ import annotations

import logging
import random
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.hostile import damage, functions
from tests.hostile import kills as killing
from tests.hostile.outcomes import Outcome, table

NAMES = ("functions", "damage", "kills")


def run(
    campaigns: Annotated[list[str] | None, typer.Argument(help=f"Some of: {', '.join(NAMES)}. Default: all.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers; the same seed tries the same.")] = None,
    calls: Annotated[int, typer.Option(help="functions: calls of public functions.")] = 20_000,
    first: Annotated[int, typer.Option(help="functions: number of the first call.")] = 0,
    kills: Annotated[int, typer.Option(help="kills: of each command.")] = 3,
    every: Annotated[int, typer.Option(help="damage: change one byte in so many; 1: every one.")] = 997,
) -> None:
    """Attack semtoken, print what was tried and what survived, and exit with 1 unless all of it did."""
    logging.disable(logging.CRITICAL)
    unknown = set(campaigns or ()) - set(NAMES)
    if unknown:
        raise typer.BadParameter(f"There is no campaign {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}.")
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {seed}", flush=True)
    chosen = campaigns or list(NAMES)
    outcomes: list[Outcome] = []
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            if name == "functions":
                outcomes.append(functions.attack(seed, calls, first))
            elif name == "damage":
                outcomes += damage.attack(seed, every, Path(folder))
            else:
                outcomes += killing.attack(seed, kills, Path(folder))
        print(f"{name}: done", file=sys.stderr, flush=True)
    print(table(outcomes))
    raise typer.Exit(0 if all(not one.failures for one in outcomes) else 1)


if __name__ == "__main__":
    typer.run(run)
