"""The calibrator of a server, which can be exchanged while requests run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock

from semtoken.calibration.apply import Applied
from semtoken.errors import InvalidInput, SemtokenError

logger = logging.getLogger("semtoken.calibrator")

Load = Callable[[], Applied | None]
"""Loads the calibrator from where it is kept; raises a `SemtokenError` if it cannot be used or does not belong."""


class CalibratorSlot:
    """The calibrator that decides now, and the one before it.

    A request looks at `current` once, so all that is said of one answer comes from one calibrator.

    Parameters
    ----------
    current
        The one to begin with.
    load
        Loads another one from the place that the server was given. None: it cannot be exchanged.
    take
        Called with each one before it decides: prepares what it reads of answers, or refuses it (`SemtokenError`).
    """

    def __init__(
        self,
        current: Applied | None,
        load: Load | None = None,
        take: Callable[[Applied], None] = lambda applied: None,
    ) -> None:
        self.current = current
        self.on_change: Callable[[Applied], None] = lambda applied: None
        """Called with each calibrator that comes into use."""
        self._load, self._take = load, take
        self._former: Applied | None = None
        self._lock = Lock()

    def reload(self) -> str:
        """Take the calibrator that is in the server's place for it now. Returns what happened, in a sentence.

        Raises
        ------
        SemtokenError
            It cannot be used or does not belong to what is served; the old one stays.
        """
        with self._lock:
            if self._load is None:
                raise InvalidInput("This server was started without --calibrator, so there is none to load again.")
            found = self._load()
            if found is None or self.current is None:
                raise InvalidInput("This server was started without --calibrator, so there is none to load again.")
            if found.checksum == self.current.checksum:
                return f"The calibrator in use is the one that is there: {found.checksum[:12]}."
            return self._exchange(found)

    def back(self) -> str:
        """Take the calibrator before this one; a second time takes this one again.

        Raises
        ------
        InvalidInput
            There was none before.
        """
        with self._lock:
            if self._former is None:
                raise InvalidInput("There was no other calibrator since this server started.")
            return self._exchange(self._former)

    def reload_or_log(self) -> None:
        """As `reload`, for a signal: what happened goes to the log."""
        try:
            logger.warning(self.reload())
        except SemtokenError as error:
            logger.error("The calibrator stays as it is: %s", error)

    def _exchange(self, found: Applied) -> str:
        before = self.current
        self._take(found)
        try:
            self.on_change(found)  # first, so that none decides that the journal does not know
        except SemtokenError:
            if before is not None:
                self._take(before)
            raise
        self._former, self.current = before, found
        told = "" if before is None else f" in place of {before.checksum[:12]}"
        return f"The calibrator {found.checksum[:12]} ({found.calibrator.n} labels) decides from now on{told}."


def slot_of(calibrator: Applied | CalibratorSlot | None) -> CalibratorSlot:
    """A slot that holds a calibrator; a slot as it is."""
    return calibrator if isinstance(calibrator, CalibratorSlot) else CalibratorSlot(calibrator)
