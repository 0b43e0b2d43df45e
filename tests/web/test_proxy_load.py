"""Hundreds of streams at one time through the proxy as people start it, many of them in front of trouble."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from semtoken import TokenClusters
from tests.web.asking import figure, final_figure, without_block
from tests.web.servers import (
    LAST_CHUNK,
    Received,
    chunk,
    connected,
    holding,
    raw_upstream,
    response,
    stream_head,
    ticking,
    wait_until,
)

SEMTOKEN = (sys.executable, "-c", "from semtoken.cli import main; main()")


@contextmanager
def proxy_process(
    upstream: str, *options: str, files: int | None = None, stdout: IO[str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`semtoken proxy` in a process of its own, which may open so many files: its address, the process.

    Its output goes to `stdout`, by default to that of this process.
    """
    command = [*SEMTOKEN, "proxy", "--base-url", upstream, "--tokenizer", "almanac", "--port", "0"]
    may_open = [] if files is None else ["prlimit", f"--nofile={files}:{files}"]
    process = subprocess.Popen([*may_open, *command, *options], stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"http://[\d.:]+", process.stderr.readline())
        assert found is not None
        yield found.group(), process
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


def stream_of(number: int, clusters: TokenClusters, tokens: int) -> list[bytes]:
    """Events that no other request gets."""
    vocabulary = clusters.vocabulary
    words = [i for i in range(vocabulary.size) if vocabulary.texts[i].isalpha()]
    events = []
    for step in range(tokens):
        ids = [words[(number * 31 + step * 7 + k * 131) % len(words)] for k in range(20)]
        top = [
            {"token": vocabulary.texts[i], "logprob": -0.9 - 0.7 * k, "bytes": list(vocabulary.pieces[i])}
            for k, i in enumerate(ids)
        ]
        choice = {"index": 0, "delta": {"content": vocabulary.pieces[ids[0]].decode()}, "finish_reason": None}
        events.append(
            {"id": f"chat-{number}", "choices": [choice | {"logprobs": {"content": [top[0] | {"top_logprobs": top}]}}]}
        )
    events.append({"id": f"chat-{number}", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]


BEHAVIORS = ("well", "well", "well", "dies", "stalls", "garbage", "drips", "closes", "500")


def unasked(events: bytes) -> bytes:
    """The upstream's events as a client is to get them that asked for no log-probabilities."""
    return re.sub(rb'"logprobs": \{"content": \[.*?\}\]\}\]\}', b'"logprobs": null', events)


def test_the_expected_bytes_are_what_is_meant() -> None:
    event = b'{"logprobs": {"content": [{"token": "a", "top_logprobs": [{"bytes": [1]}]}]}, "index": 0}'
    assert unasked(event) == b'{"logprobs": null, "index": 0}'


@pytest.mark.slow
def test_hundreds_of_streams(almanac_clusters: TokenClusters) -> None:
    clients, tokens = 400, 12
    streams = [stream_of(number, almanac_clusters, tokens) for number in range(clients)]

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        if not received.body:  # the look at /health
            return
        number, how = received.json()["user"].split()
        events = streams[int(number)]
        half = b"".join(events[: tokens // 2]) + events[tokens // 2][:20]
        if how == "garbage":
            writer.write(b"\x00garbage\r\n\r\n")
        elif how == "500":
            writer.write(b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno")
        elif how == "dies":
            writer.write(stream_head() + chunk(half))
        elif how == "stalls":
            writer.write(stream_head() + chunk(half))
            await writer.drain()
            await asyncio.sleep(300)
        elif how == "closes":
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(events))
        else:
            writer.write(stream_head())
            pieces = events if how == "well" else [b"".join(events)[i : i + 700] for i in range(0, 10**5, 700)]
            for piece in filter(None, pieces):
                writer.write(chunk(piece))
                await writer.drain()
                await asyncio.sleep(0.005)
            writer.write(LAST_CHUNK)
        await writer.drain()

    async def ask(http: httpx.AsyncClient, url: str, number: int) -> tuple[str, int, bytes, str]:
        how = BEHAVIORS[number % len(BEHAVIORS)]
        asked = {"model": "m", "stream": True, "messages": [], "user": f"{number} {how}"}
        got, status, end = b"", 0, "complete"
        try:
            async with http.stream("POST", url + "/v1/chat/completions", json=asked) as answer:
                status = answer.status_code
                async for piece in answer.aiter_raw():
                    got += piece
        except httpx.RemoteProtocolError:
            end = "broken off"
        return how, status, got, end

    async def ask_all(url: str) -> list[tuple[str, int, bytes, str]]:
        async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None)) as http:
            return await asyncio.gather(*(ask(http, url, number) for number in range(clients)))

    busy = ("--proxy.hold-seconds", "5")  # a quarter of a second is short on a machine that does this and more
    with (
        raw_upstream(behave) as upstream,
        proxy_process(upstream.url, "--limits.read-seconds", "15", *busy) as (url, process),
    ):
        httpx.get(url + "/health")
        before = open_files(process.pid)
        for _ in range(2):
            answers = asyncio.run(ask_all(url))
            reset = 0
            for number, (how, status, got, end) in enumerate(answers):
                whole = unasked(b"".join(streams[number]))
                shown = without_block(got)
                if how in ("well", "drips", "closes"):
                    assert (status, end, shown) == (200, "complete", whole)
                    assert got.count(b'"final": true') == 2  # on the last content, too
                elif how == "dies" and status == 502:  # its end was a reset, which takes with it what was not read yet
                    assert end == "complete" and b"upstream_broken" in got
                    reset += 1
                elif how in ("dies", "stalls"):
                    events = streams[number]
                    half = unasked(b"".join(events[: tokens // 2])) + events[tokens // 2][:20]
                    assert (status, end, shown) == (200, "broken off", half)
                elif how == "500":
                    assert (status, end, got) == (500, "complete", b"no")
                else:
                    assert (status, end) == (502, "complete")
            assert reset <= clients // 50
        wait_until(lambda: upstream.open == 0 and open_files(process.pid) <= before + 3, 20)
        assert process.poll() is None
        assert figure(url, "requests_in_flight") == 0
        count = Counter(how for how, *_ in answers)
        well = sum(count[how] for how in ("well", "drips", "closes"))
        assert final_figure(url, "scored_answers_total") == 2 * well
        assert final_figure(url, 'failures_total{reason="upstream_stalled"}') == 2 * count["stalls"]


def open_files(pid: int) -> int:
    """File descriptors of a process, its sockets among them."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs prlimit")
def test_idle_clients_lock_nobody_out_where_few_files_may_be_open() -> None:
    """With 256 descriptors and 600 clients that say nothing, or half a head, others are served; the log stays short."""
    with (
        raw_upstream(response(b"{}")) as upstream,
        proxy_process(upstream.url, files=256) as (url, process),
    ):
        idle = [connected(url) for _ in range(600)]
        for sock in idle[::2]:
            with suppress(OSError):
                sock.sendall(b"POST /v1/x HTTP/1.1\r\nHost: loc")
        before = seconds_used(process.pid)
        for _ in range(20):
            assert httpx.post(url + "/v1/x", json={}, timeout=10).status_code == 200
            time.sleep(0.05)
        assert open_files(process.pid) < 256
        assert seconds_used(process.pid) - before < 1.5
        for sock in idle:
            sock.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr is not None
        told = process.stderr.read()
        assert len(told) < 20_000 and told.count("Too many open files") <= 10


def seconds_used(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_the_command_tells_where_it_is_and_drains_on_a_signal() -> None:
    release = threading.Event()
    slow = holding(release, chunk(b"data: [DONE]\n\n") + LAST_CHUNK, stream_head() + chunk(b": begun\n\n"))
    with raw_upstream(slow) as upstream, proxy_process(upstream.url) as (url, process):
        headers: Any = {"authorization": "Bearer sk-secret"}
        with httpx.stream("POST", url + "/v1/chat/completions?key=sk-secret", json={}, headers=headers) as answer:
            pieces = answer.iter_raw()
            assert next(pieces) == b": begun\n\n"
            process.send_signal(signal.SIGTERM)
            threading.Timer(0.7, release.set).start()
            assert b"".join(pieces) == b"data: [DONE]\n\n"
        assert process.wait(20) == 0
        assert process.stderr is not None
        told = process.stderr.read()
        assert "sk-secret" not in told
        assert "Traceback" not in told


@pytest.mark.slow
def test_a_signal_does_not_wait_for_ever() -> None:
    with (
        raw_upstream(ticking) as upstream,
        proxy_process(upstream.url, "--limits.shutdown-seconds", "1") as (url, process),
    ):
        with pytest.raises(httpx.RemoteProtocolError), httpx.stream("POST", url + "/v1/x", json={}) as answer:
            for i, _ in enumerate(answer.iter_raw()):
                if i == 1:
                    process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.slow
def test_the_command_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    for options, words in (
        (["--base-url", "ftp://x", "--tokenizer", "almanac"], "must be an address"),
        (["--base-url", "http://127.0.0.1:1", "--tokenizer", str(tmp_path / "none")], "none"),
    ):
        done = subprocess.run([*SEMTOKEN, "proxy", *options], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert words in done.stderr
