"""Verdicts of `semtoken doctor --quick`: its requests are recorded by a server in between, and replayed."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from semtoken.web.doctor import Diagnosis, examine
from tests.engines.held.exchanges import DATA

FOLDER = DATA / "doctor"
TELLING = ("server", "x-litellm-version", "content-type")
"""The headers of replies that are kept."""


@dataclass
class Turn:
    """One request to a server, and its reply."""

    method: str
    path: str
    status: int
    headers: dict[str, str]
    body: str


@dataclass
class Consultation:
    """The requests of `semtoken doctor --quick` to one engine, and what it said then."""

    engine: str
    version: str
    date: str
    turns: list[Turn]
    found: dict[str, Any]

    def save(self) -> None:
        """Write it where the default tests find it."""
        FOLDER.mkdir(exist_ok=True)
        text = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))
        (FOLDER / f"{self.engine}.json").write_text(text + "\n", encoding="utf-8")


def consultations() -> dict[str, Consultation]:
    """All that are saved, by engine."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        values = json.loads(path.read_text(encoding="utf-8"))
        found[path.stem] = Consultation(**values | {"turns": [Turn(**turn) for turn in values["turns"]]})
    return found


def told(found: Diagnosis) -> dict[str, Any]:
    """The findings that are kept."""
    numbers = asdict(found.numbers)
    verdicts = [f"{verdict.level}: {verdict.text}" for verdict in found.verdicts]
    return {"engine": found.engine.name, "by": found.recognized_by, "numbers": numbers, "verdicts": verdicts}


def consult(url: str, engine: str, version: str, date: str, model: str, private: str) -> None:
    """Examine a server and save what was said on both sides; `private` is a path that no recording holds."""
    turns: list[Turn] = []

    def ask(method: str, path: str, body: bytes, key: str) -> Turn:
        sent = {"content-type": "application/json", "authorization": key}
        reply = httpx.request(method, url + path, content=body, headers=sent, timeout=300)
        headers = {name: reply.headers[name] for name in TELLING if name in reply.headers}
        turns.append(Turn(method, path, reply.status_code, headers, reply.text.replace(private, "smollm2")))
        return Turn(method, path, reply.status_code, headers, reply.text)

    with serving(ask) as between:
        found = examine(between, model, quick=True, key_env="SEMTOKEN_ENGINE_KEY", timeout=300)
    Consultation(engine, version, date, turns, told(found)).save()


@contextmanager
def replayed(recorded: Consultation) -> Iterator[str]:
    """The base URL of a server that says what an engine said, in the same order."""
    waiting = list(recorded.turns)

    def ask(method: str, path: str, body: bytes, key: str) -> Turn:
        turn = waiting.pop(0)
        assert (turn.method, turn.path) == (method, path)
        return turn

    with serving(ask) as url:
        yield url
    assert not waiting


@contextmanager
def serving(ask: Callable[[str, str, bytes, str], Turn]) -> Iterator[str]:
    """The base URL of a server on the loopback that answers with what `ask` gives for a request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            turn = ask(self.command, self.path, body, self.headers.get("authorization", ""))
            sent = turn.body.encode()
            self.send_response_only(turn.status)
            for name, value in {**turn.headers, "content-length": str(len(sent))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_GET

        def log_message(self, format: str, *values: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def line(recorded: Consultation) -> str:
    """The verdict of the doctor, on one line of the page."""
    found = recorded.found
    texts = (text.partition(": ")[2] for text in found["verdicts"] if not text.startswith("good"))
    verdicts = [re.split(r"[.;] |: from |, which", text)[0].rstrip(".") + "." for text in texts]
    said = " ".join(verdicts) or "Nothing has to be changed."
    return (
        f"The doctor: {found['engine']}, by {found['by']}; "
        f"{found['numbers']['distribution']} ({found['numbers']['reason']}). {said}"
    )
