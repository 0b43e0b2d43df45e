"""Parts that the commands which listen on a port have in common: calibrators, events, a gate, a warning."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from semtoken.cli.console import tell
from semtoken.cli.settings import TelemetrySection
from semtoken.errors import InvalidInputError

if TYPE_CHECKING:
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.web.calibrators import CalibratorSlot
    from semtoken.web.callers import Gate
    from semtoken.web.recorder import AnswerRecorder
    from semtoken.web.running import Address

LOOPBACK = "127.0.0.1"
Kind = TypeVar("Kind", bound="CalibratorInUse | DecisionCalibrator")


def calibrator_slots(
    of_answers: Path | None, of_decisions: Path | None, load: Callable[[Path | None], CalibratorInUse | None]
) -> tuple[CalibratorSlot[CalibratorInUse], CalibratorSlot[DecisionCalibrator]]:
    """The calibrators of a server, each in a slot that SIGHUP fills again; `load` loads one of answers."""
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.web.calibrators import reload_on_hangup

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
    from semtoken.web.calibrators import CalibratorSlot, SharedPlace
    from semtoken.web.running import shared_folder

    folder = shared_folder(name)
    shared = None if folder is None else SharedPlace(folder, load, save)
    return CalibratorSlot(load(directory), partial(load, directory), shared=shared)


def with_events(app: Any, telemetry: TelemetrySection, recorder: AnswerRecorder | None) -> Any:
    """The application; where `[telemetry]` is on it sends every score, and the states of the guarantee, as events."""
    if telemetry.content and not telemetry.enabled:
        raise InvalidInputError("content under [telemetry] says what is sent: set enabled = true as well.")
    if not telemetry.enabled:
        return app
    from semtoken.integrations.opentelemetry import EvaluationEvents

    events = EvaluationEvents(app, content=telemetry.content)
    if recorder is not None:
        recorder.watch.on_state = events.tell_state
    return events


def gate_from_environment() -> Gate:
    """The gate of the journal's routes: with SEMTOKEN_TOKEN set, only requests with that token pass."""
    from semtoken.web.callers import Gate

    return Gate(os.environ.get("SEMTOKEN_TOKEN") or None)


def warn_if_open(address: Address) -> None:
    """Print a warning if other machines can reach the server."""
    if not address.is_loopback:
        tell(
            f"Warning: {address.host} can be reached from other machines, and there is no password. Without a firewall "
            f"or a reverse proxy that asks for one, use --host {LOOPBACK}.",
            style="yellow",
        )
