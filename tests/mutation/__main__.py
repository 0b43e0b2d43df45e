"""Make random wrong changes and print those that no test notices: `python -m tests.mutation -n 200 --seed 1`.

The package is copied, so nothing here is changed. The first run finds which tests call which functions, which takes
as long as these tests, and keeps that in build/mutation for as long as a file of tests stays as it is: a run that was
stopped goes on. For each change the tests that call the changed function run, quick files first, until one fails. Some
changes change nothing that anybody can see, such as `<` for `<=` where both give the same: read what survives.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from tests.mutation.changes import Change, changes
from tests.mutation.functions import functions
from tests.mutation.processes import FEW_EXAMPLES, ROOT, load_libraries, run_tests
from tests.mutation.reached import Reached

TESTS = {
    "scoring": ("scoring", "results", "engine_tokens", "methods"),
    "calibration": ("calibration", "metrics"),
    "payloads": ("payloads", "engine_tokens", "checking", "web/test_proxy_editing.py", "web/test_proxy_shapes.py"),
    "parts": ("parts", "results"),
    "journal": ("journal",),
    "decisions": ("decisions",),
}
"""Folders whose tests should notice a change in a package. Other packages have a folder of their own name."""
FEW = 5
"""With fewer tests that call a function, those of the functions that name it run, too."""
KEPT = ROOT / "build/mutation"
LONGEST = 1800
"""Seconds for one file of tests while it is seen what they call."""


class Chosen:
    """A plugin for pytest that runs only some tests and writes which one failed."""

    def __init__(self, tests: set[str], output: Path) -> None:
        self.tests, self.output = tests, output

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        items[:] = [item for item in items if item.nodeid in self.tests]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first one that failed."""
        if report.failed:
            self.output.write_text(report.nodeid)


def run(
    n: Annotated[int, typer.Option("-n", help="How many changes.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed makes the same changes.")] = 1,
    packages: Annotated[list[str] | None, typer.Option(help="Packages of semtoken, or files in it.")] = None,
    tests: Annotated[list[str] | None, typer.Option(help="Folders of tests, or files.")] = None,
    seconds: Annotated[float, typer.Option(help="Begin no further change after so long.")] = 1e9,
    most: Annotated[float, typer.Option(help="Seconds of tests for one change, as they took without it.")] = 120,
) -> None:
    """Make changes, run the tests that reach each until one fails, and print what survives."""
    load_libraries()
    begun, tried = time.monotonic(), 0
    survivors: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        packages = packages or list(TESTS)
        reached = {test: one for place in tests or _tests_of(packages) for test, one in _reached(place, source).items()}
        places = [
            (file, change)
            for package in packages
            for file in _files(source / "semtoken" / package)
            for change in changes(file.read_text())
        ]
        trial = _Trial(source, reached, folder / "failed.txt", most)
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
    """The folders of tests for some packages, or files in them, each once."""
    names = [Path(package).parts[0].removesuffix(".py") for package in packages]
    return list(dict.fromkeys(folder for name in names for folder in TESTS.get(name, (name,))))


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _reached(folder: str, source: Path) -> dict[str, dict[str, Any]]:
    """What the tests of a folder call and how long they take, from earlier runs or, where a file changed, from now."""
    place = ROOT / "tests" / folder
    files = [str(file.relative_to(ROOT)) for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])]
    missing = [file for file in files if not _kept(file).exists()]
    if missing:
        print(f"Finding which functions {len(missing)} files of tests/{folder} call ...", flush=True)
        KEPT.mkdir(parents=True, exist_ok=True)
    for file in missing:
        output = source.parent / "reached.json"
        output.write_text("{}")
        few = f"--hypothesis-profile={FEW_EXAMPLES}"
        run_tests(source, ["--maxfail=1000000", few, file], [Reached(source / "semtoken", output)], LONGEST)
        _kept(file).write_text(output.read_text())
    return {test: one for file in files for test, one in json.loads(_kept(file).read_text()).items()}


def _kept(file: str) -> Path:
    """Where it is kept what the tests of a file call, for as long as the file stays as it is."""
    version = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]
    return KEPT / f"{file.replace('/', '.')}.{version}.json"


class _Trial:
    """Runs tests on changed copies of a package."""

    def __init__(self, source: Path, tests: dict[str, dict[str, Any]], failed: Path, most: float) -> None:
        self.source, self.tests, self.failed, self.most = source, tests, failed, most
        self.reached = {name: set(one["called"]) for name, one in tests.items()}
        self.sound: set[str] = set()  # tests that failed with a change and do not without one
        self.times = 0

    def outcome(self, file: Path, change: Change) -> str:
        """What the tests say of a change."""
        before = file.read_text()
        while True:
            chosen = self._chosen(file, change)
            self._write(file, change.source)
            status, failed = self._run(chosen)
            self._write(file, before)
            if status in (0, 5):
                return f"survived {len(chosen)} tests"
            if status is None:
                return "noticed: a test does not end"
            if not failed:
                return "noticed: a file of tests cannot be read"
            if failed in self.sound or self._run([failed])[0] == 0:
                self.sound.add(failed)
                return f"noticed by {failed}"
            del self.reached[failed]  # it fails here without the change, too

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        self.times += 1  # compiled files are known by the time of their source in whole seconds
        os.utime(file, (self.times, self.times))
        if "compile_and_keep" in text:  # code of other files may have this one's in it
            for compiled in file.parent.glob("__pycache__/*.nb?"):
                compiled.unlink()

    def _run(self, tests: list[str]) -> tuple[int | None, str]:
        self.failed.unlink(missing_ok=True)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        expected = sum(self.tests[test]["seconds"] for test in tests)
        status = run_tests(self.source, files, [Chosen(set(tests), self.failed)], 30 + 4 * expected)
        return status, self.failed.read_text() if self.failed.exists() else ""

    def _chosen(self, file: Path, change: Change) -> list[str]:
        """The quickest tests that call the changed function, up to the limit, by file."""
        module = str(file.relative_to(self.source / "semtoken"))
        found = self._calling({f"{module}:{'.'.join(change.place[: k + 1])}" for k in range(len(change.place))})
        if len(found) < FEW and change.place:  # of a module or a class, compiled, or remembered
            found |= self._calling(_naming(self.source / "semtoken", change.place[-1]))
        if not found:
            found = {
                test for test, called in self.reached.items() if any(one.startswith(f"{module}:") for one in called)
            }
        chosen: dict[str, list[str]] = defaultdict(list)
        left = self.most
        for test in sorted(found, key=self._seconds):
            left -= self._seconds(test)
            if left < 0 and chosen:
                break
            chosen[test.partition("::")[0]].append(test)
        return [test for tests in sorted(chosen.values(), key=lambda t: sum(map(self._seconds, t))) for test in tests]

    def _calling(self, functions: set[str]) -> set[str]:
        return {test for test, called in self.reached.items() if functions & called}

    def _seconds(self, test: str) -> float:
        return float(self.tests[test]["seconds"])


def _naming(package: Path, name: str) -> set[str]:
    """The functions whose text has a name in it."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    return {
        f"{file.relative_to(package)}:{function.name}"
        for file in package.rglob("*.py")
        if word.search(text := file.read_text())
        for function in functions(text)
        if word.search(function.text)
    }


if __name__ == "__main__":
    typer.run(run)
