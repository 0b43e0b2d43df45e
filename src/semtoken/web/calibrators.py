"""The calibrators of a server, and how it takes others while requests run: by a signal or by a request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from semtoken.errors import InvalidInput, SemtokenError
from semtoken.web.access import Gate, guarded
from semtoken.web.running import is_one_of_several, tell_the_others
from semtoken.web.wire import ApiError

logger = logging.getLogger("semtoken.calibrator")


class Exchangeable(Protocol):
    """A calibrator of answers (`CalibratorInUse`) or of typed decisions (`DecisionCalibrator`)."""

    @property
    def checksum(self) -> str:
        """Which calibrator this is: hex digits."""

    @property
    def n(self) -> int:
        """Labels that it was fitted on."""


Kind = TypeVar("Kind", bound=Exchangeable)


class CalibratorSlot(Generic[Kind]):
    """The calibrator that decides now, and the one before it.

    A request looks at `current` once, so all that is said of one answer comes from one calibrator.

    Parameters
    ----------
    current
        The one to begin with.
    load
        Loads another one from the place that the server was given, or raises a `SemtokenError` if it cannot be used
        or does not belong. None: it cannot be exchanged.
    take
        Called with each one before it decides: prepares what it reads of answers, or refuses it (`SemtokenError`).
    option
        The command's option that names the place, for messages.
    """

    def __init__(
        self,
        current: Kind | None,
        load: Callable[[], Kind | None] | None = None,
        take: Callable[[Kind], None] = lambda found: None,
        option: str = "--calibrator",
    ) -> None:
        self.current = current
        self.on_change: Callable[[Kind], None] = lambda found: None
        """Called with each calibrator that comes into use."""
        self._load, self._take = load, take
        self._option = option
        self._former: Kind | None = None
        self._lock = Lock()

    def reload(self) -> str:
        """Take the calibrator that is in the server's place for it now. Returns what happened, in a sentence.

        Raises
        ------
        SemtokenError
            It cannot be used or does not belong to what is served; the old one stays.
        """
        with self._lock:
            found = None if self._load is None else self._load()
            if found is None or self.current is None:
                raise InvalidInput(f"This server was started without {self._option}, so there is none to load again.")
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

    def _exchange(self, found: Kind) -> str:
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
        return f"The calibrator {found.checksum[:12]} ({found.n} labels) decides from now on{told}."


def slot_of(calibrator: Kind | CalibratorSlot[Kind] | None) -> CalibratorSlot[Kind]:
    """A slot that holds a calibrator; a slot as it is."""
    return calibrator if isinstance(calibrator, CalibratorSlot) else CalibratorSlot(calibrator)


def reload_on_hangup(*slots: CalibratorSlot[Any]) -> None:
    """Have SIGHUP load the calibrators of a server again; without any, the signal keeps its meaning."""
    from semtoken.web.running import on_hangup

    used = [slot for slot in slots if slot.current is not None]

    def reload() -> None:
        for slot in used:
            slot.reload_or_log()

    if used:
        on_hangup(reload)


FROM_JOURNAL = (
    " (`semtoken journal calibrators URL --take CHECKSUM -o FOLDER --overwrite` writes what the journal has kept of it)"
)


def add_exchange(
    app: Any, path: str, calibrators: CalibratorSlot[Any], gate: Gate, *, kept_by_journal: bool = False
) -> None:
    """Add a route that takes POST with `{"action": "reload"}` or `{"action": "back"}` and the token.

    Of several processes the one that gets the request tells the others, which follow within moments.
    """
    where = FROM_JOURNAL if kept_by_journal else ""

    def work(body: dict[str, Any]) -> dict[str, Any]:
        actions = {"reload": calibrators.reload, "back": calibrators.back}
        action = body.get("action")
        if not isinstance(action, str) or action not in actions:
            raise ApiError(400, 'Send {"action": "reload"} or {"action": "back"}.', param="action")
        if action == "back" and is_one_of_several():
            raise ApiError(
                400,
                "This server has several processes, which cannot go back together. Put the former calibrator in the "
                f'place of this one{where}, and send {{"action": "reload"}}.',
            )
        told = actions[action]()
        tell_the_others()
        current = calibrators.current
        return {"told": told, "calibrator": None if current is None else current.checksum}

    async def exchange(request: Request) -> Response:
        return await guarded(request, gate, work, needs_token=True)

    app.add_route(path, exchange, methods=["POST"])
