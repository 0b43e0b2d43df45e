"""OpenTelemetry: every answer of `semtoken serve` or `proxy` as an event `gen_ai.evaluation.result`.

The event belongs to the span of the client, if the request names one (`traceparent`). Exporters are chosen by
OpenTelemetry's own environment variables. No text is sent unless that is asked for.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from semtoken.errors import InvalidInputError, MissingExtra
from semtoken.integrations.events import EVENT, Attributes, ReplyWatch
from semtoken.integrations.hosts import require_host

require_host("opentelemetry")

from anyio import to_thread  # noqa: E402
from opentelemetry import propagate  # noqa: E402
from opentelemetry._logs import LoggerProvider, SeverityNumber, get_logger_provider  # noqa: E402
from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider  # noqa: E402
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor  # noqa: E402
from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: E402

if TYPE_CHECKING:
    from semtoken.guarantees.journal.watch import GuaranteeReport
    from semtoken.web.recorder import AnswerRecorder

PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
OK = 200
LARGE = 2**16
"""Bytes of a reply from which on it is read in a thread."""
FLUSH_MILLISECONDS = 2000
_OTLP = "opentelemetry-exporter-otlp-proto-http"
logger = logging.getLogger("semtoken.otel")


class EvaluationEvents:
    """An ASGI application in front of a server: passes everything through, and reports the scores in its replies.

    `app` is that of the server, `provider` where events go (None: that of OpenTelemetry, or one made from its
    environment variables); `content` sends the texts of the answers, too, and the reasons, which may quote them.
    """

    def __init__(self, app: Any, provider: LoggerProvider | None = None, *, content: bool = False) -> None:
        self._app = app
        self._provider = provider or provider_from_environment()
        self._logger = self._provider.get_logger("semtoken")
        self._content = content

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request. Whatever goes wrong here, the client has its answer."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, self._flushing(send))
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        watched = _WatchedReply(content=self._content)

        async def send_and_watch(message: Any) -> None:
            # The client first: what is done after this line costs it nothing.
            await send(message)
            try:
                evaluations = await watched.take(message)
                for attributes in evaluations:
                    self.emit(attributes, _context_of(scope))
            except Exception:
                watched.give_up()
                logger.debug("A reply was not understood", exc_info=True)

        await self._app(scope, receive, send_and_watch)

    def _flushing(self, send: Any) -> Any:
        """Sends what waits for the exporter before the server says that it is done."""

        async def flushed(message: Any) -> None:
            if message["type"] == "lifespan.shutdown.complete" and hasattr(self._provider, "force_flush"):
                with suppress(Exception):
                    await to_thread.run_sync(self._provider.force_flush, FLUSH_MILLISECONDS)
            await send(message)

        return flushed

    def tell_state(self, report: GuaranteeReport) -> None:
        """Send the state of a guarantee as an event."""
        send_state(report, self._provider)

    def emit(self, attributes: Attributes, context: Any = None) -> None:
        """Send one event with the attributes of `events.evaluation`, in the span of a context (the current one)."""
        self._logger.emit(event_name=EVENT, attributes=attributes, context=context, severity_number=SeverityNumber.INFO)


def events_of(app: Any, recorder: AnswerRecorder | None, *, content: bool = False) -> EvaluationEvents:
    """A server's application with `EvaluationEvents` in front, which also report the states of the guarantee that the
    recorder watches.
    """
    events = EvaluationEvents(app, content=content)
    if recorder is not None:
        recorder.watch.on_state = events.tell_state
    return events


class _WatchedReply:
    """One reply on its way."""

    def __init__(self, *, content: bool) -> None:
        self._content = content
        self._watch: ReplyWatch | None = None

    def give_up(self) -> None:
        """Look at no more of it."""
        self._watch = None

    async def take(self, message: Any) -> list[Attributes]:
        """Take in a message that has been sent; give what is complete now."""
        if message["type"] == "http.response.start":
            self._watch = _watch_for(message, self._content)
        if message["type"] != "http.response.body" or self._watch is None:
            return []
        evaluations = self._watch.take(message.get("body", b""))
        if message.get("more_body", False):
            return evaluations
        if self._watch.size < LARGE:
            return evaluations + self._watch.end()
        return evaluations + await to_thread.run_sync(self._watch.end)  # other clients do not wait for it


STATE_EVENT = "semtoken.guarantee"
"""Name of the event that says whether a guarantee is kept."""


def state_attributes(report: GuaranteeReport) -> Attributes:
    """A state of a guarantee as attributes of an event."""
    attributes = {
        "semtoken.guarantee.state": report.state,
        "semtoken.guarantee.statement": report.sentence,
        "semtoken.guarantee.calibrator": report.calibrator,
        "semtoken.guarantee.alpha": report.alpha,
        "semtoken.guarantee.labels": report.n,
        "semtoken.guarantee.wrong": report.wrong,
        "semtoken.guarantee.lower": report.low,
        "semtoken.guarantee.upper": report.high,
        "semtoken.guarantee.broken_since": report.broken_since,
        "semtoken.scores.distance": None if report.moved is None else report.moved.distance,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def send_state(report: GuaranteeReport, provider: LoggerProvider | None = None) -> None:
    """Send the state of a guarantee as one event; a warning where it is broken."""
    chosen = provider or provider_from_environment()
    severity = SeverityNumber.WARN if report.state == "broken" else SeverityNumber.INFO
    logger = chosen.get_logger("semtoken")
    logger.emit(event_name=STATE_EVENT, attributes=state_attributes(report), severity_number=severity)
    if provider is None and hasattr(chosen, "force_flush"):
        chosen.force_flush(FLUSH_MILLISECONDS)


def _watch_for(start: Any, content: bool) -> ReplyWatch | None:
    """A watch for a reply that may carry scores, None for any other."""
    headers = {bytes(key).lower(): bytes(value).lower() for key, value in start.get("headers", ())}
    kind = headers.get(b"content-type", b"")
    readable = b"json" in kind or kind.startswith(b"text/event-stream")
    # A compressed reply would have to be unpacked, and who compresses it stands behind this application.
    if start["status"] != OK or not readable or b"content-encoding" in headers:
        return None
    return ReplyWatch(streamed=kind.startswith(b"text/event-stream"), content=content)


def _context_of(scope: Any) -> Any:
    """The context with the span that a request names."""
    return propagate.extract({key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]})


def provider_from_environment() -> LoggerProvider:
    """The provider of this process, or one made from OTEL_LOGS_EXPORTER; `MissingExtra` without its exporter."""
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
    exporters = list(entry_points(group="opentelemetry_logs_exporter", name=name))
    if exporters:
        return exporters[0].load()()
    if name in PROTOCOLS.values():
        raise MissingExtra(
            f"OpenTelemetry's exporter '{name}' is not installed. Install it with: pip install {_OTLP}. Or set "
            "OTEL_LOGS_EXPORTER=console to see the events."
        )
    raise InvalidInputError(
        f"OTEL_LOGS_EXPORTER: OpenTelemetry has no exporter {name!r} installed. Use otlp, console or none."
    )
