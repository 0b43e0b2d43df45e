"""Make random wrong changes and print those that no test notices: `python -m tests.mutation -n 200 --seed 1`.

The package is copied, so nothing here is changed. The first run finds which tests call which functions, which takes
as long as these tests, and keeps that in build/mutation for as long as a file of tests stays as it is: a run that was
stopped goes on. For each change the tests that call the changed function run, quick files first, until one fails:
in a fork of a process that has loaded everything, whose functions get the changed code; where that cannot be done, or
no test fails, in a process that loads the changed file. Some changes change nothing that anybody can see, such as `<`
for `<=` where both give the same: read what survives.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.mutation.changes import changes
from tests.mutation.processes import FEW_EXAMPLES, ROOT, load_libraries, run_tests
from tests.mutation.reached import Reached
from tests.mutation.session import Session
from tests.mutation.trial import SIGNATURES, Trial

TESTS = {
    "core": ("core", "methods"),
    "guarantees": ("guarantees", "methods"),
    "replies": ("replies", "core", "web/test_proxy_editing.py", "web/test_proxy_shapes.py"),
}
"""Folders whose tests should notice a change in a package. Other packages have a folder of their own name."""
KEPT = ROOT / "build/mutation"
TOGETHER = 20
"""Files of tests that one process runs, to see what they call: each process begins with all imports."""
LONGEST = 3600
"""Seconds for so many."""


def run(
    n: Annotated[int, typer.Option("-n", help="How many changes.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed makes the same changes.")] = 1,
    packages: Annotated[
        list[str] | None, typer.Option(help="Packages of semtoken, or files in it. Default: all packages.")
    ] = None,
    tests: Annotated[list[str] | None, typer.Option(help="Folders of tests, or files.")] = None,
    seconds: Annotated[float, typer.Option(help="Begin no further change after so long.")] = 1e9,
    most: Annotated[float, typer.Option(help="Seconds of tests for one change, as they took without it.")] = 60,
) -> None:
    """Make changes, run the tests that reach each until one fails, and print what survives."""
    load_libraries()
    begun, tried = time.monotonic(), 0
    survivors: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        packages = packages or sorted(path.parent.name for path in (source / "semtoken").glob("*/__init__.py"))
        reached = {test: one for place in tests or _tests_of(packages) for test, one in _reached(place, source).items()}
        places = [
            (file, change)
            for package in packages
            for file in _files(source / "semtoken" / package)
            for change in changes(file.read_text())
        ]
        with Session(source, sorted(set(map(_file_of, reached)))) as session:
            trial = Trial(source, reached, session, folder / "failed.txt", most)
            for file, change in random.Random(seed).sample(places, min(n, len(places))):
                if time.monotonic() - begun > seconds:
                    break
                tried += 1
                outcome = trial.outcome(file, change)
                diff = change.diff(str(file.relative_to(source / "semtoken")))
                print(f"{tried:4} {time.monotonic() - begun:7.1f} s {outcome}\n{diff}\n", flush=True)
                if outcome.startswith("survived"):
                    survivors.append(f"{diff}\n{outcome}")
    print("\n\n".join([f"Survivors of seed {seed}:", *survivors]))
    print(f"\nseed {seed}: {tried} changes of {len(places):,} tried, {len(survivors)} survived")


def _tests_of(packages: list[str]) -> list[str]:
    """The folders of tests for some packages, or files in them, each once; and those of signatures."""
    names = [Path(package).parts[0].removesuffix(".py") for package in packages]
    folders = [folder for name in names for folder in TESTS.get(name, (name,))]
    return list(dict.fromkeys([*folders, SIGNATURES.removeprefix("tests/")]))


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _reached(folder: str, source: Path) -> dict[str, dict[str, Any]]:
    """The calls of the tests of a folder, and their seconds, from earlier runs or, where a file changed, from now."""
    place = ROOT / "tests" / folder
    files = [str(file.relative_to(ROOT)) for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])]
    missing = [file for file in files if not _kept(file).exists()]
    if missing:
        print(f"Finding which functions {len(missing)} files of tests/{folder} call ...", flush=True)
        KEPT.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(missing), TOGETHER):
        some = missing[start : start + TOGETHER]
        seen = _seen(some, source)
        for file in some:
            _kept(file).write_text(json.dumps({test: one for test, one in seen.items() if _file_of(test) == file}))
    return {test: one for file in files for test, one in json.loads(_kept(file).read_text()).items()}


def _seen(files: list[str], source: Path) -> dict[str, dict[str, Any]]:
    """Run some files in one process; where a test ends that process, which leaves nothing, each in one of its own."""
    output = source.parent / "reached.json"
    output.write_text("{}")
    options = ("--maxfail=1000000", f"--hypothesis-profile={FEW_EXAMPLES}")
    run_tests(source, [*options, *files], [Reached(source / "semtoken", output)], LONGEST)
    seen: dict[str, dict[str, Any]] = json.loads(output.read_text())
    if not seen and len(files) > 1:
        return {test: one for file in files for test, one in _seen([file], source).items()}
    return seen


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _kept(file: str) -> Path:
    """The file that keeps what the tests of a file call, for as long as the file stays as it is."""
    version = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]
    return KEPT / f"{file.replace('/', '.')}.{version}.json"


if __name__ == "__main__":
    typer.run(run)
