"""Debian's Chromium, which shows pages to tests.

A machine may lack it, and its tests are then skipped. Where SEMTOKEN_TEST_BROWSER is 1, as in .ci/run, they fail.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first one shows pages without windows around them, in half the time."""
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)


def needed(module: str) -> Any:
    """A module without which pages cannot be tested, for instance "playwright.sync_api"."""
    try:
        return importlib.import_module(module)
    except ImportError:
        _cannot_run(f"{module.partition('.')[0]} is not installed")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser for a test, or for many."""
    sync_api = needed("playwright.sync_api")
    if CHROMIUM is None:
        _cannot_run("no chromium on this machine (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def _cannot_run(why: str) -> NoReturn:
    if os.environ.get("SEMTOKEN_TEST_BROWSER") == "1":
        pytest.fail(f"{why}, and SEMTOKEN_TEST_BROWSER is 1")
    pytest.skip(why, allow_module_level=True)
