"""Parts that the commands which listen on a port have in common: events, and a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semtoken.cli.console import tell
from semtoken.cli.settings import TelemetrySection
from semtoken.errors import InvalidInputError

if TYPE_CHECKING:
    from semtoken.web.recorder import AnswerRecorder
    from semtoken.web.running import Address

LOOPBACK = "127.0.0.1"


def with_events(app: Any, telemetry: TelemetrySection, recorder: AnswerRecorder | None) -> Any:
    """The application; where `[telemetry]` is on it sends every score, and the states of the guarantee, as events."""
    if telemetry.content and not telemetry.enabled:
        raise InvalidInputError("content under [telemetry] says what is sent: set enabled = true as well.")
    if not telemetry.enabled:
        return app
    from semtoken.integrations.opentelemetry import events_of

    return events_of(app, recorder, content=telemetry.content)


def warn_if_open(address: Address) -> None:
    """Print a warning if other machines can reach the server."""
    if not address.is_loopback:
        tell(
            f"Warning: {address.host} can be reached from other machines, and there is no password. Without a firewall "
            f"or a reverse proxy that asks for one, use --host {LOOPBACK}.",
            style="yellow",
        )
