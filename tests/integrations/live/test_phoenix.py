"""The recipe for Phoenix, as it stands on the page, with its own server on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from phoenix.client import Client

from tests.integrations.recipes import confidence, run


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, rpc = one.getsockname()[1], other.getsockname()[1]
    settings = {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(rpc),
        "PHOENIX_WORKING_DIR": str(tmp_path),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    url = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("phoenix")), "serve"]
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen(command, env={**os.environ, **settings}, stdout=out, stderr=out) as one:
        deadline = time.monotonic() + 300
        while not _answers(url):
            assert one.poll() is None and time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(1)
        yield url
        one.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_the_span_has_the_score(phoenix: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{phoenix}/v1/traces")))
    with provider.get_tracer("test").start_as_current_span("answer") as span:
        found = run("add_span_annotation", PHOENIX=phoenix)
    provider.shutdown()
    span_id = f"{span.get_span_context().span_id:016x}"
    assert found["span"].span_id == span.get_span_context().span_id
    deadline = time.monotonic() + 60
    annotations: list[Any] = []
    while not annotations and time.monotonic() < deadline:
        time.sleep(1)
        try:
            annotations = Client(base_url=phoenix).spans.get_span_annotations(
                span_ids=[span_id], project_identifier="default"
            )
        except httpx.HTTPStatusError:  # the project is not there before its first span is stored
            continue
    [annotation] = annotations
    assert annotation["name"] == "semtoken.confidence" and annotation["annotator_kind"] == "CODE"
    assert annotation["result"]["score"] == pytest.approx(confidence())
