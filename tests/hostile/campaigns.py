"""The campaigns by name, each to be run in a process of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.hostile import (
    damage,
    functions,
    intervals,
    kills,
    outputs,
    parents,
    questions,
    routes,
    serving,
    texts,
    traffic,
)
from tests.hostile.outcomes import Outcome

ATTACKS: Mapping[str, Callable[..., Any]] = {
    "functions": functions.attack,
    "intervals": intervals.attack,
    "outputs": outputs.attack,
    "texts": texts.attack,
    "damage": damage.attack,
    "kills": kills.attack,
    "traffic": traffic.attack,
    "serving": serving.attack,
    "questions": questions.attack,
    "parents": parents.attack,
    "routes": routes.attack,
}
"""Each takes the seed and how much of it, and some a folder for their files."""
WITH_FILES = ("outputs", "damage", "kills", "routes")


def outcomes_of(name: str, seed: int, sizes: tuple[int, ...], place: Path) -> list[Outcome]:
    """Run one campaign; `place` is a folder for its files."""
    logging.disable(logging.CRITICAL)
    if name == "functions":
        os.chdir(place)  # some targets save under odd names
    found = ATTACKS[name](seed, *sizes, *([place / name] if name in WITH_FILES else ()))
    return found if isinstance(found, list) else [found]
