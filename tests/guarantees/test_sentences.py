"""What is said of guarantees, calibrators and journals, word by word, as sentences.txt holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import semtoken as st
from semtoken.guarantees import GroupThresholds
from semtoken.guarantees.fingerprint import models_sentence
from semtoken.guarantees.journal.entries import line_of
from semtoken.guarantees.journal.labels import LabelAgreement
from semtoken.guarantees.journal.store import InUse, Size
from semtoken.guarantees.journal.watch import GuaranteeReport, guarantee_report
from semtoken.guarantees.judge import KINDS, Claim
from semtoken.guarantees.measures import Interval
from tests.core.shown import read_html
from tests.guarantees.made_up import DAY, entry, selective
from tests.guarantees.worlds import WORLDS


def said_of_fits() -> Iterator[Any]:
    for world in WORLDS.values():
        scores, correct = world.draw(np.random.default_rng(1), 150)
        threshold = st.Threshold.fit(scores, correct)
        yield from (repr(threshold), read_html(threshold._repr_html_()))
    fitted = st.Calibrator.fit(scores, correct, alpha=0.2)
    report = fitted.report(scores, correct)
    yield from (repr(fitted), read_html(fitted._repr_html_()), fitted.guarantee)
    yield from (read_html(report._repr_html_()), report.sentence)
    for low, high in ((-0.2, 0.0), (0.0, 0.2), (0.1, 0.2), (-0.2, -0.1)):
        yield replace(report, log_loss_gain=Interval(0.1, low, high)).sentence
    yield GroupThresholds.fit(scores, correct, groups=["ab"[i % 2] for i in range(150)], alpha=0.3).statement
    for calibrator in (fitted, replace(fitted, threshold=None)):
        used = InUse(calibrator, since=1.7e9)
        yield used.in_words.replace(used.checksum[:12], "CHECKSUM")


def said_of_journals() -> Iterator[Any]:
    right, wrong = [False] * 30, [True] * 30
    for bad, missing in (([], 0), (right[:5], 0), (right * 3, 0), (right + wrong, 0), (wrong, 3)):
        days = [1.7e9 + DAY * i for i in range(len(bad))]
        report = guarantee_report(bad, days, selective(0.2), without_label=missing)
        yield from (report.sentence, f"{report.low:.4f} {report.high:.4f} {report.n} {report.wrong} {report.state}")
    for kind in KINDS.values():
        yield guarantee_report([True, False], [1.7e9] * 2, Claim(kind, 0.2, 0.1)).sentence
    yield from GuaranteeReport("kept", "", undecided=2, models_sentence="Models.", moved_sentence="Moved.").remarks()
    for models in ({"a": 2}, {"a": 1500, "b": 7, "c": 1}):
        yield from (models_sentence(model, models, "newest answers") for model in (None, "a"))
    yield from (LabelAgreement(*counts).sentence for counts in ((0, 0), (40, 0), (40, 3)))
    yield from (Size(n, n // 2, n // 3, n // 4, n * 2**18, None, None).sentence for n in (0, 1, 4, 5000))
    row = json.loads(entry(1).line())
    decided = {"sampled": True, "decision": "answer", "probability_correct": 0.256, "flags": ["a", "b"]}
    for more in ({}, decided, {"unscored": "none", "model": None}, {"confidence_lower": 0.8, "confidence_upper": 0.95}):
        yield line_of(row | more)


def test_sentences_are_those_that_were_recorded() -> None:
    """If a change is meant, what this test prints goes into sentences.txt."""
    said = "\n".join([*said_of_fits(), *said_of_journals()]) + "\n"
    print(said)
    assert said == Path(__file__).with_name("sentences.txt").read_text("utf-8")
