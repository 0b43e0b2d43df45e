"""Finds the functions of the package that each test calls, and how long it takes, by running all tests once.

It is a plugin for pytest around coverage.py, whose contexts are the tests, the fixtures and the files of tests. Code
that runs in other processes is not seen.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutation.functions import functions


class Reached:
    """Records the seconds of each test that passes, and the functions called, as `core/rules.py:Class.function`."""

    def __init__(self, source: Path, output: Path) -> None:
        self.source, self.output = source, output
        self.coverage = coverage.Coverage(data_file=None, config_file=False, source=[str(source)], messages=False)
        self.context = ""
        self.contexts: dict[str, set[str]] = defaultdict(set)
        """The contexts whose calls the outcome of a test or of a fixture rests on."""
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_sessionstart(self) -> None:
        """Begin to look."""
        self.coverage.start()

    @contextmanager
    def _within(self, context: str) -> Iterator[None]:
        outer, self.context = self.context, context
        self.coverage.switch_context(context)
        try:
            yield
        finally:
            self.context = outer
            self.coverage.switch_context(outer)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Each test uses whatever its file computes as it is imported."""
        with self._within(collector.nodeid.partition("::")[0]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Each of many tests uses whatever their fixture computes."""
        context = f"fixture {id(fixturedef)}"
        self.contexts[self.context].add(context)
        with self._within(context):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """One test."""
        _forget()
        fixtures: Any = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
        used = {f"fixture {id(one)}" for several in fixtures for one in several}
        self.contexts[item.nodeid] |= used | {item.nodeid, item.nodeid.partition("::")[0]}
        with self._within(item.nodeid):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tests that fail or are skipped notice nothing."""
        if report.when == "call":
            self.tests[report.nodeid] = {"passed": report.passed, "seconds": report.duration}

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        self.coverage.stop()
        called = self._called()
        passed = {
            test: one | {"called": sorted(set().union(*(called[context] for context in self._all_contexts(test))))}
            for test, one in self.tests.items()
            if one["passed"]
        }
        self.output.write_text(json.dumps(passed))

    def _all_contexts(self, test: str) -> set[str]:
        """The contexts of a test, and those of the fixtures that its fixtures asked for."""
        found: set[str] = set()
        left = [test]
        while left:
            for context in self.contexts[left.pop()] - found:
                found.add(context)
                left.append(context)
        return found

    def _called(self) -> dict[str, set[str]]:
        """The functions that ran in each context."""
        called: dict[str, set[str]] = defaultdict(set)
        data = self.coverage.get_data()
        for file in map(Path, data.measured_files()):
            if file.suffix != ".py":  # a template that was filled
                continue
            module = file.relative_to(self.source).as_posix()
            innermost = {line: one.name for one in functions(file.read_text()) for line in one.lines}
            for line, contexts in data.contexts_by_lineno(str(file)).items():
                for context in contexts if line in innermost else ():
                    called[context].add(f"{module}:{innermost[line]}")
        return called


def _forget() -> None:
    """Clear what functions of the tests remember, which later tests use without a call."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for one in list(vars(module).values()):
                if callable(clear := getattr(one, "cache_clear", None)) and one.__module__.startswith("tests."):
                    clear()
