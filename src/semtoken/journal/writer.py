"""`JournalWriter`: takes entries at once, and brings them into the database in a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from semtoken.files.safe_files import MEBIBYTE
from semtoken.journal.database import cause
from semtoken.journal.entries import JournalEntry
from semtoken.journal.spool import Spool, left_behind, spool_folder
from semtoken.journal.store import Journal
from semtoken.journal.writing import WriterProcess, write_file

logger = logging.getLogger("semtoken.journal")

MOST_WAITING = 256 * MEBIBYTE
PAUSE = 0.5
"""Seconds between two looks for new entries."""
LONGEST_PAUSE = 5.0
"""Seconds between two attempts while the database is away."""
GRACE = 5.0
"""Seconds that closing may take; what waits then stays in the spool."""


@dataclass(frozen=True)
class Figures:
    """How many entries of this process were acknowledged, written and dropped, and how many bytes are waiting."""

    acknowledged: int
    written: int
    dropped: int
    """Entries that were refused since too many wait, the disk is full, or the database does not take them."""
    waiting_bytes: int
    problem: str | None
    """Why entries wait, if the last attempt failed."""


class JournalWriter:
    """Takes entries without delay; a thread writes them into the database.

    `put` writes to a local file and returns: from then on an entry is acknowledged, and the end of the process, a
    database that is away and a full disk do not lose it. A file is not forced to the disk, so a power cut may lose
    what came within the last moments. `start` it before use, `close` it at the end.

    Parameters
    ----------
    journal
        The journal that the entries are written to.
    folder
        The folder of the spool. Default: beside an SQLite file, in the user's state folder for PostgreSQL.
    most_waiting
        Bytes that may wait for the database; what comes beyond is dropped and counted.
    apart
        Whether to write in a process of its own: a thread that writes would keep those that answer requests waiting.
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
        self._acknowledged = self._written = self._dropped = 0
        self._problem: str | None = None
        self.on_change: Callable[[str, int], None] = lambda what, n: None
        """Called with `acknowledged`, `written` or `dropped` and a number of entries whenever one of these grows."""

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
        if refused is None:
            with self._counting:
                self._acknowledged += 1
            self.on_change("acknowledged", 1)
            return True
        self._drop(1, refused)
        return False

    @property
    def figures(self) -> Figures:
        """How many entries were acknowledged, written and dropped so far, and how many bytes are waiting."""
        waiting = 0 if self._spool is None else self._spool.waiting_bytes
        return Figures(self._acknowledged, self._written, self._dropped, waiting, self._problem)

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

    def _drop(self, n: int, why: str) -> None:
        if self._dropped == 0:
            logger.warning("The journal drops entries: %s", why)
        with self._counting:
            self._dropped += n
        self.on_change("dropped", n)

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
                told = cause(error)
                if told != self._problem:
                    logger.warning("The journal cannot be written, entries wait: %s", told)
                pause, self._problem = min(2 * pause, LONGEST_PAUSE), told
            if stopping:
                break
            self._stop.wait(pause)
        if self._process is not None:
            self._process.close()

    def _adopt(self) -> None:
        if self._adopted:
            return
        self._written_now(adopt_left_behind(self.journal, self._folder, self._write))
        self._adopted = True

    def _drain(self, stopping: bool) -> None:
        assert self._spool is not None
        begun = monotonic()
        for file in self._spool.take():
            n = self._write(file)
            self._spool.remove(file)
            self._written_now(n)
            if stopping and monotonic() - begun > GRACE:
                return

    def _written_now(self, n: int) -> None:
        self._written += n
        self.on_change("written", n)

    def _count_refused(self, why: str) -> None:
        self._drop(1, why)


def adopt_left_behind(journal: Journal, folder: Path | None = None, write: Callable[[Path], int] | None = None) -> int:
    """Write the entries of processes that ended before they could write them; returns how many.

    Parameters
    ----------
    journal
        The journal that the entries are written to.
    folder
        The folder of the spools.
    write
        Writes a file into the journal and returns how many entries it wrote. Default: `write_file` in this thread,
        which leaves out entries that the database refuses.

    Raises
    ------
    SQLAlchemyError, or what `write` raises
        The database does not take them now; they stay where they are.
    """
    folder, n = folder or spool_folder(journal.engine.url), 0
    if not folder.is_dir():
        return 0
    with left_behind(folder) as files:
        for file in files:
            n += write_file(journal, file, lambda why: None) if write is None else write(file)
            file.unlink()
    return n
