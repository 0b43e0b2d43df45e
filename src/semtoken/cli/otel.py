"""The options `--otel` of the commands that serve."""

from __future__ import annotations

from typing import Annotated, Any

import typer

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


def with_events(app: Any, otel: bool, content: bool) -> Any:
    """The application, telling OpenTelemetry of its scores if that is wanted.

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

    return EvaluationEvents(app, content=content)
