"""A thread of a server that looks at the promise from time to time, for figures and events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from semtoken.errors import SemtokenError
from semtoken.journal.store import Journal
from semtoken.journal.watch import PromiseReport, watch

logger = logging.getLogger("semtoken.watch")

EVERY = 60.0
"""Seconds between two looks."""


class PromiseWatch:
    """Looks at the promise every minute.

    Parameters
    ----------
    journal
        Its entries and labels.
    """

    def __init__(self, journal: Journal, every: float = EVERY) -> None:
        self._journal, self._every = journal, every
        self._stop, self._thread = Event(), Thread(target=self._run, name="watch", daemon=True)
        self.on_report: Callable[[PromiseReport], None] = lambda report: None
        """Called with what each look finds."""
        self.on_state: Callable[[PromiseReport], None] = lambda report: None
        """Called where the state is another one than before, and at the first look."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        before = None
        while True:
            try:
                report = watch(self._journal)
                self.on_report(report)
                if report.state != before:
                    self.on_state(report)
                    before = report.state
                    if report.state == "broken":
                        logger.warning(report.sentence)
            except SemtokenError as error:
                logger.warning("The promise could not be looked at: %s", error)
            except Exception:
                logger.exception("The promise could not be looked at")
            if self._stop.wait(self._every):
                return
