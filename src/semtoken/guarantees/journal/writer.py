"""`JournalWriter`: takes entries at once, and brings them into the database in a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from semtoken.guarantees.journal.database import cause
from semtoken.guarantees.journal.entries import JournalEntry
from semtoken.guarantees.journal.spool import SET_ASIDE, Spool, left_behind, spool_folder
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer_process import WriterProcess, write_file
from semtoken.support.files.safe_files import MEBIBYTE
from semtoken.support.text import with_noun

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

    @property
    def losses(self) -> list[str]:
        """Sentences on entries that the journal has not got, or not yet; none where it has all."""
        figures, name, losses = self.figures, self.journal.name, []
        if figures.dropped:
            losses.append(f"{with_noun(figures.dropped, 'answer')} could not be kept in {name}.")
        if figures.set_aside:
            count = with_noun(figures.set_aside, "answer")
            losses.append(f"{count} can never be written to {name}. See {self.set_aside_file}.")
        if figures.problem is not None:
            losses.append(
                f"{name} takes nothing now ({figures.problem}): the next command that opens it brings the answers in."
            )
        return losses

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
