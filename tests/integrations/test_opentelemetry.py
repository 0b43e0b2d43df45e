"""`EvaluationEvents` in front of applications that answer oddly: the client has its bytes, telemetry no texts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from semtoken.integrations import opentelemetry
from semtoken.integrations.opentelemetry import EvaluationEvents
from tests.rows import each
from tests.web.servers import running

SECRET = "the secret"
FINAL = {
    "version": 1,
    "sequence_uncertainty": 0.25,
    "reason": SECRET,
    "flags": [{"code": "a", "message": SECRET}],
    "final": True,
}
CHOICE = {"index": 0, "delta": {"content": SECRET}, "finish_reason": "stop", "semtoken": FINAL}


def event(value: Any) -> bytes:
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def scored(**changes: Any) -> bytes:
    """The end of an answer whose block has other fields."""
    return event({"choices": [CHOICE | {"semtoken": FINAL | changes}]})


ODD = {
    "nested": event("[" * 50_000 + "]" * 50_000),
    "nested in a choice": event('{"choices":' * 20_000 + "1" + "}" * 20_000),
    "no list": event({"choices": 7, "semtoken": FINAL}),
    "a list as index": event({"choices": [CHOICE | {"index": [1]}]}),
    "an object as index": event({"choices": [CHOICE | {"index": {"a": 1}}]}),
    "flags that are none": scored(flags=[7, None, {}, "x"]),
    "flags that are no list": scored(flags=7),
    "values that are objects": event(
        {"id": {}, "model": [SECRET], "choices": [CHOICE | {"semtoken": {"final": True}}]}
    ),
    "a code that is a text": scored(flags=[{"code": SECRET}]),
    "a decision that is a text": scored(decision=SECRET),
    "a method that is a text": scored(method=SECRET),
    "a number too large": event(
        '{"choices":[{"index":0,"finish_reason":"stop","semtoken":{"final":true,"sequence_uncertainty":1e999}}]}'
    ),
    "no JSON": b"data: {" + SECRET.encode() + b"\n\n",
    "no field": b"x" * 3000 + b"\n\n",
    "half a character": b'data: {"a": "\xc3\n\n',
    "a line without end": b"data: " + b"x" * 300_000,
    "nothing": b"",
}


class Answering:
    """An application that answers with some bytes, in pieces."""

    body, kind = b"", b"text/event-stream"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", self.kind)]})
        for at in range(0, len(self.body), 10_000):
            await send({"type": "http.response.body", "body": self.body[at : at + 10_000], "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def exporter() -> InMemoryLogRecordExporter:
    return InMemoryLogRecordExporter()


@pytest.fixture(scope="module")
def served(exporter: InMemoryLogRecordExporter) -> Iterator[tuple[str, Answering]]:
    provider, app = LoggerProvider(), Answering()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    with running(EvaluationEvents(app, provider)) as url:
        yield url, app


@each("kind", [b"text/event-stream", b"application/json"])
@each("name", list(ODD))
def test_odd_replies_reach_the_client_whole_and_tell_no_text(
    served: tuple[str, Answering],
    exporter: InMemoryLogRecordExporter,
    caplog: pytest.LogCaptureFixture,
    name: str,
    kind: bytes,
) -> None:
    url, app = served
    streamed = kind == b"text/event-stream"
    end = event({"id": "r", "choices": [CHOICE]})
    app.body, app.kind = (ODD[name] + end if streamed else ODD[name][6:].strip()), kind
    exporter.clear()
    with caplog.at_level(logging.WARNING):
        got = httpx.get(url, headers={b"traceparent": b"00-" + b"z" * 50, b"x": b"\xff"}, timeout=30)
    assert (got.status_code, got.content) == (200, app.body)
    assert not caplog.records
    sent = [one.log_record.attributes for one in exporter.get_finished_logs()]
    assert SECRET not in str(sent)
    if streamed and name not in ("a line without end", "no field", "half a character", "no JSON"):
        assert sent


def test_what_fails_inside_does_not_reach_the_client(
    served: tuple[str, Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    url, app = served
    app.body, app.kind = event({"choices": [CHOICE]}) * 3, b"text/event-stream"
    for name in ("_watch_for", "_context_of"):
        with monkeypatch.context() as patched:
            patched.setattr(opentelemetry, name, fail)
            assert httpx.get(url, timeout=30).content == app.body


def test_waiting_events_are_sent_before_the_server_ends() -> None:
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    waiting, provider = InMemoryLogRecordExporter(), LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(waiting, schedule_delay_millis=600_000))

    class WithEnd(Answering):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "lifespan":
                await super().__call__(scope, receive, send)
                return
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})

    app = WithEnd()
    app.body = event({"choices": [CHOICE]})
    with running(EvaluationEvents(app, provider)) as url:
        assert httpx.get(url, timeout=30).content == app.body
        assert not waiting.get_finished_logs()
    assert len(waiting.get_finished_logs()) == 1
