"""What the commands that listen on a port have in common: where, for whom, and the events that they send."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.console import tell

if TYPE_CHECKING:
    from semtoken.web.access import Gate
    from semtoken.web.recorder import AnswerRecorder
    from semtoken.web.running import Address


LOOPBACK = "127.0.0.1"

HostOption = Annotated[
    str, typer.Option(help="Address to listen on. The default can be reached from this machine only.")
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any that is free.")]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(help="A name under which clients reach it, besides localhost; '*': any. Repeatable."),
]
MaxRequestOption = Annotated[float, typer.Option(min=0.001, help="Longest request, in MiB.")]
MaxConnectionsOption = Annotated[int, typer.Option(min=1, help="Requests at one time; more get status 503.")]
PageOption = Annotated[bool, typer.Option("--page/--no-page", help="Show a page for your browser at /.")]
GraceOption = Annotated[
    float, typer.Option(min=1, help="Seconds that running answers get to finish after the signal to stop.")
]


def gate_from_environment() -> Gate:
    """The gate of the journal's routes: with SEMTOKEN_TOKEN set, only requests with that token pass."""
    from semtoken.web.access import Gate

    return Gate(os.environ.get("SEMTOKEN_TOKEN") or None)


def warn_if_open(address: Address) -> None:
    """Print a warning if other machines can reach the server."""
    if not address.is_loopback:
        tell(
            f"Warning: {address.host} can be reached from other machines, and there is no password. Without a firewall "
            f"or a reverse proxy that asks for one, use --host {LOOPBACK}.",
            style="yellow",
        )


PANEL = "OpenTelemetry"
OtelOption = Annotated[
    bool,
    typer.Option(
        "--otel",
        help="Send every score as an OpenTelemetry event; OTEL_EXPORTER_OTLP_ENDPOINT and similar variables say where.",
        rich_help_panel=PANEL,
    ),
]
OtelContentOption = Annotated[
    bool,
    typer.Option("--otel-content", help="With --otel: send the texts of the answers, too.", rich_help_panel=PANEL),
]


def with_events(app: Any, otel: bool, content: bool, recorder: AnswerRecorder | None = None) -> Any:
    """The application itself, or with `otel` one that sends an event of OpenTelemetry for every score that it gives.

    With `content` events hold the texts of the answers. With a `recorder` each new state of its promise is sent, too.

    Raises
    ------
    InvalidInput
        `--otel-content` without `--otel`.
    MissingExtra
        OpenTelemetry is not installed.
    """
    from semtoken.errors import InvalidInput

    if content and not otel:
        raise InvalidInput("--otel-content says what --otel sends; give --otel as well.")
    if not otel:
        return app
    from semtoken.integrations.opentelemetry import EvaluationEvents

    events = EvaluationEvents(app, content=content)
    if recorder is not None:
        recorder.watch.on_state = events.tell_state
    return events
