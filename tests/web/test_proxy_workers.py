"""The proxy in several processes: the same answers, figures of all of them, a process that dies is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from semtoken import TokenClusters
from semtoken.web.running import is_one_of_several, listen, tell_the_others
from tests.web.asking import CHAT, final_figure, post, without_block
from tests.web.servers import raw_upstream, silent, streamed, wait_until
from tests.web.test_proxy_load import SEMTOKEN, proxy_process, stream_of, unasked


def children_of(process: int) -> set[int]:
    """Processes that were started by another."""
    found = set()
    for task in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = int(task.read_text().rpartition(")")[2].split()[1])
            found |= {int(task.parent.name)} if parent == process else set()
    return found


def workers_of(process: int) -> set[int]:
    """The processes that serve, of those that a command started."""
    return {child for child in children_of(process) if "spawn_main" in command_of(child)}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_several_processes(almanac_clusters: TokenClusters) -> None:
    events = b"".join(stream_of(1, almanac_clusters, 5))

    def ask(url: str) -> None:
        answer = post(url, json=CHAT | {"stream": True})
        assert without_block(answer.content) == unasked(events)
        assert answer.content.count(b'"final": true') == 2

    with (
        raw_upstream(streamed(events, size=len(events))) as upstream,
        proxy_process(upstream.url, "--workers", "2") as (url, process),
    ):
        for _ in range(20):
            ask(url)
        assert final_figure(url, 'scored_answers_total{endpoint="chat"}') == 20
        serving = workers_of(process.pid)
        assert len(serving) == 2
        os.kill(killed := serving.pop(), signal.SIGKILL)
        wait_until(lambda: len(workers_of(process.pid) - {killed}) == 2, 60)
        ask(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not any(Path(f"/proc/{child}").exists() for child in serving)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_they_end_with_the_process_that_started_them(almanac_clusters: TokenClusters) -> None:
    with (
        raw_upstream(silent) as upstream,
        proxy_process(upstream.url, "--workers", "2", "--limits.shutdown-seconds", "1") as (url, process),
        ThreadPoolExecutor() as waiting,
    ):
        running = waiting.submit(post, url)
        wait_until(lambda: upstream.requests)
        started = children_of(process.pid)
        assert len(workers_of(process.pid)) == 2
        process.kill()
        wait_until(lambda: not any(map(command_of, started)), 20)
        assert running.exception() is not None or running.result().status_code >= 500
        listen("127.0.0.1", int(url.rpartition(":")[2])).close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_comes_while_they_start_ends_all_of_them(sent: signal.Signals) -> None:
    """It waited until the last of them took requests, which takes some seconds."""
    command = [*SEMTOKEN, "proxy", "--base-url", "http://127.0.0.1:9", "--port", "0", "--workers", "8"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(workers_of(process.pid)) == 8, 60)
        started = children_of(process.pid)
        process.send_signal(sent)
        said = process.communicate(timeout=60)[1]
        wait_until(lambda: not any(map(command_of, started)), 60)
    finally:
        process.kill()
    assert process.returncode == (0 if sent == signal.SIGTERM else -sent) and "semtoken proxy at" not in said


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
