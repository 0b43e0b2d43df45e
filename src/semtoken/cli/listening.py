"""What the commands that listen on a port have in common: where, for whom, and the events that they send."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.console import tell
from semtoken.cli.options import AbstainTextOption, CalibratorOption, DecisionCalibratorOption, option_group
from semtoken.errors import InvalidInput
from semtoken.files.safe_files import MEBIBYTE

if TYPE_CHECKING:
    from semtoken.web.limits import Gate
    from semtoken.web.recorder import AnswerRecorder
    from semtoken.web.running import Address

LOOPBACK = "127.0.0.1"

PANEL = "OpenTelemetry"


@dataclass(frozen=True)
class ServerChoice:
    """The options that `serve` and `proxy` share: address, limits, calibrators, events and page."""

    host: Annotated[
        str, typer.Option(help="Address to listen on. The default can be reached from this machine only.")
    ] = LOOPBACK
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any that is free.")] = 8000
    max_request_mb: Annotated[float, typer.Option(min=0.001, help="Longest request, in MiB.")] = 2
    max_connections: Annotated[int, typer.Option(min=1, help="Requests at one time; more get status 503.")] = 500
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name under which clients reach it, besides localhost; '*': any. Repeatable."),
    ] = None
    calibrator: CalibratorOption = None
    abstain_text: AbstainTextOption = None
    decision_calibrator: DecisionCalibratorOption = None
    otel: Annotated[
        bool,
        typer.Option(
            "--otel",
            help="Send every score as an OpenTelemetry event; OTEL_EXPORTER_OTLP_ENDPOINT and similar variables say "
            "where.",
            rich_help_panel=PANEL,
        ),
    ] = False
    otel_content: Annotated[
        bool,
        typer.Option("--otel-content", help="With --otel: send the texts of the answers, too.", rich_help_panel=PANEL),
    ] = False
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show a page for your browser at /.")] = True
    grace: Annotated[
        float, typer.Option(min=1, help="Seconds that running answers get to finish after the signal to stop.")
    ] = 10.0

    @property
    def request_bytes(self) -> int:
        """Requests of more bytes than this are refused."""
        return round(self.max_request_mb * MEBIBYTE)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which clients may reach it."""
        from semtoken.web.limits import hosts_for

        return hosts_for(self.host, self.allow_host or ())

    def with_events(self, app: Any, recorder: AnswerRecorder | None = None) -> Any:
        """The application; with `--otel` it sends every score, and the states of the recorder's promise, as events."""
        if self.otel_content and not self.otel:
            raise InvalidInput("--otel-content says what --otel sends; give --otel as well.")
        if not self.otel:
            return app
        from semtoken.integrations.opentelemetry import EvaluationEvents

        events = EvaluationEvents(app, content=self.otel_content)
        if recorder is not None:
            recorder.watch.on_state = events.tell_state
        return events


server_options = partial(option_group, ServerChoice, "server")
"""Gives a command the options of `ServerChoice`, in place of its parameter `server`; see `option_group`."""


def gate_from_environment() -> Gate:
    """The gate of the journal's routes: with SEMTOKEN_TOKEN set, only requests with that token pass."""
    from semtoken.web.limits import Gate

    return Gate(os.environ.get("SEMTOKEN_TOKEN") or None)


def warn_if_open(address: Address) -> None:
    """Print a warning if other machines can reach the server."""
    if not address.is_loopback:
        tell(
            f"Warning: {address.host} can be reached from other machines, and there is no password. Without a firewall "
            f"or a reverse proxy that asks for one, use --host {LOOPBACK}.",
            style="yellow",
        )
