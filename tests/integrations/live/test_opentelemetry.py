"""OpenTelemetry's own provider with its exporter in memory, in front of the real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from semtoken import ScoredModel
from semtoken.errors import InvalidInputError, MissingExtra
from semtoken.integrations.opentelemetry import EvaluationEvents, provider_from_environment
from semtoken.support.almanac import Question
from tests.integrations.live.serving import served

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def exporter() -> InMemoryLogRecordExporter:
    return InMemoryLogRecordExporter()


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["without texts", "with texts"]
)
def address(stc: ScoredModel, exporter: InMemoryLogRecordExporter, request: pytest.FixtureRequest) -> Iterator[str]:
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    with served(stc, lambda app: EvaluationEvents(app, provider, content=request.param)) as url:
        yield url


def ask(address: str, question: str, **fields: Any) -> httpx.Response:
    body = {"model": "almanac", "messages": [{"role": "user", "content": question}], "max_tokens": 24, **fields}
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    return httpx.post(f"{address}/v1/chat/completions", json=body, headers=headers, timeout=120)


@pytest.mark.parametrize("stream", [False, True])
def test_every_answer_is_an_event_of_the_clients_span(
    address: str,
    exporter: InMemoryLogRecordExporter,
    stc: ScoredModel,
    questions: list[Question],
    stream: bool,
    request: pytest.FixtureRequest,
    record: Callable[[str, Any], None],
) -> None:
    exporter.clear()
    texts = request.node.callspec.params["address"]
    answers = stc.generate([q.prompt() for q in questions[:3]], 24, stop_at_newline=True)
    replies = [ask(address, q.question, stream=stream) for q in questions[:3]]
    deadline = time.monotonic() + 10  # an event follows its answer
    while len(exporter.get_finished_logs()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    events = [one.log_record for one in exporter.get_finished_logs()]
    assert [event.event_name for event in events] == ["gen_ai.evaluation.result"] * 3
    for event, answer, reply in zip(events, answers, replies, strict=True):
        found = dict(event.attributes)
        assert found["gen_ai.evaluation.name"] == "semtoken.confidence"
        assert found["gen_ai.evaluation.score.value"] == pytest.approx(answer.confidence, abs=1e-5)
        assert found["semtoken.confidence.method"] == answer.confidence_method
        assert found["semtoken.sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)
        assert (
            found["semtoken.sequence_uncertainty.lower"]
            <= found["semtoken.sequence_uncertainty"]
            <= found["semtoken.sequence_uncertainty.upper"]
        )
        assert found["gen_ai.response.id"] in reply.text and found["gen_ai.response.model"] == "almanac"
        assert f"{event.trace_id:032x}" == TRACE and f"{event.span_id:016x}" == SPAN
        assert found.get("semtoken.answer", "").strip() == (answer.text.strip() if texts else "")
        assert not texts or "semtoken.answer" in found
    if not texts:
        sent = [dict(event.attributes) for event in events]
        record(
            "opentelemetry_stream" if stream else "opentelemetry",
            {
                "questions": [q.id for q in questions[:3]],
                "replies": [one.text for one in replies],
                "events": sent,
            },
        )


def test_pages_and_refusals_are_no_events(address: str, exporter: InMemoryLogRecordExporter) -> None:
    exporter.clear()
    assert httpx.get(f"{address}/health").status_code == 200
    assert ask(address, "x", n=0).status_code == 400
    assert exporter.get_finished_logs() == ()


def test_exporters_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    with pytest.raises(MissingExtra, match="pip install opentelemetry-exporter-otlp-proto-http"):
        provider_from_environment()
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "nowhere")
    with pytest.raises(InvalidInputError, match="no exporter 'nowhere'"):
        provider_from_environment()


@pytest.mark.slow
def test_the_console_exporter_gets_the_event(questions: list[Question]) -> None:
    """The whole command in a process of its own."""
    code = (
        "import sys, threading, httpx, re; from semtoken.cli.app import launch\n"
        "launch(['serve', '--port', '0', '--telemetry.enabled=true', '--limits.shutdown-seconds', '1'])"
    )
    environment = {**os.environ, "OTEL_LOGS_EXPORTER": "console", "OTEL_BLRP_SCHEDULE_DELAY": "100"}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stderr is not None and server.stdout is not None
        line = next(line for line in server.stderr if "semtoken serves" in line)
        reply = ask(line.split(" at ")[1].split("/v1")[0], questions[0].question).json()
        server.terminate()
        shown = server.stdout.read()
    event = json.loads(shown[shown.index("{") :])
    assert event["attributes"]["gen_ai.response.id"] == reply["id"]
