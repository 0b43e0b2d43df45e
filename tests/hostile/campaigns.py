"""The campaigns by name, each to be run in a process of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Sizes:
    """How much of each campaign: the options of the command."""

    calls: int
    first: int
    answers: int
    texts: int
    parts: int
    every: int
    kills: int
    requests: int
    asked: int
    questions: int
    parents: int
    routes: int


def outcomes_of(name: str, seed: int, sizes: Sizes, place: Path) -> list[Outcome]:
    """Run one campaign; `place` is a folder for its files."""
    logging.disable(logging.CRITICAL)
    if name == "functions":
        os.chdir(place)  # some targets save under odd names
    attacks: dict[str, Callable[[], list[Outcome]]] = {
        "functions": lambda: [functions.attack(seed, sizes.calls, sizes.first)],
        "intervals": lambda: [intervals.attack(seed, sizes.answers)],
        "texts": lambda: [texts.attack(seed, sizes.parts)],
        "outputs": lambda: [outputs.attack(seed, sizes.texts, place)],
        "damage": lambda: damage.attack(seed, sizes.every, place / "damage"),
        "kills": lambda: kills.attack(seed, sizes.kills, place / "kills"),
        "traffic": lambda: [traffic.attack(seed, sizes.requests)],
        "serving": lambda: [serving.attack(seed, sizes.asked)],
        "questions": lambda: [questions.attack(seed, sizes.questions, sizes.first)],
        "parents": lambda: [parents.attack(seed, sizes.parents)],
        "routes": lambda: [routes.attack(seed, sizes.routes, place / "routes")],
    }
    return attacks[name]()
