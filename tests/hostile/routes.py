"""Every route that takes a body, of `proxy` and of `serve`: odd values, broken chunks, clients that leave.

What must not happen: an answer 5xx, no answer to a whole request, or a traceback in the log.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from semtoken import ScoredModel
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.journal.entries import AnswerOrigin, Recording
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer import JournalWriter
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.callers import LONGEST_BODY, Gate
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.recorder import AnswerRecorder
from semtoken.web.review import GuaranteeWatch
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.decisions.models import tiny
from tests.guarantees.made_up import entry, rows_of
from tests.hostile.outcomes import Outcome, case_random
from tests.web.odd_requests import ODD, RIGHT, bend
from tests.web.servers import Received, raw_upstream, running
from tests.web.test_decision_exchange import fitted
from tests.web.test_proxy_calibrator import made

TOKEN = "a token"
LONG = "x" * 10**6
VALUES: list[Any] = [*ODD, "\udfff\ud800", "a\x00b", LONG, 10**400, {"\ud800": "\udfff"}]
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Go"}], "max_tokens": 2}
BODIES: dict[str, list[Any]] = {
    "/semtoken/review": [{"id": "entry-1", "reviewer": "ann", "correct": True}, {"reviewer": "ann", "undo": True}],
    "/semtoken/calibrator": [{"action": "reload"}, {"action": "back"}],
    "/semtoken/decision-calibrator": [{"action": "reload"}, {"action": "back"}],
    "/v1/chat/completions": [CHAT, CHAT | {"stream": True, "n": 2, "logprobs": True, "top_logprobs": 3}],
    "/v1/completions": [{"model": "tiny", "prompt": "Go", "max_tokens": 2, "logprobs": 2}],
    **RIGHT,
}
SECONDS = 10
"""How long an answer may take."""


class Tracebacks(logging.Handler):
    """Collects what is logged with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(f"{record.name}: {record.getMessage()[:80]}: {record.exc_info[1]!r:.200}")


@contextmanager
def tracebacks() -> Iterator[Tracebacks]:
    """Collects whatever is logged with a traceback, by any logger, and if logging was switched off."""
    handler, before = Tracebacks(), logging.root.manager.disable
    loggers = [logging.getLogger(name) for name in ("", "uvicorn.error", "semtoken")]
    logging.disable(logging.NOTSET)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield handler
    finally:
        logging.disable(before)
        for logger in loggers:
            logger.removeHandler(handler)


@dataclass
class Sent:
    """A request as bytes, and whether it is whole, so that it must be answered."""

    data: bytes
    whole: bool
    """Whether it must be answered; one beyond the limit of a route may be cut off with its answer."""
    kind: str
    leaves: bool = field(default=False)


def odd_body(path: str, chance: random.Random) -> bytes:
    """The body of a request, bent in up to three places, or bytes that are no JSON."""
    body = copy.deepcopy(chance.choice(BODIES[path]))
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        bend(body, chance, VALUES)
    if chance.random() < 0.05:
        body = copy.deepcopy(chance.choice(VALUES))
    data = json.dumps(body).encode()
    kind = chance.random()
    if kind < 0.05:
        return chance.choice([b"[" * 20_000, b'{"a":' * 9_000, b"\xff\xfe", b"", data[: len(data) // 2], b"\x00" * 100])
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass") if kind < 0.15 else data


def request(path: str, chance: random.Random, host: str) -> Sent:
    """A request as it goes over the wire: whole, in chunks, in broken chunks, or cut off."""
    body = odd_body(path, chance)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nauthorization: Bearer {TOKEN}\r\n"
    )
    start = head.encode() + b"connection: close\r\n"
    with_length = start + b"content-length: %d\r\n\r\n" % len(body)
    with_chunks = start + b"transfer-encoding: chunked\r\n\r\n"
    cut = chance.randrange(len(body) + 1)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(some), some) for some in (body[:cut], body[cut:]) if some)
    broken = [
        b"zz\r\nabc\r\n",
        b"-1\r\n",
        b"5\r\nabc",
        b"3\r\nabcdef\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"f" * 40 + b"\r\n",
        b"\x00",
    ]
    answered = len(body) < LONGEST_BODY
    kind = chance.choice(["whole"] * 4 + ["chunks", "broken chunks", "cut", "cut chunks", "leaves"])
    return {
        "whole": Sent(with_length + body, answered, kind),
        "chunks": Sent(with_chunks + chunks + b"0\r\n\r\n", answered, kind),
        "broken chunks": Sent(with_chunks + chunks + chance.choice(broken), False, kind),
        "cut": Sent(with_length + body[:cut], False, kind),
        "cut chunks": Sent(with_chunks + chunks, False, kind),
        "leaves": Sent(with_length + body, False, kind, leaves=True),
    }[kind]


def status_of(address: str, sent: Sent) -> int:
    """The status of the answer; 0: none came."""
    parts = urlsplit(address)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), SECONDS) as connection:
        answer = b""
        with suppress(ConnectionError):
            connection.sendall(sent.data)
            if sent.leaves:
                return 0
            if sent.kind not in ("whole", "chunks"):
                with suppress(OSError):  # it is closed already
                    connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65_536):
                answer += piece
        found = answer[:12].split()
        return int(found[1]) if len(found) > 1 and found[1].isdigit() else 0


@contextmanager
def servers(place: Path) -> Iterator[dict[str, str]]:
    """A proxy and `serve` with journals, calibrators that can be exchanged, and the token; their addresses."""
    from semtoken.clustering.token_clusters import TokenClusters
    from semtoken.support.almanac import almanac_clusters_path

    clusters = TokenClusters.from_pretrained(almanac_clusters_path())
    answers, decisions = CalibratorInUse(made(place / "calibrator")), fitted(60)

    def recorder(name: str) -> AnswerRecorder:
        journal = Journal.open(str(place / f"{name}.db"))
        journal.add(rows_of([entry(i, sampled=True) for i in range(5)]))
        recording = Recording(AnswerOrigin(name), *journal.sampling(1.0, "x"))
        return AnswerRecorder(recording, JournalWriter(journal), GuaranteeWatch(journal))

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01 if received.header(b"transfer-encoding") else 0)  # what comes in chunks is not read
        body = b'{"object": "chat.completion", "choices": [{"index": 0, "message": {"content": "Lima"}}]}'
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    with raw_upstream(answer) as upstream:
        offer = Offer("tiny", calibrator=None, decision_calibrator=CalibratorSlot(decisions, lambda: decisions))
        serving = serve_app(Engine(ScoredModel(tiny())), offer, recorder=recorder("serve"), gate=Gate(TOKEN))
        proxy = proxy_app(
            ProxySettings(upstream.url),
            clusters,
            calibrator=CalibratorSlot(answers, lambda: answers),
            decision_calibrator=CalibratorSlot(decisions, lambda: decisions),
            recorder=recorder("proxy"),
            gate=Gate(TOKEN),
        )
        with running(serving, strict=False) as one, running(proxy) as other:
            yield {"serve": one, "proxy": other}


def attack(seed: int, requests: int, place: Path) -> Outcome:
    """Send so many requests to each route of each server."""
    outcome = Outcome("routes", "requests to each route that takes a body: no 5xx, no silence, no traceback")
    place.mkdir(parents=True, exist_ok=True)
    seen: dict[str, dict[int, int]] = {}
    with tracebacks() as logged, servers(place) as addresses:
        for server, address in addresses.items():
            for path in BODIES:
                statuses = seen.setdefault(f"{server} {path}", {})
                for number in range(requests):
                    chance = case_random(seed, f"routes/{server}{path}", number)
                    sent = request(path, chance, urlsplit(address).netloc)
                    try:
                        status = status_of(address, sent)
                    except OSError as error:
                        status = -1
                        outcome.notes.append(repr(error))
                    statuses[status] = statuses.get(status, 0) + 1
                    bad = status >= 500 or status < 0 or (sent.whole and status == 0) or bool(logged.found)
                    fault = f"{status} {logged.found[:1]} {sent.data[-200:]!r}" if bad else None
                    outcome.count(fault, f"{server} {path} number {number} ({sent.kind})")
                    logged.found.clear()
    outcome.notes += [f"{route}: {dict(sorted(statuses.items()))}" for route, statuses in seen.items()]
    return outcome
