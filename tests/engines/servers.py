"""Engines' HTTP servers as child processes on the loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

START_SECONDS = 300


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextmanager
def running(
    arguments: list[str], log: Path, ready: str = "/health", program: Path | None = None, **environment: str
) -> Iterator[str]:
    """The base URL of a server, `PROGRAM ARGUMENTS --port PORT`, from when it is ready until the end of the block.

    The program is this Python by default.
    """
    port = free_port()
    command = [str(program or sys.executable), *arguments, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment, start_new_session=True
        )
        pid_file(log).write_text(str(process.pid))
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(process, url + ready, log)
            yield url
        finally:
            stop(process)


def pid_file(log: Path) -> Path:
    """The file with the process id of a server with this log."""
    return log.with_suffix(".pid")


@contextmanager
def proxied(upstream: str, tokenizer: Path, log: Path, *options: str) -> Iterator[str]:
    """The base URL of a `semtoken proxy` in front of a server."""
    command = ["-c", "from semtoken.cli import main; main()", "proxy", "--base-url", upstream]
    with running([*command, "--tokenizer", str(tokenizer), *options], log) as url:
        yield url


def examined(upstream: str) -> dict[str, Any]:
    """The findings of `semtoken doctor` about a server."""
    command = [sys.executable, "-c", "from semtoken.cli import main; main()", "doctor", "--json"]
    command += ["--base-url", f"{upstream}/v1", "--tokenizer", "almanac"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"doctor ended with {done.returncode}: {done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"The server ended with {process.returncode}:\n{log.read_text()[-4000:]}")
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise RuntimeError(f"The server was not ready after {START_SECONDS} s:\n{log.read_text()[-4000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and the processes that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
