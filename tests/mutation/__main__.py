"""Make random wrong changes and print those that no test notices: `python -m tests.mutation -n 200 --seed 1`.

The package is copied, so nothing here is changed. Some changes change nothing that anybody can see, such as `<` for
`<=` where both give the same: read what survives.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from tests.mutation.changes import change_number, count

ROOT = Path(__file__).parents[2]
PACKAGES = ("scoring", "calibration", "payloads", "parts", "journal", "decisions")


def run(
    n: Annotated[int, typer.Option("-n", help="How many changes.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed makes the same changes.")] = 1,
    packages: Annotated[list[str] | None, typer.Option(help="Packages of semtoken.")] = None,
    seconds: Annotated[float, typer.Option(help="Begin no further change after so long.")] = 1e9,
    tests: Annotated[str, typer.Option(help="Files of tests in place of those of the package, with blanks.")] = "",
    limit: Annotated[float, typer.Option(help="Seconds for the tests of one change; longer counts as noticed.")] = 600,
) -> None:
    """Make changes, run the tests of the package for each until one fails, and print what survives."""
    files = [file for name in packages or PACKAGES for file in sorted((ROOT / "src/semtoken" / name).rglob("*.py"))]
    places = [(file, number) for file in files for number in range(count(file.read_text()))]
    chosen = random.Random(seed).sample(places, min(n, len(places)))
    begun, tried, survivors = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in sorted({file.relative_to(ROOT / "src/semtoken").parts[0] for file, _ in chosen}):
            if _fails(Path(folder) / "src", tests.split() or [f"tests/{name}"], limit):
                raise typer.BadParameter(f"The tests of {name} fail, or take over {limit} seconds, without any change.")
        for file, number in chosen:
            if time.monotonic() - begun > seconds:
                break
            tried += 1
            change = change_number(file.read_text(), number)
            copied = Path(folder) / file.relative_to(ROOT)
            before = copied.read_bytes()
            copied.write_text(change.source)
            package = file.relative_to(ROOT / "src/semtoken").parts[0]
            noticed = _fails(Path(folder) / "src", tests.split() or [f"tests/{package}"], limit)
            copied.write_bytes(before)
            survivors += not noticed
            if not noticed:
                where = f"{file.relative_to(ROOT)}:{change.line}"
                print(f"survived: {where}: {change.before[:80]!r} -> {change.after[:80]!r}", flush=True)
    print(f"seed {seed}: {tried} changes of {len(places):,} tried, {survivors} survived")


def _fails(source: Path, tests: list[str], limit: float) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    known = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


if __name__ == "__main__":
    typer.run(run)
