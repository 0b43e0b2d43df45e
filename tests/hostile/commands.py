"""Commands of semtoken in processes of their own, which can be killed at any moment.

A process is a copy of this one (`os.fork`), so that torch is loaded once; what runs in it is the real command.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import yaml

from tests.bench.runs import tiny_settings

PATIENCE = 300.0


def run_command(arguments: list[str], kill_after: float | None = None, log: Path | None = None) -> bool:
    """Run a command; whether it came to its end before it was killed.

    Parameters
    ----------
    arguments
        As on the command line.
    kill_after
        Seconds after which it gets SIGKILL; None: never.
    log
        Where its output goes.

    Raises
    ------
    AssertionError
        It failed, or hung.
    """
    child = os.fork()
    if child == 0:
        _become(arguments, log)
    end = time.monotonic() + (PATIENCE if kill_after is None else kill_after)
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"{' '.join(arguments)} ended with {status}: {'' if log is None else log.read_text()}"
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert kill_after is not None, f"{' '.join(arguments)} hung"
    return False


def _become(arguments: list[str], log: Path | None) -> None:
    """Be the command, in a new process."""
    status = 1
    try:
        sink = os.open(os.devnull if log is None else str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        from semtoken.cli.app import launch

        status = launch(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def bench_settings(folder: Path) -> Path:
    """Settings of a small run, with its model and questions, in a folder."""
    path = folder / "run.yaml"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        few = {"methods": ["stc", "ln_entropy"], "sensitivity": {}, "shard_size": 2}
        path.write_text(yaml.safe_dump(tiny_settings(folder) | few))
    return path
