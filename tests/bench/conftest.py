"""Fixtures of the tests of runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.bench.runs import start, tiny_settings


@cache
def _freeze_what_is_loaded(file: Path) -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _loaded_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs collect garbage when they let go of a model: after its first test a file has loaded what it needs."""
    yield
    _freeze_what_is_loaded(request.path)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The settings and the folder of a finished run of every method. Copy the folder before you change it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEMTOKEN_CACHE", str(folder / "cache"))
        settings = tiny_settings(folder)
        assert start(settings, folder / "run") == []
    return settings, folder / "run"
