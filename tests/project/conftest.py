"""The documentation site, built for the tests that read it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site() -> Iterator[Path]:
    """The folder of the site. One test at a time has it, since all of them build it at the same place."""
    pytest.importorskip("zensical", reason="the group docs is not installed (make docs)")
    (ROOT / "build").mkdir(exist_ok=True)
    with FileLock(ROOT / "build" / "site.lock"):
        for command in (["scripts/gather_docs.py"], ["-m", "zensical", "build", "--strict", "--clean"]):
            done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        yield ROOT / "build" / "site"
