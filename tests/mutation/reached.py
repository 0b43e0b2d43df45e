"""Which tests call which functions of the package, and how long they take: found by running them once.

It is a plugin for pytest. Calls are seen by `sys.settrace`; those in other processes are not.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutation.functions import functions


class Reached:
    """Records the seconds of each test that passes, and the functions called, as `tokens/rules.py:Class.function`."""

    def __init__(self, source: Path, output: Path) -> None:
        self.source, self.output = f"{source}/", output
        self.seen: set[CodeType] = set()
        self.of_files: dict[str, set[CodeType]] = defaultdict(set)
        self.of_fixtures: dict[int, set[CodeType]] = defaultdict(set)
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_sessionstart(self) -> None:
        """Begin to look."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_filename.startswith(self.source):
            self.seen.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """What a file computes as it is imported, each of its tests uses."""
        outer, self.seen = self.seen, set()
        try:
            return (yield)
        finally:
            self.of_files[collector.nodeid.partition("::")[0]] |= self.seen
            self.seen = outer

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """What a fixture of many tests computes, each of them uses."""
        outer, self.seen = self.seen, set()
        try:
            return (yield)
        finally:
            self.of_fixtures[id(fixturedef)] |= self.seen
            self.seen = outer | self.seen

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """One test."""
        _forget()
        self.seen = set()
        sys.settrace(self._called)  # a test may have taken it away
        result = yield
        fixtures: Any = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
        parts = [self.of_fixtures[id(one)] for several in fixtures for one in several]
        called = self.seen.union(self.of_files[item.nodeid.partition("::")[0]], *parts)
        found = {(code.co_filename, _names(code.co_filename).get(code.co_firstlineno)) for code in called}
        places = sorted(f"{file.removeprefix(self.source)}:{name}" for file, name in found if name)
        one = self.tests.setdefault(item.nodeid, {"passed": False})
        one["called"] = places
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tests that fail or are skipped notice nothing."""
        if report.when == "call":
            self.tests.setdefault(report.nodeid, {}).update(passed=report.passed, seconds=report.duration)

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        sys.settrace(None)
        threading.settrace(None)
        self.output.write_text(json.dumps({name: one for name, one in self.tests.items() if one["passed"]}))


@cache
def _names(file: str) -> dict[int, str]:
    return {one.line: one.name for one in functions(Path(file).read_text())}


def _forget() -> None:
    """Clear what functions of the tests remember, which later tests use without a call."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for one in list(vars(module).values()):
                if callable(clear := getattr(one, "cache_clear", None)) and one.__module__.startswith("tests."):
                    clear()
