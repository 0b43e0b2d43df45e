"""`JournalWriter`: takes entries at once, and brings them into the database in a thread of its own.

`write_file` brings a file of a spool into the database, each entry once. While the database takes nothing, whatever
the reason, entries wait. One that no database would take keeps no other back: it is set aside in a file.
`WriterProcess` does it in a process of its own, so that a server's threads never wait for the database or with it: it
takes the names of files, line by line, says what became of each, and ends with the one that started it. Whatever
happens to it, the entries stay in the spool until it has said that the database has them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
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
from semtoken.guarantees.journal.entries import JournalEntry
from semtoken.guarantees.journal.spool import (
    SET_ASIDE,
    Spool,
    left_behind,
    lines_of,
    set_aside,
    set_aside_beside,
    spool_folder,
)
from semtoken.guarantees.journal.store import Journal
from semtoken.support.files.safe_files import MEBIBYTE

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
    """Whether an error is about the values of a row: too long, bad text, a number out of range, one that is missing.

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
                [sys.executable, "-c", "from semtoken.guarantees.journal.writer import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # The process must not import modules from the current folder.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                text=True,
            )
            self._say(self._process, self._url)
        return self._process

    def write(self, file: Path, refused: Callable[[str], None]) -> int:
        """As `write_file`; `OSError` if the database takes nothing now, or the process has ended."""
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
    os._exit(0)  # there is nothing to tidy up, and nobody to read what would be said of a pipe that is gone


def _write_and_report(journal: Journal, file: Path) -> dict[str, Any]:
    refused: list[str] = []
    try:
        return {"written": write_file(journal, file, refused.append), "refused": refused}
    except (SQLAlchemyError, OSError) as error:
        return {"problem": cause(error)}


logger = logging.getLogger("semtoken.journal")

MOST_WAITING = 256 * MEBIBYTE
PAUSE = 0.5
"""Seconds between two looks for new entries."""
LONGEST_PAUSE = 5.0
"""Seconds between two attempts while the database is away."""
GRACE = 5.0
"""Seconds that closing may take; what waits then stays in the spool."""


def longer_pause(pause: float) -> float:
    """The pause after another attempt that failed: twice as long, and `LONGEST_PAUSE` at most."""
    return min(2 * pause, LONGEST_PAUSE)


@dataclass(frozen=True)
class Figures:
    """Counts of the entries of this process by their fate, and the bytes of those that wait."""

    acknowledged: int
    written: int
    dropped: int
    """Entries that were lost: too many wait, or the disk is full."""
    set_aside: int
    """Entries that no database would take, which are kept in the file `SET_ASIDE` beside the spools."""
    waiting_bytes: int
    problem: str | None
    """Why entries wait, if the last attempt failed."""


class JournalWriter:
    """Takes entries without delay; a thread writes them into the database.

    `put` writes to a local file and returns: from then on an entry is acknowledged, and the end of the process, a
    database that is away and a full disk do not lose it. A file is not forced to the disk, so a power cut may lose what
    came within the last moments. What comes beyond `most_waiting` bytes is dropped and counted. `apart` writes in a
    process of its own: a thread that writes would keep those that answer requests waiting.
    """

    def __init__(
        self,
        journal: Journal,
        folder: Path | None = None,
        most_waiting: int = MOST_WAITING,
        *,
        apart: bool = False,
    ) -> None:
        self.journal = journal
        self._process = WriterProcess(journal) if apart else None
        self._folder = folder or spool_folder(journal.engine.url)
        self._most_waiting = most_waiting
        self._spool: Spool | None = None
        self._stop, self._thread = Event(), Thread(target=self._run, name="journal", daemon=True)
        self._counting = Lock()
        self._adopted = False
        self._counts = dict.fromkeys(("acknowledged", "written", "dropped", "set_aside"), 0)
        self._problem: str | None = None
        self.on_change: Callable[[str, int], None] = lambda what, n: None
        """Called with `acknowledged`, `written`, `dropped` or `set_aside` and by how many entries it has grown."""

    def start(self) -> None:
        """Open the spool, and start the thread that writes to the database."""
        self._spool = Spool(self._folder, self._most_waiting)
        self._thread.start()

    def put(self, entry: JournalEntry) -> bool:
        """Hand over an entry without waiting for the database; returns False if it was dropped. Never raises."""
        try:
            refused = "closed" if self._spool is None else self._spool.append(entry.line())
        except Exception:
            logger.exception("An entry could not be kept")
            refused = "failed"
        if refused is not None and not self._counts["dropped"]:
            logger.warning("The journal drops entries: %s", refused)
        self._count("acknowledged" if refused is None else "dropped", 1)
        return refused is None

    @property
    def figures(self) -> Figures:
        """The figures so far."""
        waiting = 0 if self._spool is None else self._spool.waiting_bytes
        return Figures(**self._counts, waiting_bytes=waiting, problem=self._problem)

    @property
    def set_aside_file(self) -> Path:
        """The file for entries that no database would take."""
        return self._folder / SET_ASIDE

    def flush(self, seconds: float = GRACE) -> bool:
        """Wait until the database has all entries or the time is over; returns whether it has."""
        end = monotonic() + seconds
        while self.figures.waiting_bytes and monotonic() < end:
            self._stop.wait(0.01)
        return not self.figures.waiting_bytes

    def close(self) -> None:
        """Write the waiting entries if the database accepts them; the others stay in the spool."""
        if self._spool is None:
            return
        self._stop.set()
        self._thread.join(GRACE)
        if not self._thread.is_alive():
            self._spool.close()
        self._spool = None

    def _count(self, what: str, n: int) -> None:
        with self._counting:
            self._counts[what] += n
        self.on_change(what, n)

    def _write(self, file: Path) -> int:
        if self._process is not None:
            return self._process.write(file, self._count_refused)
        return write_file(self.journal, file, self._count_refused)

    def _run(self) -> None:
        pause = PAUSE
        while True:
            stopping = self._stop.is_set()
            try:
                if self._process is not None:
                    self._process.start()
                self._adopt()
                self._drain(stopping)
                pause, self._problem = PAUSE, None
            except (SQLAlchemyError, OSError) as error:
                problem = cause(error)
                if problem != self._problem:
                    logger.warning("The journal cannot be written, entries wait: %s", problem)
                pause, self._problem = longer_pause(pause), problem
            if stopping:
                break
            self._stop.wait(pause)
        if self._process is not None:
            self._process.close()

    def _adopt(self) -> None:
        if self._adopted:
            return
        self._count("written", adopt_left_behind(self.journal, self._folder, self._write))
        self._adopted = True

    def _drain(self, stopping: bool) -> None:
        assert self._spool is not None
        begun = monotonic()
        for file in self._spool.take():
            # Written first and removed then: after a kill between the two it is written again, where every entry is
            # known.
            n = self._write(file)
            self._spool.remove(file)
            self._count("written", n)
            if stopping and monotonic() - begun > GRACE:
                return

    def _count_refused(self, why: str) -> None:
        if not self._counts["set_aside"]:
            logger.warning(
                "An entry can never be written to the database; it is kept in %s: %s", self.set_aside_file, why
            )
        self._count("set_aside", 1)


def adopt_left_behind(
    journal: Journal,
    folder: Path | None = None,
    write: Callable[[Path], int] | None = None,
    refused: Callable[[str], None] = lambda why: None,
) -> int:
    """Write the entries of processes that ended before they could write them; returns how many.

    `write` writes a file, by default `write_file` with `refused`; what it raises if the database takes nothing now is
    passed on.
    """
    folder, n = folder or spool_folder(journal.engine.url), 0
    if not folder.is_dir():
        return 0
    with left_behind(folder) as files:
        for file in files:
            n += write_file(journal, file, refused) if write is None else write(file)
            file.unlink()
    return n
