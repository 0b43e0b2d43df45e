"""From a file of a spool into the database: each entry once, and one that is refused keeps no other back.

`write_file` does it here. `WriterProcess` does it in a process of its own, so that a server's threads never wait for
the database or with it: it takes the names of files, line by line, says what became of each, and ends with the one
that started it. Whatever happens to it, the entries stay in the spool until it has said that the database has them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from semtoken.journal.database import cause, engine_of, url_of
from semtoken.journal.spool import lines_of
from semtoken.journal.store import Journal

TOGETHER = 2_000
"""Most entries of one transaction."""
NICE = 10
"""The process's niceness: others go first where the machine is busy."""
ENDED = "The process that writes it has ended."


def write_file(journal: Journal, file: Path, refused: Callable[[str], None]) -> int:
    """Write the entries of a spool file into the journal, each once; returns how many. `refused` is called with the
    reason of each entry that the database refuses, which is left out.

    Raises
    ------
    SQLAlchemyError
        The database is away or full. Those that were written are left out at the next attempt.
    """
    n = 0
    for rows in _together(lines_of(file)):
        try:
            journal.add(rows)
            n += len(rows)
        except (OperationalError, InterfaceError):
            raise
        except (DBAPIError, SQLAlchemyError, ValueError, TypeError):  # one of them is not to its taste
            for row in rows:
                n += _written_alone(journal, row, refused)
    return n


def _written_alone(journal: Journal, row: Mapping[str, Any], refused: Callable[[str], None]) -> int:
    try:
        journal.add([row])
    except (OperationalError, InterfaceError):
        raise
    except (SQLAlchemyError, ValueError, TypeError) as error:
        refused(cause(error))
        return 0
    return 1


def _together(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while some := list(islice(rows, TOGETHER)):
        yield some


class WriterProcess:
    """A process that writes spool files into a journal. Use it from one thread at a time.

    Parameters
    ----------
    journal
        The journal, which was opened before, so that its tables are in their newest form.
    """

    def __init__(self, journal: Journal) -> None:
        self._url = journal.engine.url.render_as_string(hide_password=False)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """Start the process if it does not run; returns it.

        Raises
        ------
        OSError
            The process cannot be started.
        """
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from semtoken.journal.writing import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                text=True,
            )
            self._say(self._process, self._url)
        return self._process

    def write(self, file: Path, refused: Callable[[str], None]) -> int:
        """Write the entries of a file, each once; returns how many. `refused` is called with the reason of each
        refusal.

        Raises
        ------
        OSError
            The database is away or full, or the process has ended. The next attempt starts another one.
        """
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
