"""The recipe for Langfuse, as it stands on the page, with a receiver on loopback in place of its server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from langfuse import Langfuse

from tests.integrations.recipes import confidence, run


def test_the_generation_has_the_score() -> None:
    sent: list[tuple[str, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            body = b"{}"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{receiver.server_port}"
        langfuse = Langfuse(public_key="pk", secret_key="sk", base_url=url)
        found = run("start_as_current_observation", langfuse=langfuse)
        langfuse.flush()
        langfuse.shutdown()
        receiver.shutdown()
    [score] = [one for path, body in sent if path == "/api/public/scores" for one in json.loads(body)]
    assert score["value"] == pytest.approx(confidence())
    assert (score["name"], score["dataType"]) == ("semtoken.confidence", "NUMERIC")
    assert (score["traceId"], score["observationId"]) == (found["generation"].trace_id, found["generation"].id)
