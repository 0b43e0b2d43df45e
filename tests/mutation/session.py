"""A process that has loaded the package and collected the tests once, and forks to run some of them with a change."""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import shutil
import signal
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.mutation.changes import Change
from tests.mutation.processes import in_child, run, status_of
from tests.mutation.swapping import functions_in, swap

LEFT_OUT = ("__main__", "integrations", "engines")
"""Modules that need what may not be installed, or that do something when they are imported."""
CANNOT = 9
"""The status of a child that cannot have the change, since more than the code of functions changes."""


@dataclass(frozen=True)
class Wanted:
    """The tests that a session is asked to run, with a change."""

    file: Path
    change: Change | None
    tests: dict[str, float]
    """In this order, with the seconds that each may take."""


class Session:
    """Runs tests one after another in forks of a process that waits; a context in which that process lives."""

    def __init__(self, source: Path, files: list[str]) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._child = in_child(lambda: self._wait(source, files, theirs))
        theirs.close()

    def _wait(self, source: Path, files: list[str], theirs: Connection) -> int:
        self._pipe.close()  # else this process would keep it open, and not see its end
        return run(source, files, [_Waiting(source, theirs)])

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._pipe.close()
        status_of(self._child, 10)

    def run(self, wanted: Wanted) -> tuple[int | None, str]:
        """The status as pytest gives it, `CANNOT`, or None after the limit; and the test that failed.

        Raises RuntimeError if the process is gone.
        """
        try:
            self._pipe.send(wanted)
            status, failed = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise RuntimeError("The tests cannot be collected: `pytest --collect-only -q tests` says why.") from error
        return None if status == -signal.SIGALRM else status, failed


class _Waiting:
    """A plugin for pytest that collects the tests, and then runs what it is asked for."""

    def __init__(self, source: Path, pipe: Connection) -> None:
        self.source, self.pipe, self.failed = source, pipe, ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Look for the functions before the objects that are alive are hidden from the garbage collector."""
        for module in pkgutil.walk_packages([str(self.source / "semtoken")], "semtoken."):
            if not any(part in module.name for part in LEFT_OUT):
                with suppress(ImportError):  # of an extra that is not installed
                    importlib.import_module(module.name)
        self.functions = functions_in(str(self.source))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until nobody asks any more."""
        items = {item.nodeid: item for item in session.items}
        while True:
            try:
                wanted = self.pipe.recv()
            except EOFError:
                return True
            self.pipe.send(self._answer(wanted, session, items))

    def _answer(self, wanted: Wanted, session: pytest.Session, items: dict[str, pytest.Item]) -> tuple[int | None, str]:
        folder = Path(tempfile.mkdtemp(prefix="mutation"))
        failed = folder / "failed"
        child = in_child(lambda: self._run(wanted, session, [items[test] for test in wanted.tests], folder))
        status = status_of(child, sum(wanted.tests.values()))
        try:
            return status, failed.read_text() if failed.exists() else ""
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first one that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def _run(self, wanted: Wanted, session: pytest.Session, items: list[pytest.Item], folder: Path) -> int:
        file, change = wanted.file, wanted.change
        if change and not swap(str(file), change.before, change.source, self.functions):
            return CANNOT
        (folder / "base").mkdir()
        session.config._tmp_path_factory._basetemp = folder / "base"  # type: ignore[attr-defined]
        for item, following in zip(items, [*items[1:], None], strict=True):
            signal.alarm(round(wanted.tests[item.nodeid]))  # it ends this process
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                (folder / "failed").write_text(self.failed)
                return 1
        return 0
