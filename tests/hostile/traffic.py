"""Requests through the proxy as people start it, in front of an upstream that fails in every way; on loopback only.

Every request has a number, from which both ends know what it must be answered: each client gets its own bytes, whole or
visibly broken off, and no request that may have an effect arrives twice unless the upstream refused log-probabilities.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp

from semtoken import TokenClusters
from tests.hostile.apis import APIS, ASKING, Api, Item, text_of
from tests.hostile.outcomes import Outcome, case_random
from tests.hostile.upstream import asked_together, listening
from tests.hostile.watch import WatchedServer
from tests.web.asking import without_block
from tests.web.servers import LAST_CHUNK, Received, chunk, response, stream_head
from tests.web.test_proxy_load import proxy_process

AT_ONCE = 40
TOKENS = 4
MIXTURE = {
    "stream": 20,
    "drips": 10,
    "reply": 20,
    "bytes": 20,
    "large": 1,
    "closes": 4,
    "500": 4,
    "refuses": 4,
    "dies": 4,
    "vanishes": 6,
    "garbage": 3,
    "damaged": 6,
    "odd": 6,
}
"""The behaviors of upstreams, and how often they come."""
TOLD = ("stream", "drips", "reply", "closes")
"""Behaviors whose answers are scored, and reported to OpenTelemetry."""
ODD_EVENTS = (
    b'data: {"odd": 1, "semtoken": {"final": true, "confidence": [0.5], "flags": 7, "reason": "x"}, "choices": 0}\n\n',
    b'data: {"odd": 1, "choices": [{"index": {}, "semtoken": {"final": true, "confidence": 1e400}}]}\n\n',
    b'data: {"odd": 1, "choices": [{"index": -1, "semtoken": {"final": true, "flags": [{"code": "a"}]}}]}\n\n',
    b'data: {"odd": 1, "response": {"semtoken": {"confidence": 0.5, "confidence_method": []}}, "type": []}\n\n',
    b'data: {"id": {"a": 1}, "model": ["m"], "choices": {"0": null}}\n\n',
    b'data: {"x": ' + b"[" * 3000 + b"]" * 3000 + b"}\n\n",
    b"data: " + b"[" * 3000 + b"\n\n",
    b": semtoken\nevent: semtoken\nid: 1\nretry: x\n\n",
)
"""Events of no known form, or with a block that nobody here has written: they pass, but for the block."""


class Plan:
    """The plan of every request.

    Parameters
    ----------
    seed
        Of all plans.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._clusters = TokenClusters.from_pretrained("almanac")
        vocabulary = self._clusters.vocabulary
        self._words = [i for i in range(vocabulary.size) if vocabulary.texts[i].isalpha()]

    def how(self, number: int) -> str:
        """The upstream's way of answering a request."""
        random = case_random(self._seed, "traffic", number)
        return random.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]

    def api(self, number: int) -> Api:
        """The API that the client speaks."""
        return APIS[case_random(self._seed, "api", number).choice(list(APIS))]

    def items(self, number: int) -> list[Item]:
        """The tokens of an answer that no other request gets, with the best of each."""
        vocabulary = self._clusters.vocabulary
        found: list[Item] = []
        for step in range(TOKENS):
            ids = [self._words[(number * 31 + step * 7 + k * 131) % len(self._words)] for k in range(20)]
            best = [
                {"id": i, "token": vocabulary.texts[i], "bytes": list(vocabulary.pieces[i]), "logprob": -0.9 - 0.7 * k}
                for k, i in enumerate(ids)
            ]
            found.append(best[0] | {"top_logprobs": best})
        return found

    def events(self, number: int, *, shown: bool = True) -> list[bytes]:
        """The events of a stream, with log-probabilities or without; one of a damaged one is no JSON."""
        events = self.api(number).stream(number, self.items(number), shown=shown)
        if self.how(number) == "damaged":
            at = case_random(self._seed, "damage", number).randrange(TOKENS)
            events[at] = self.api(number).stream(number, self.items(number), shown=True)[at][:-6] + b"\n\n"
        if self.how(number) == "odd":
            events.insert(1, self.odd_event(number))
        return events

    def odd_event(self, number: int) -> bytes:
        """The event in an answer that no server of that kind sends."""
        return case_random(self._seed, "odd", number).choice(ODD_EVENTS)

    def body(self, number: int, *, shown: bool = True) -> bytes:
        """The body of an answer that is no stream."""
        how = self.how(number)
        if how == "500":
            return b'{"error": {"message": "number %d"}}' % number
        if how in ("bytes", "large"):
            return case_random(self._seed, "bytes", number).randbytes(2**20 if how == "large" else 500)
        return json.dumps(self.api(number).whole(number, self.items(number), shown)).encode()

    def half(self, number: int, *, shown: bool = True) -> bytes:
        """The bytes of a stream that dies."""
        return b"".join(self.events(number, shown=shown)[:2]) + self.events(number)[2][:20]


class FaultyUpstream:
    """Answers by a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.deliveries: Counter[int] = Counter()
        self._known: set[int] = set()
        self.reused = 0
        """Requests on a connection that had carried one before."""

    async def answer(self, received: Received, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; whether the connection goes on."""
        port = writer.get_extra_info("peername")[1]
        self.reused += port in self._known
        self._known.add(port)
        asked = received.json()
        number = int(asked["user"])
        self.deliveries[number] += 1
        how, plan = self._plan.how(number), self._plan
        if how == "vanishes":
            return False
        if how == "garbage":
            writer.write(b"\x00garbage\r\n\r\n")
            return False
        if how == "closes":
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(plan.events(number)))
            return False
        if how == "dies":
            writer.write(stream_head() + chunk(plan.half(number)))
            await writer.drain()
            return False
        if how == "refuses" and any(asked.get(name) for name in ASKING):
            writer.write(response(b'{"error": {"message": "no logprobs here"}}', status=b"400 Bad"))
        elif how in ("reply", "refuses", "500"):
            status = b"500 Oh" if how == "500" else b"200 OK"
            writer.write(response(plan.body(number), status=status))
        elif how in ("bytes", "large"):
            writer.write(response(plan.body(number), kind=b"application/octet-stream"))
        else:
            whole = b"".join(plan.events(number))
            step = 700 if how == "drips" else len(whole)
            writer.write(stream_head())
            for start in range(0, len(whole), step):
                writer.write(chunk(whole[start : start + step]))
                await writer.drain()
            writer.write(LAST_CHUNK)
        return True


def judge(plan: Plan, number: int, status: int, got: bytes, ended: bool) -> str | None:
    """The fault of the bytes that a client got; None: there is none."""
    how = plan.how(number)
    shown = without_block(got)
    if how in ("vanishes", "garbage"):
        return None if status == 502 and ended else f"{how}: status {status}"
    if how == "dies":
        whole = plan.half(number, shown=False)
        return None if (status, ended, shown) == (200, False, whole) else f"{how}: {status}, {ended}, {got[:200]!r}"
    if how in ("500", "bytes", "large"):
        right = (500 if how == "500" else 200, True, plan.body(number))
        return None if (status, ended, got) == right else f"{how}: {status}, {ended}, {got[:200]!r}"
    if how == "odd":
        event = plan.odd_event(number)
        passed = (status, ended) == (200, True) and (b'"odd": 1' if b'"odd"' in event else event[:40]) in got
        return None if passed else f"{how}: {status}, {ended}, {got[:300]!r}"
    is_reply = how in ("reply", "refuses")
    whole = plan.body(number, shown=how == "refuses") if is_reply else b"".join(plan.events(number, shown=False))
    if (status, ended) != (200, True) or (how != "damaged" and shown != whole):
        return f"{how}: {status}, {ended}, {got[:300]!r}"
    return judge_score(how, got)


def judge_score(how: str, got: bytes) -> str | None:
    """Whether an answer has a number where it should, and none where it must not."""
    final = [line for line in got.split(b"\n") if b'"final": true' in line] if how != "reply" else [got]
    if how in ("damaged", "refuses"):
        return "a number in spite of damage" if any(b'"sequence_uncertainty"' in line for line in final) else None
    return None if final and all(b'"sequence_uncertainty"' in line for line in final) else f"{how}: no number"


async def ask(http: aiohttp.ClientSession, url: str, plan: Plan, number: int) -> str | None:
    """One request; what is wrong with its answer."""
    how = plan.how(number)
    streams = how in ("stream", "drips", "closes", "dies", "damaged", "odd")
    api = plan.api(number)
    path = "/v1/embeddings" if how in ("bytes", "large") else api.path
    asked: dict[str, Any] = {"model": f"m-{how}", **api.asked, "user": str(number), "stream": streams}
    got, status, ended = b"", 0, True
    try:
        async with http.post(url + path, json=asked) as answer:
            status = answer.status
            async for piece in answer.content.iter_any():
                got += piece
    except aiohttp.ClientPayloadError:
        ended = False
    except (TimeoutError, aiohttp.ClientError) as error:
        return f"{how}: {type(error).__name__}: {error}"
    return judge(plan, number, status, got, ended)


async def ask_all(url: str, plan: Plan, requests: int) -> dict[int, str | None]:
    """All requests, some at one time."""
    return await asked_together(lambda http, number: ask(http, url, plan, number), range(requests), AT_ONCE, 120)


def attack(seed: int, requests: int) -> Outcome:
    """Send so many requests through the proxy."""
    outcome = Outcome("traffic", "requests through the proxy: every client's own bytes, none delivered twice")
    plan = Plan(seed)
    faulty = FaultyUpstream(plan)
    with listening(faulty.answer) as upstream, telling_proxy(upstream) as (url, process, told):
        asyncio.run(ask_all(url, plan, AT_ONCE))  # warm: caches and connections are there
        faulty.deliveries.clear()
        watched, memory, start = WatchedServer("proxy", process, AT_ONCE), resident(process.pid), time.monotonic()
        found = asyncio.run(ask_all(url, plan, requests))
        seconds = time.monotonic() - start
        for number, fault in found.items():
            most = 2 if plan.how(number) == "refuses" else 1
            if not 1 <= faulty.deliveries[number] <= most:
                fault = f"{fault or plan.how(number)}: delivered {faulty.deliveries[number]} times"
            outcome.count(fault, f"request {number} of --seed {seed}")
        outcome.notes.append(
            f"{requests / seconds:,.0f} requests a second; {faulty.reused:,} on reused connections; resident memory "
            f"{memory:.0f} -> {resident(process.pid):.0f} MB"
        )
        outcome.failures += watched.stopped()
        events = events_of(told.read_text("utf-8"))
    outcome.failures += [fault for event in events if (fault := event_fault(plan, event)) is not None]
    scored = sum(plan.how(number) in TOLD for number in found)
    if len(events) < scored:
        outcome.failures.append(f"OpenTelemetry got {len(events)} events, {scored} answers were scored")
    outcome.notes.append(f"{len(events):,} events of OpenTelemetry, without a text")
    return outcome


@contextmanager
def telling_proxy(upstream: str) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """The proxy that sends events: its address, its process, and what OpenTelemetry's console exporter writes.

    Texts are not asked for.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "events"
        with (
            told.open("w") as file,
            mock.patch.dict(os.environ, {"OTEL_LOGS_EXPORTER": "console"}),
            proxy_process(upstream, "--telemetry.enabled=true", "--limits.connect-seconds", "100", stdout=file) as (
                url,
                process,
            ),
        ):
            yield url, process, told


def events_of(told: str) -> list[Any]:
    """The events that OpenTelemetry's console exporter wrote, one JSON object after the other."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while (at := told.find("{", at)) >= 0:
        event, at = decoder.raw_decode(told, at)
        found.append(event)
    return found


def event_fault(plan: Plan, event: Any) -> str | None:
    """The fault of an event: it says more than numbers and codes, or quotes the answer."""
    attributes = event.get("attributes") or {}
    named = re.fullmatch(r"[a-z]+[-_](\d+)", str(attributes.get("gen_ai.response.id", "")))
    if named and text_of(plan.items(int(named.group(1)))) in json.dumps(event):
        return f"an event quotes its answer: {json.dumps(attributes)[:300]}"
    return next((f"an event holds {value!r:.200}" for value in attributes.values() if not is_code(value)), None)


def is_code(value: Any) -> bool:
    """Whether a value is a number, a code, or a list of codes."""
    if isinstance(value, list | tuple):
        return all(map(is_code, value))
    return not isinstance(value, str) or re.fullmatch(r"[\w.:/@+=~-]{1,200}", value, re.ASCII) is not None


def resident(pid: int) -> float:
    """Megabytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6
