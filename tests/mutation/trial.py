"""The outcome of one change: noticed by a test, or not."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.changes import Change
from tests.mutation.functions import functions
from tests.mutation.processes import run_tests
from tests.mutation.session import CANNOT, Session, Wanted

SIGNATURES = "tests/test_defaults.py"
"""A file of tests that read the signatures of all packages, which no call shows."""
FEW = 5
"""With fewer tests that call a function, those of the functions that name it run, too."""


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


class Trial:
    """Runs tests with changes of a copy of the package."""

    def __init__(
        self, source: Path, tests: dict[str, dict[str, Any]], session: Session, failed: Path, most: float
    ) -> None:
        self.source, self.tests, self.session, self.failed, self.most = source, tests, session, failed, most
        self.reached = {name: set(one["called"]) for name, one in tests.items()}
        self.sound: set[tuple[object, str]] = set()  # tests that failed with a change and do not without one
        self.times = 0

    def outcome(self, file: Path, change: Change) -> str:
        """A line that begins with "noticed" or "survived"."""
        while True:
            tests = self._chosen(file, change)
            if not tests:
                return "survived: no test calls it"
            run = self._loaded
            status, failed = run(tests, file, change)
            if status in (0, CANNOT):
                run = self._anew
                tests += [test for test in self.reached if test.startswith(SIGNATURES) and test not in tests]
                status, failed = run(tests, file, change)
            if status in (0, 5):
                return f"survived {len(tests)} tests"
            if status is None:
                return "noticed: a test does not end"
            if not failed:
                return "noticed: a file of tests cannot be read, or a process ends"
            if (run, failed) in self.sound or run([failed], file, None)[0] == 0:
                self.sound.add((run, failed))
                return f"noticed by {failed}"
            del self.reached[failed]  # it fails here without the change, too

    def _loaded(self, tests: list[str], file: Path, change: Change | None) -> tuple[int | None, str]:
        """In a fork of the process that has loaded everything."""
        return self.session.run(Wanted(file, change, {test: 10 + 6 * self._seconds(test) for test in tests}))

    def _anew(self, tests: list[str], file: Path, change: Change | None) -> tuple[int | None, str]:
        """In a process that loads the changed files."""
        before = file.read_text()
        self._write(file, change.source if change else before)
        self.failed.unlink(missing_ok=True)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        expected = sum(map(self._seconds, tests))
        status = run_tests(self.source, files, [Chosen(set(tests), self.failed)], 30 + 4 * expected)
        self._write(file, before)
        return status, self.failed.read_text() if self.failed.exists() else ""

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        self.times += 1  # compiled files are known by the time of their source in whole seconds
        os.utime(file, (self.times, self.times))
        if "compile_and_keep" in text:  # code of other files may have this one's in it
            for compiled in file.parent.glob("__pycache__/*.nb?"):
                compiled.unlink()

    def _chosen(self, file: Path, change: Change) -> list[str]:
        """The quickest tests that call the changed function, up to the limit, by file."""
        module = str(file.relative_to(self.source / "semtoken"))
        found = self._calling({f"{module}:{'.'.join(change.place[: k + 1])}" for k in range(len(change.place))})
        first = frozenset(found)
        if len(found) < FEW and change.place:  # of a module or a class, compiled, or remembered
            found |= self._calling(_naming(self.source / "semtoken", change.place[-1]))
        if not found:
            found = {
                test for test, called in self.reached.items() if any(one.startswith(f"{module}:") for one in called)
            }
        chosen: dict[str, list[str]] = defaultdict(list)
        left = self.most
        for test in sorted(found, key=lambda test: (test not in first, self._seconds(test))):
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
