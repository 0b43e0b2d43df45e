"""Calibrators, thresholds, judges' verdicts and typed questions."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from examples.cascade import CascadeThreshold

import semtoken
from semtoken import Calibrator, Threshold
from semtoken.bench.judges import agreement, correctness, tally
from semtoken.decisions import Choice, Option, Predicate, ReadingOptions, Score, decide_about
from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord
from semtoken.guarantees import Fingerprint
from tests.hostile.functions import Target

RANDOM = np.random.default_rng(2)
LOGS = -RANDOM.exponential(0.7, 60)
RIGHT = (RANDOM.random(60) < np.exp(LOGS)).astype(np.float64)
JUDGED = np.array([1.0, 0, 0, 1, 1, 0])


@cache
def folder() -> Path:
    """The folder in which targets save."""
    return Path(tempfile.mkdtemp(prefix="hostile-"))


def of_calibrators(answer: semtoken.ScoredAnswer) -> list[Target]:
    """Calibrators of answers."""
    threshold, new, known = Threshold.fit(LOGS, RIGHT, alpha=0.4), {"answer": LOGS[:8].copy()}, Fingerprint(model="m")
    calibrator = replace(Calibrator.fit(LOGS, RIGHT), threshold=threshold)
    fitted = {"scored": LOGS, "correct": RIGHT}
    action = attrgetter("action")
    return [
        Target(Calibrator.fit, fitted, 0, weight=0.1, booleans=("correct",), read=attrgetter("n")),
        Target(calibrator.predict_proba, new, 0, 1, nan=True),
        Target(calibrator.predict_proba_interval, new, 0, 1, nan=True),
        Target(calibrator.flags, {"answer": answer}),
        Target(calibrator.report, fitted, weight=0.1, read=bool),
        Target(calibrator.drift, {"scores": LOGS}, 0, 1, nan=True, weight=0.2, read=attrgetter("distance")),
        Target(calibrator.was_fitted_on, {"scored": LOGS}),
        Target(calibrator.decide, {"answer": LOGS[0]}, read=action),
        Target(calibrator.save, {"directory": folder() / "calibrator"}, read=bool),
        Target(Calibrator.load, {"directory": "nowhere"}, refuses=True),
        Target(Fingerprint, {"model": "m"}, read=lambda made: made.flags(Fingerprint(model="other"))),
        Target(known.require_same, {"other": known}),
    ]


def of_thresholds(answer: semtoken.ScoredAnswer) -> list[Target]:
    """Thresholds with a guarantee, for one model and for two."""
    threshold, uncertain = Threshold.fit(LOGS, RIGHT, alpha=0.4), -RANDOM.random(200)
    pair = {"first": LOGS, "first_correct": RIGHT, "second": LOGS[::-1].copy(), "second_correct": RIGHT}
    both: dict[str, Any] = pair | {"unlabeled": (uncertain, uncertain), "alpha": 0.4, "delta": 0.2}
    cascade = CascadeThreshold.fit(**both)
    of_both, action = ("first_correct", "second_correct"), attrgetter("action")
    fitted = {"scored": LOGS, "correct": RIGHT, "alpha": 0.3}
    chosen = {"labeled_answers": LOGS, "correct": RIGHT, "new": LOGS[:10].copy(), "alpha": 0.3}
    return [
        Target(Threshold.fit, fitted, weight=0.3, booleans=("correct",), read=attrgetter("start")),
        Target(threshold.accepts, {"scored": LOGS[:8].copy()}),
        Target(threshold.decide, {"answer": answer}, read=action),
        Target(semtoken.select, chosen, 0, weight=0.3, booleans=("correct",)),
        Target(CascadeThreshold.fit, both, weight=0.3, booleans=of_both, read=attrgetter("first")),
        Target(cascade.decide, {"answer": answer, "model": "first"}, read=action),
    ]


def of_judgments() -> list[Target]:
    """Judges' verdicts."""
    accuracy = attrgetter("accuracy")
    return [
        Target(tally, {"judgments": JUDGED}, 0, 1, nan=True, booleans=("judgments",), read=accuracy),
        Target(agreement, {"judgments": {"a": JUDGED, "b": JUDGED}}, read=len),
        Target(correctness, {"verdicts": []}, 0, 1, nan=True),
    ]


def _probabilities(answers: Any) -> list[float]:
    """The probabilities of all answers, which are listed as their questions are: by names or in order."""
    return [p for one in (answers.values() if isinstance(answers, dict) else answers) for p in one.probabilities]


def of_decisions() -> list[Target]:
    """Typed questions, their answers and their calibrator."""
    from tests.decisions.models import tiny

    late = Predicate("Is it late?", name="late")
    questions = {"tone": Choice("Which tone?", ["calm", "angry"]), "late": late}
    asked = {"state": "My parcel is late.", "questions": questions, "options": ReadingOptions()}
    records = [
        DecisionRecord(Answer(late, (p, 1 - p)), label=int(i % 4 == 0), state=str(i))
        for i, p in enumerate(0.5 + RANDOM.random(60) / 2)
    ]
    fitted = DecisionCalibrator.fit(records, alpha=0.3)
    return [
        Target(DecisionCalibrator.fit, {"records": records}, weight=0.1, read=attrgetter("sides")),
        Target(fitted.without_guarantee, {"required": ["late"]}),
        Target(fitted.unknown, {"required": ["late", "early"]}),
        Target(Predicate, {"instructions": "Is it?"}),
        Target(Choice, {"instructions": "Which?", "choices": ["a", "b"]}),
        Target(Score, {"instructions": "How much?", "levels": ["low", "high"]}),
        Target(Option, {"value": "a", "name": "a"}),
        Target(ReadingOptions, {}),
        Target(
            partial(decide_about, tiny()),
            asked,
            0,
            1,
            weight=0.2,
            read=_probabilities,
        ),
    ]
