"""The options `--otel` of the commands that serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from semtoken.web.recorder import AnswerRecorder

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
