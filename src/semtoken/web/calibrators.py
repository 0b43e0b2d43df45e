"""The calibrators of a server, and how it takes others while requests run: by a signal or by a request."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.web.callers import Gate, answer_guarded
from semtoken.web.running import on_hangup, shared_folder, tell_the_others
from semtoken.web.wire import ApiError

logger = logging.getLogger("semtoken.calibrator")


class Exchangeable(Protocol):
    """A calibrator of answers (`CalibratorInUse`) or of typed decisions (`DecisionCalibrator`)."""

    @property
    def checksum(self) -> str:
        """The checksum that identifies the calibrator, in hex digits."""

    @property
    def n(self) -> int:
        """The number of labeled answers that it was fitted on."""


Kind = TypeVar("Kind", bound=Exchangeable)

FORMER, TURNED_TO = "former", "turned-to"


@dataclass(frozen=True)
class SharedPlace(Generic[Kind]):
    """The folder in which the processes of one server share the former calibrator and the one they went back to.

    So all go back together, also a process that is started in place of another one.
    """

    folder: Path
    load: Callable[[Path], Kind | None]
    """Loads a calibrator from a folder, or raises a `SemtokenError`."""
    save: Callable[[Kind, Path], None]
    """Writes a calibrator into a folder, whole or not at all."""

    def get(self, name: str) -> Kind | None:
        """Load the calibrator with this name; None if there is none."""
        return self.load(self.folder / name) if (self.folder / name).exists() else None

    def put(self, calibrator: Kind, name: str) -> None:
        """Store a calibrator under a name, replacing the one that is there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.save(calibrator, self.folder / name)

    def forget(self, name: str) -> None:
        """Delete the calibrator with this name."""
        shutil.rmtree(self.folder / name, ignore_errors=True)


class CalibratorSlot(Generic[Kind]):
    """Holds the calibrator that decides, and the one before it, so that a server can exchange them while it runs.

    A request looks at `current` once, so all that is said of one answer comes from one calibrator. `load` loads another
    one (None: it cannot be exchanged) and raises a `SemtokenError` for one that cannot be used. `option` names the
    command's option, for messages; `shared` is what several processes keep together.
    """

    def __init__(
        self,
        current: Kind | None,
        load: Callable[[], Kind | None] | None = None,
        option: str = "--calibrator",
        shared: SharedPlace[Kind] | None = None,
    ) -> None:
        self.current = current if shared is None else shared.get(TURNED_TO) or current
        self.on_change: Callable[[Kind], None] = lambda calibrator: None
        """Called with each calibrator that comes into use."""
        self._load = load
        self._option = option
        self._former: Kind | None = None
        self._shared = shared
        self._lock = Lock()

    def reload(self) -> str:
        """Load the server's calibrator again; returns what happened, in a sentence. An unusable one changes nothing."""
        with self._lock:
            if self._shared is not None:
                self._shared.forget(TURNED_TO)
            return self._follow()

    def _follow(self) -> str:
        turned_to = None if self._shared is None else self._shared.get(TURNED_TO)
        calibrator = turned_to or (None if self._load is None else self._load())
        if calibrator is None or self.current is None:
            raise InvalidInputError(f"This server was started without {self._option}, so there is none to load again.")
        # The former one would be lost by exchanging the calibrator for itself.
        if calibrator.checksum == self.current.checksum:
            return f"The calibrator in use is the one that is there: {calibrator.checksum[:12]}."
        return self._exchange(calibrator)

    def back(self) -> str:
        """Go back to the former calibrator, `InvalidInputError` if there was none; a second call undoes the first."""
        with self._lock:
            former = self._former if self._shared is None else self._shared.get(FORMER)
            if former is None:
                raise InvalidInputError("There was no other calibrator since this server started.")
            message = self._exchange(former)
            if self._shared is not None:
                self._shared.put(former, TURNED_TO)
            return message

    def reload_or_log(self) -> None:
        """Load the calibrator again on a signal, logging what happened; all processes of a server do so."""
        try:
            with self._lock:
                logger.warning(self._follow())
        except SemtokenError as error:
            logger.error("The calibrator stays as it is: %s", error)

    def _exchange(self, calibrator: Kind) -> str:
        before = self.current
        self.on_change(calibrator)  # first, so that none decides that the journal does not know
        self._former, self.current = before, calibrator
        if self._shared is not None and before is not None:
            self._shared.put(before, FORMER)
        replaced = "" if before is None else f" in place of {before.checksum[:12]}"
        return f"The calibrator {calibrator.checksum[:12]} ({calibrator.n} labels) decides from now on{replaced}."


def slot_of(calibrator: Kind | CalibratorSlot[Kind] | None) -> CalibratorSlot[Kind]:
    """A slot that holds a calibrator; a slot is returned as it is."""
    return calibrator if isinstance(calibrator, CalibratorSlot) else CalibratorSlot(calibrator)


def calibrator_slots(
    of_answers: Path | None, of_decisions: Path | None, load: Callable[[Path | None], CalibratorInUse | None]
) -> tuple[CalibratorSlot[CalibratorInUse], CalibratorSlot[DecisionCalibrator]]:
    """The calibrators of a server, each in a slot that SIGHUP fills again; `load` loads one of answers."""

    def load_for_decisions(directory: Path | None) -> DecisionCalibrator | None:
        return None if directory is None else DecisionCalibrator.load(directory)

    answers = _slot(of_answers, load, CalibratorInUse.save, "calibrators")
    decisions = _slot(of_decisions, load_for_decisions, DecisionCalibrator.save, "decision-calibrators")
    reload_on_hangup(answers, decisions)
    return answers, decisions


def _slot(
    directory: Path | None,
    load: Callable[[Path | None], Kind | None],
    save: Callable[[Kind, Path], None],
    name: str,
) -> CalibratorSlot[Kind]:
    """A slot with the calibrator of a folder, empty without one; the processes of one server share it by its name."""
    folder = shared_folder(name)
    shared = None if folder is None else SharedPlace(folder, load, save)
    return CalibratorSlot(load(directory), partial(load, directory), shared=shared)


def reload_on_hangup(*slots: CalibratorSlot[Any]) -> None:
    """Have SIGHUP load the calibrators of a server again; without any, the signal keeps its meaning."""
    used = [slot for slot in slots if slot.current is not None]

    def reload() -> None:
        for slot in used:
            slot.reload_or_log()

    if used:
        on_hangup(reload)


def add_exchange(app: Any, path: str, calibrators: CalibratorSlot[Any], gate: Gate) -> None:
    """Add a route that takes POST with `{"action": "reload"}` or `{"action": "back"}` and the token.

    If a server has several processes, the one that gets the request informs the others.
    """

    def work(body: dict[str, Any]) -> dict[str, Any]:
        actions = {"reload": calibrators.reload, "back": calibrators.back}
        action = body.get("action")
        if not isinstance(action, str) or action not in actions:
            raise ApiError(400, 'Send {"action": "reload"} or {"action": "back"}.', param="action")
        message = actions[action]()
        tell_the_others()
        current = calibrators.current
        return {"told": message, "calibrator": None if current is None else current.checksum}

    async def exchange(request: Request) -> Response:
        return await answer_guarded(request, gate, work, needs_token=True)

    app.add_route(path, exchange, methods=["POST"])
