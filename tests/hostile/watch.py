"""A server in a process of its own, under watch: which files it keeps open, whether it runs, and what it logs."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field

from tests.web.test_proxy_load import open_files

PATIENCE = 60.0
"""Seconds that a server has to stop."""
SETTLING = 0.5
"""Seconds in which connections that clients left are closed."""


@dataclass
class WatchedServer:
    """A server that requests go to from now on."""

    name: str
    process: subprocess.Popen[str]
    spare: int
    """So many files more may be open afterwards: connections that are kept."""
    files: int = field(init=False)
    """Open before the requests."""

    def __post_init__(self) -> None:
        self.files = open_files(self.process.pid)

    def stopped(self) -> list[str]:
        """Stop it; what is wrong with how it was left."""
        time.sleep(SETTLING)
        left, ended = open_files(self.process.pid), self.process.poll()
        faults = []
        if ended is not None or left > self.files + self.spare:
            faults.append(f"{self.name}: {left} files open, {self.files} before; ended with {ended}")
        self.process.terminate()
        try:
            log = self.process.communicate(timeout=PATIENCE)[1]
        except subprocess.TimeoutExpired:
            return [*faults, f"{self.name}: it did not stop"]
        return [*faults, f"{self.name}: a traceback in the log: {log[-1500:]}"] if "Traceback" in log else faults
