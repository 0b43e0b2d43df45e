"""Damaged calibrators: refused, or what was saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semtoken import Calibrator, Threshold
from semtoken.decisions import Predicate
from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord
from tests.guarantees.worlds import WORLDS
from tests.hostile.damage import each_damage, files_of
from tests.hostile.outcomes import Outcome


def attack(seed: int, every: int, folder: Path) -> list[Outcome]:
    """Damage each kind of file."""
    return [calibrators(seed, every, folder)]


def calibrators(seed: int, every: int, folder: Path) -> Outcome:
    """Calibrators of answers and of decisions, with all that they can hold."""
    outcome = Outcome("damage", "damaged calibrators: refused, or what was saved")
    made: dict[str, Any] = {"answers": calibrator_of_answers(), "decisions": calibrator_of_decisions()}
    for name, saved in made.items():
        place = folder / name
        saved.save(place)
        each_damage(outcome, place, files_of(place), seed, every, _loads_as(saved, place))
    return outcome


def _loads_as(saved: Any, place: Path) -> Callable[[], str | None]:
    return lambda: None if type(saved).load(place) == saved else "loaded as something else"


def calibrator_of_answers() -> Calibrator:
    """One with a threshold."""
    scores, correct = WORLDS["good model"].draw(np.random.default_rng(0), 60)
    return replace(Calibrator.fit(scores, correct), threshold=Threshold.fit(scores, correct, alpha=0.2))


def calibrator_of_decisions() -> DecisionCalibrator:
    """One of a question with two sides."""
    random = np.random.default_rng(0)
    records = [
        DecisionRecord(Answer(Predicate("Is it late?", name="late"), (p, 1 - p)), label=int(i % 4 == 0), state=str(i))
        for i, p in enumerate(0.5 + random.random(80) / 2)
    ]
    return DecisionCalibrator.fit(records, guarantee="selective_risk", alpha=0.3, delta=0.1)
