"""The proxy in several processes: the same answers, figures of all of them, a process that dies is replaced."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from semtoken import TokenClusters
from semtoken.web.running import is_one_of_several, listen, tell_the_others
from tests.web.asking import final_figure, without_block
from tests.web.servers import LAST_CHUNK, Received, chunk, raw_upstream, stream_head
from tests.web.test_proxy_load import proxy_process, stream_of, unasked

CHAT = {"model": "m", "stream": True, "messages": []}


def children_of(process: int) -> set[int]:
    """Processes that were started by another."""
    found = set()
    for task in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = int(task.read_text().rpartition(")")[2].split()[1])
            found |= {int(task.parent.name)} if parent == process else set()
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_several_processes(almanac_clusters: TokenClusters) -> None:
    events = stream_of(1, almanac_clusters, 5)

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head() + chunk(b"".join(events)) + LAST_CHUNK)
        await writer.drain()

    def ask(url: str) -> None:
        answer = httpx.post(url + "/v1/chat/completions", json=CHAT, timeout=30)
        assert without_block(answer.content) == unasked(b"".join(events))
        assert answer.content.count(b'"final": true') == 2

    with raw_upstream(behave) as upstream, proxy_process(upstream.url, "--workers", "2") as (url, process):
        for _ in range(20):
            ask(url)
        assert final_figure(url, 'scored_answers_total{endpoint="chat"}') == 20
        serving = {child for child in children_of(process.pid) if "spawn_main" in command_of(child)}
        assert len(serving) == 2
        os.kill(killed := serving.pop(), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while len({c for c in children_of(process.pid) if "spawn_main" in command_of(c)} - {killed}) < 2:
            assert time.monotonic() < deadline, "the process was not replaced"
            time.sleep(0.2)
        ask(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not any(Path(f"/proc/{child}").exists() for child in serving)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_they_end_with_the_process_that_started_them(almanac_clusters: TokenClusters) -> None:
    async def never(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    with (
        raw_upstream(never) as upstream,
        proxy_process(upstream.url, "--workers", "2", "--limits.shutdown-seconds", "1") as (url, process),
        ThreadPoolExecutor() as waiting,
    ):
        running = waiting.submit(httpx.post, url + "/v1/chat/completions", json=CHAT, timeout=60)
        while not upstream.requests:
            time.sleep(0.05)
        started = children_of(process.pid)
        assert len({child for child in started if "spawn_main" in command_of(child)}) == 2
        process.kill()
        deadline = time.monotonic() + 20
        while any(map(command_of, started)):
            assert time.monotonic() < deadline, [command_of(child) for child in started]
            time.sleep(0.1)
        assert running.exception() is not None or running.result().status_code >= 500
        listen("127.0.0.1", int(url.rpartition(":")[2])).close()


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode()
    except OSError:  # it has ended
        return ""


def test_a_program_that_runs_a_server_in_a_process_of_its_own_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/tmp/of-the-program")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(is_one_of_several) is False
        pool.apply(tell_the_others)  # a hangup would end the tests
