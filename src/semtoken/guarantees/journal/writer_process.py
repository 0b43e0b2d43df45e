"""Files of a spool, brought into the database each entry once, by this process or by one of its own.

While the database takes nothing, whatever the reason, entries wait. One that no database would take keeps no other
back: it is set aside in a file. With `WriterProcess` a server's threads never wait for the database: the process takes
the names of files, line by line, says what became of each, and ends with the one that started it. Whatever happens to
it, the entries stay in the spool until it has said that the database has them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from semtoken.guarantees.journal.database import cause, engine_of, url_of
from semtoken.guarantees.journal.spool import lines_of, set_aside, set_aside_beside
from semtoken.guarantees.journal.store import Journal

TOGETHER = 2_000
"""Most entries of one transaction."""
NICE = 10
"""The process's niceness: others go first where the machine is busy."""
ENDED = "The process that writes it has ended."


def write_file(journal: Journal, file: Path, refused: Callable[[str], None]) -> int:
    """Write the entries of a spool file into the journal, each once; returns how many.

    Those that can never be written are set aside (`set_aside_beside`), and `refused` gets the reason of each.
    `SQLAlchemyError` if the database takes nothing now: it is away, full, read-only, or a table or a right is missing.
    The next attempt leaves out those that were written.
    """
    n = 0
    lines = lines_of(file)
    aside: list[tuple[Mapping[str, Any], str]] = []
    while rows := list(islice(lines, TOGETHER)):
        bad = _refused_rows(journal, rows)
        n += len(rows) - len(bad)
        aside += bad
    if aside:  # once all others are written: an attempt that is broken off here begins with the whole file again
        entries, reasons = zip(*aside, strict=True)
        set_aside(set_aside_beside(file), entries, reasons)
        for why in reasons:
            refused(why)
    return n


def _refused_rows(journal: Journal, rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """Write rows, together if possible; returns those that can never be written, with the reasons."""
    try:
        journal.add(rows)
    except Exception as error:
        if not can_never_be_written(error):
            journal.engine.dispose()  # a connection may stay with a standby, or read-only, after that has ended
            raise
        if len(rows) == 1:
            return [(rows[0], cause(error))]
        # One bad row refuses the whole transaction, so each is tried alone.
        return [bad for row in rows for bad in _refused_rows(journal, [row])]
    return []


def can_never_be_written(error: Exception) -> bool:
    """True if an error is about the values of a row: too long, bad text, a number out of range, one that is missing.

    All else may pass: a database that was made read-only, a grant or a table that is missing for a while.
    """
    if isinstance(error, DBAPIError):
        of_the_driver = isinstance(error, ProgrammingError) and getattr(error.orig, "sqlstate", None) is None
        return isinstance(error, DataError | IntegrityError) or of_the_driver  # no server has seen the last
    return isinstance(error, StatementError | ValueError | TypeError | OverflowError)


class WriterProcess:
    """A process that writes spool files, for one thread at a time, into a journal that was opened before."""

    def __init__(self, journal: Journal) -> None:
        self._url = journal.engine.url.render_as_string(hide_password=False)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """Start the process if it does not run; returns it. `OSError` if it cannot be started."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from semtoken.guarantees.journal.writer_process import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # The process must not import modules from the current folder.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                text=True,
            )
            self._say(self._process, self._url)
        return self._process

    def write(self, file: Path, refused: Callable[[str], None]) -> int:
        """Do what `write_file` does; `OSError` if the database takes nothing now, or the process has ended."""
        process = self.start()
        assert process.stdout is not None
        self._say(process, str(file))
        line = process.stdout.readline()
        if not line:
            raise OSError(ENDED)
        outcome = json.loads(line)
        if "problem" in outcome:
            raise OSError(outcome["problem"])
        for why in outcome["refused"]:
            refused(why)
        return int(outcome["written"])

    def close(self) -> None:
        """Close the input of the process, which ends once it has written what it was given; waits a second for that."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)

    @staticmethod
    def _say(process: subprocess.Popen[str], what: str) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()


def main() -> None:
    """Entry point of the process: reads the database's address, then names of files until the input ends."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # meant for the server, which has something to write until its end
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with suppress(OSError, AttributeError):  # not every system has all of it
        # Whoever answers requests goes first where processors are scarce.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.nice(NICE)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not stand among the answers
    journal = Journal(engine_of(url_of(json.loads(sys.stdin.readline()))))
    with suppress(BrokenPipeError):
        for line in sys.stdin:
            print(json.dumps(_write_and_report(journal, Path(json.loads(line)))), file=answers, flush=True)
    journal.close()
    os._exit(0)  # nobody is there to read what would be said of a pipe that is gone


def _write_and_report(journal: Journal, file: Path) -> dict[str, Any]:
    refused: list[str] = []
    try:
        return {"written": write_file(journal, file, refused.append), "refused": refused}
    except (SQLAlchemyError, OSError) as error:
        return {"problem": cause(error)}
