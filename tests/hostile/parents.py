"""Servers of several processes whose first process is killed: the others end with it, and their port is free."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import httpx

from semtoken.errors import SemtokenError
from semtoken.web.running import listen
from tests.hostile.outcomes import Outcome, case_random
from tests.web.servers import Received, raw_upstream
from tests.web.test_proxy_load import SEMTOKEN
from tests.web.test_proxy_workers import children_of, command_of

GRACE, PATIENCE, STARTING = 1, 60.0, 120.0
"""Seconds: that running answers have, that processes may take to end, and to start."""
CLIENTS = 4


def attack(seed: int, kills: int) -> Outcome:
    """Kill the first process of so many servers, some of them while they start, all others while they answer."""
    outcome = Outcome("parents", "first processes of `proxy --workers` killed: the others end, the port is free")

    async def never(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(600)

    with raw_upstream(never) as upstream:
        for number in range(kills):
            outcome.count(_kill_one(upstream.url, seed, number), f"kill {number} of --seed {seed}")
    return outcome


def _kill_one(upstream: str, seed: int, number: int) -> str | None:
    """Start a server, kill its first process, and say what is left of it."""
    random = case_random(seed, "parents", number)
    port = _free_port()
    command = [*SEMTOKEN, "proxy", "--base-url", upstream, "--tokenizer", "almanac"]
    command += ["--port", str(port), "--workers", str(random.choice((2, 3))), "--limits.shutdown-seconds", str(GRACE)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        if random.random() < 1 / 3:  # while it starts: its processes may not know yet that they have a parent
            _wait(lambda: bool(children_of(process.pid)), STARTING)
            time.sleep(random.random() * 3)
        else:
            told = process.stderr.readline()
            if not re.search(r"http://[\d.:]+", told):
                return f"it did not start: {told}"
            for _ in range(CLIENTS):
                Thread(target=_ask, args=(port,), daemon=True).start()
            time.sleep(random.random())
        started = children_of(process.pid)
        process.kill()
        process.wait(10)
        if not _wait(lambda: not any(map(command_of, started)), PATIENCE):
            return f"these are left: {[command_of(one) for one in started if command_of(one)]}"
        return None if _is_free(port) else "its port is taken"
    finally:
        process.kill()
        process.stderr.close()


def _ask(port: int) -> None:
    """A request that has no answer yet when the server ends."""
    with suppress(httpx.HTTPError):
        httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json={"model": "m", "messages": []}, timeout=60)


def _free_port() -> int:
    with listen("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


def _is_free(port: int) -> bool:
    try:
        listen("127.0.0.1", port).close()
    except (OSError, SemtokenError):
        return False
    return True


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so, or so many seconds; whether it is."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
