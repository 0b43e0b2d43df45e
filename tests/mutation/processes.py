"""Runs of tests in children of a process that has the large libraries loaded, on a copy of the package."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGE = (
    *("numpy", "scipy.optimize", "scipy.stats", "pandas", "pyarrow.parquet", "sklearn.linear_model", "sqlalchemy"),
    *("torch", "transformers.generation.utils", "transformers.models.llama.modeling_llama", "hypothesis.strategies"),
    *("typer.testing", "httpx", "alembic.command", "jsonschema"),
)
"""What the package needs and takes long to import."""
FEW_EXAMPLES = "few"
"""A profile of Hypothesis with which tests call the functions that they always call, and end soon."""


def load_libraries() -> None:
    """Import what all children need; nothing of semtoken."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for name in LARGE:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    if "semtoken" in sys.modules:
        raise RuntimeError("semtoken is loaded already, so that a child would not see the change.")
    from hypothesis import settings

    settings.register_profile(FEW_EXAMPLES, deadline=None, derandomize=True, max_examples=5)


def run_tests(source: Path, files: Iterable[str], plugins: list[object], limit: float) -> int | None:
    """Run tests in a child; its exit status as pytest gives it, or None if it took longer than `limit` seconds."""
    child = os.fork()
    if not child:
        os._exit(_in_child(source, list(files), plugins))
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _kill_group(child)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    _kill_group(child)
    os.waitpid(child, 0)
    return None


def _in_child(source: Path, files: list[str], plugins: list[object]) -> int:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    try:
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = str(source)
        sys.path.insert(0, str(source))
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *files], plugins))
    except BaseException:
        traceback.print_exc()
        return 1


def _kill_group(child: int) -> None:
    """Servers that a test left behind go, too."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return
