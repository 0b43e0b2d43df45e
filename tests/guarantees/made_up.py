"""Entries as servers write them, with labels and calibrators, without a model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

import semtoken as st
from semtoken.guarantees import Fingerprint
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.journal.database import entries, labels
from semtoken.guarantees.journal.entries import JournalEntry, SamplingRule
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.judge import KINDS, Claim

DAY = 86400.0
RULE = SamplingRule("seed", 0.3)


def entry(number: int, **about: Any) -> JournalEntry:
    name = f"entry-{number}"
    values = {
        "id": name,
        "at": 1.7e9 + number,
        "source": "proxy",
        "sampled": RULE.takes(name),
        "seen_twice": RULE.takes(name) and RULE.takes_twice(name),
        "model": "m",
        "prompt": f"p{number}",
        "log_confidence": -0.01 * (number % 100),
        "log_confidence_lower": -0.01 * (number % 100),
        "log_confidence_upper": -0.01 * (number % 100),
        "method": "exact",
        "signature": "preset:default",
        "distribution": "raw",
        "confidence_method": "stc",
        "confidence": 0.9,
        "question": f"question {number}",
        "answer": f"answer {number}",
        "flags": ("wide",),
        "numbers": {"perplexity": [1.5, 1.0, 2.0]},
    }
    return JournalEntry(**{**values, **about})


def rows_of(made: Iterable[JournalEntry]) -> list[dict[str, Any]]:
    """Entries as `Journal.add` takes them."""
    return [json.loads(one.line()) for one in made]


@cache
def simulated(alpha: float = 0.1, seed: int = 0, **origin: Any) -> tuple[st.Calibrator, st.Threshold]:
    """A calibrator and a threshold of 300 scores that are too sure of themselves; `origin` goes to `Fingerprint`."""
    generator = np.random.default_rng(seed)
    scores = -generator.exponential(1, 300)
    correct = generator.random(300) < np.exp(scores / 4)
    known = Fingerprint(**origin)
    threshold = st.Threshold.fit(scores, correct, alpha=alpha, fingerprint=known)
    return st.Calibrator.fit(scores, correct, fingerprint=known), threshold


def put(folder: Path, alpha: float = 0.1, seed: int = 0, **origin: Any) -> st.Calibrator:
    """The same in a folder, as it is read from there."""
    calibrator, threshold = simulated(alpha, seed, **origin)
    calibrator.save(folder, threshold)
    return st.Calibrator.load(folder)


@cache
def fitted(alpha: float = 0.2, seed: int = 0) -> CalibratorInUse:
    """A calibrator with a threshold, as a server uses it; it cannot be changed."""
    generator = np.random.default_rng(seed)
    scores = -generator.exponential(0.5, 400)
    correct = generator.random(400) < np.exp(scores)
    threshold = st.Threshold.fit(scores, correct, alpha=alpha)
    return CalibratorInUse(replace(st.Calibrator.fit(scores, correct), threshold=threshold))


def selective(alpha: float) -> Claim:
    """That at most this share of the accepted answers is wrong, with confidence 90%."""
    return Claim(KINDS["selective_risk"], alpha, 0.1)


def filled(
    journal: Journal,
    applied: CalibratorInUse,
    correct: list[bool],
    first: int = 0,
    *,
    begin: float = 1.7e9,
    step: float = DAY,
) -> None:
    """Accepted answers of the random sample, one a day, each with a label."""
    journal.use(applied.file, applied.checksum)
    made = [
        entry(first + i, at=begin + step * (first + i), sampled=True, decision="answer", calibrator=applied.checksum)
        for i in range(len(correct))
    ]
    journal.add(rows_of(made))
    if made:
        labeled(journal, {one.id: right for one, right in zip(made, correct, strict=True)})


def labeled(journal: Journal, said: Mapping[str, bool]) -> None:
    """The first labels of these entries, by one person and in this order, in one statement: `add_label` takes four."""
    with journal.engine.begin() as connection:
        places = {row.id: row.n for row in connection.execute(sa.select(entries.c.id, entries.c.n))}
        begin = time.time()
        made = (
            {"entry": places[name], "reviewer": "me", "correct": right, "at": begin + i * 1e-5}
            for i, (name, right) in enumerate(said.items())
        )
        connection.execute(sa.insert(labels), list(made))
