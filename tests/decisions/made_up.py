"""Labeled answers to typed questions from a world of known chances, and files of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.decisions import Answer, Predicate, Question, ReadingOptions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord, answer_values
from semtoken.decisions.sides import DecisionSide
from semtoken.decisions.wire import systemone
from semtoken.decisions.wire.extension import answers_in
from tests.json_lines import read_lines, write_lines

ASKED = Predicate("Is it late?", name="late")


def changed(record: DecisionRecord, **fields: Any) -> DecisionRecord:
    """A record with other fields of its answer."""
    return replace(record, answer=replace(record.answer, **fields))


def side_of(calibrator: DecisionCalibrator, record: DecisionRecord) -> DecisionSide:
    """The fit to the side that a record is on."""
    side = calibrator.questions[record.fingerprint].side_of(record)
    assert side is not None
    return side


def read_from(question: Question, **given: Any) -> Answer:
    """The answer to a question in a server's reply that has these fields."""
    [found] = answers_in([question], [("answers", "q")], {"answers": {"q": given}}, systemone.read_answer)
    return found


def verdicts_in(shown: str) -> dict[str, str]:
    """The verdict on each side, and on the sets, in what `audit --json` prints."""
    return {one["side"]: one["verdict"] for one in read_lines(shown) if "side" in one}


def world(n: int, seed: int, sharpened: float = 1.0) -> list[DecisionRecord]:
    """Predicates whose chance of being so is drawn evenly; the server tells it, sharpened."""
    chance = np.random.default_rng(seed)
    p = chance.uniform(0.01, 0.99, n)
    label = np.where(chance.random(n) < p, 0, 1)
    told = p**sharpened / (p**sharpened + (1 - p) ** sharpened)
    return [
        DecisionRecord(Answer(ASKED, (float(a), float(1 - a))), label=int(b), state=f"{seed} {i}")
        for i, (a, b) in enumerate(zip(told, label, strict=True))
    ]


def answers(
    path: Path, n: int, seed: int, sharpened: float = 1.0, name: str = "late", question: Question = ASKED
) -> Path:
    """The lines that `decide` writes of such a world."""
    return write_lines(
        path,
        (
            {
                "state": f"item {i} of {seed}",
                "labels": {name: one.label == 0},
                "answers": {name: answer_values(Answer(question, one.answer.probabilities), ReadingOptions())},
            }
            for i, one in enumerate(world(n, seed, sharpened))
        ),
    )
