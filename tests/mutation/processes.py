"""Runs of tests in children of a process that has the large libraries loaded, on a copy of the package."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGE = (
    *("numpy", "scipy.optimize", "scipy.stats", "pandas", "pyarrow.parquet", "sklearn.linear_model", "sqlalchemy"),
    *("torch", "transformers.generation.utils", "transformers.models.llama.modeling_llama", "hypothesis.strategies"),
    *("typer.testing", "httpx", "jsonschema"),
)
"""Libraries that the package needs and that take long to import."""
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
    return status_of(in_child(lambda: run(source, list(files), plugins)), limit)


def in_child(function: Callable[[], int]) -> int:
    """Fork, and do something in the child, whose status it gives; the child's number."""
    if child := os.fork():
        return child
    status = 1
    try:
        os.setsid()
        status = function()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def status_of(child: int, limit: float) -> int | None:
    """Wait for a child that leads a group, and end the group; its status, or None after `limit` seconds."""
    end, status = time.monotonic() + limit, None
    while status is None and time.monotonic() < end:
        done, raw = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(raw) if done else None
        time.sleep(0 if done else 0.01)
    with suppress(ProcessLookupError):  # servers that a test left behind go, too
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def run(source: Path, files: list[str], plugins: list[object]) -> int:
    """Run tests in this process, which says nothing from now on; the status as pytest gives it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(source)
    sys.path.insert(0, str(source))
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *files], plugins))
