"""OpenTelemetry: every answer of `semtoken serve` or `proxy` as an event `gen_ai.evaluation.result`.

The event belongs to the span of the client, if the request names one (`traceparent`). Exporters are chosen by
OpenTelemetry's own environment variables. No text is sent unless that is asked for.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import Any

from semtoken.errors import InvalidInput, MissingExtra
from semtoken.integrations.events import EVENT, Attributes, ReplyWatch
from semtoken.integrations.hosts import require_host

require_host("opentelemetry")

from opentelemetry import propagate  # noqa: E402
from opentelemetry._logs import LoggerProvider, SeverityNumber, get_logger_provider  # noqa: E402
from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider  # noqa: E402
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor  # noqa: E402
from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: E402

PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
OK = 200
_OTLP = "opentelemetry-exporter-otlp-proto-http"


class EvaluationEvents:
    """An ASGI application in front of a server: passes everything through, and tells of the scores in its replies.

    Parameters
    ----------
    app
        The application, such as `semtoken.web.serve.app.serve_app(...)`.
    provider
        Where events go. None: the provider that OpenTelemetry has, or one made from its environment variables.
    content
        Send the texts of the answers, too.
    """

    def __init__(self, app: Any, provider: LoggerProvider | None = None, *, content: bool = False) -> None:
        self._app = app
        self._logger = (provider or provider_from_environment()).get_logger("semtoken")
        self._content = content

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        context = propagate.extract(headers)
        watch: ReplyWatch | None = None

        async def told(message: Any) -> None:
            nonlocal watch
            await send(message)
            if message["type"] == "http.response.start":
                watch = _watch_for(message, self._content)
            elif message["type"] == "http.response.body" and watch is not None:
                found = watch.take(message.get("body", b""))
                if not message.get("more_body", False):
                    found += watch.end()
                for attributes in found:
                    self.emit(attributes, context)

        await self._app(scope, receive, told)

    def emit(self, attributes: Attributes, context: Any = None) -> None:
        """Send one event.

        Parameters
        ----------
        attributes
            As `semtoken.integrations.events.evaluation` makes them.
        context
            OpenTelemetry's context, with the span that the event belongs to. None: the current one.
        """
        self._logger.emit(event_name=EVENT, attributes=attributes, context=context, severity_number=SeverityNumber.INFO)


def _watch_for(start: Any, content: bool) -> ReplyWatch | None:
    """A watch for a reply that may carry scores, None for any other."""
    headers = {bytes(key).lower(): bytes(value).lower() for key, value in start["headers"]}
    kind = headers.get(b"content-type", b"")
    readable = b"json" in kind or kind.startswith(b"text/event-stream")
    if start["status"] != OK or not readable or b"content-encoding" in headers:
        return None
    return ReplyWatch(streamed=kind.startswith(b"text/event-stream"), content=content)


def provider_from_environment() -> LoggerProvider:
    """The provider of this process, or one made from OTEL_LOGS_EXPORTER and its like.

    Raises
    ------
    MissingExtra
        The exporter is not installed. The message holds the install line.
    InvalidInput
        There is no such exporter.
    """
    there = get_logger_provider()
    if isinstance(there, SdkLoggerProvider):
        return there
    provider = SdkLoggerProvider(Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME", "semtoken")}))
    for wanted in os.environ.get("OTEL_LOGS_EXPORTER", "otlp").split(","):
        if wanted.strip() not in ("", "none"):
            provider.add_log_record_processor(BatchLogRecordProcessor(_exporter(wanted.strip())))
    return provider


def _exporter(wanted: str) -> Any:
    """The exporter of a name, from OpenTelemetry's registry of installed ones."""
    variables = ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((os.environ[name] for name in variables if os.environ.get(name)), "http/protobuf")
    name = PROTOCOLS.get(protocol, protocol) if wanted == "otlp" else wanted
    found = list(entry_points(group="opentelemetry_logs_exporter", name=name))
    if found:
        return found[0].load()()
    if name in PROTOCOLS.values():
        raise MissingExtra(
            f"OpenTelemetry's exporter '{name}' is not installed. Install it with: pip install {_OTLP}. Or set "
            "OTEL_LOGS_EXPORTER=console to see the events."
        )
    raise InvalidInput(
        f"OTEL_LOGS_EXPORTER: OpenTelemetry has no exporter {name!r} installed. Use otlp, console or none."
    )
