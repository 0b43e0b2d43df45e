"""Parts that the commands which listen on a port have in common: calibrators, events, a gate, a warning."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from semtoken.cli.console import tell
from semtoken.cli.settings import TelemetrySection
from semtoken.errors import InvalidInputError

if TYPE_CHECKING:
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.web.callers import Gate
    from semtoken.web.recorder import AnswerRecorder
    from semtoken.web.running import Address

LOOPBACK = "127.0.0.1"
Kind = TypeVar("Kind", bound="CalibratorInUse | DecisionCalibrator")


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
