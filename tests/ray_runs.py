"""Commands with Ray's workers, which listen on every interface: they run where there is nothing but loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "alone")
TWO_WORKERS = ("--executor.kind=ray", "--executor.workers", "2")


def in_a_namespace(*command: str) -> subprocess.CompletedProcess[str]:
    """A command that can reach nothing but loopback; skips where that cannot be had."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("Ray is not tested here: unshare and ip, which make a network namespace, are not both installed")
    probe = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"Ray is not tested here: no network namespace can be made ({probe.stderr.strip()})")
    environment = os.environ | {"RAY_worker_niceness": "0"}  # a busy machine would leave its workers no time
    return subprocess.run([*ALONE, *command], capture_output=True, text=True, check=False, timeout=900, env=environment)


def here_and_by_ray(*words: object, here: Path, by_ray: Path) -> None:
    """Run `semtoken` with these words, and an output, in one process and by two workers."""
    command = [str(Path(sys.executable).with_name("semtoken")), *map(str, words), "--output"]
    for options in ((str(here),), (str(by_ray), *TWO_WORKERS)):
        done = in_a_namespace(*command, *options)
        assert done.returncode == 0, done.stderr
