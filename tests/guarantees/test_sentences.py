"""All that is said of guarantees, calibrators, audits and journals, word by word, as sentences.txt holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

import semtoken as st
from semtoken.choices import Guarantee
from semtoken.guarantees import Bands, Fingerprint, GroupThresholds, exact
from semtoken.guarantees.answer_records import AnswerRecord, answer_record
from semtoken.guarantees.apply import CalibratorInUse, decided
from semtoken.guarantees.auditing import AuditLimits, audit_answers
from semtoken.guarantees.fingerprint import models_sentence
from semtoken.guarantees.journal.entries import line_of
from semtoken.guarantees.journal.labels import LabelAgreement
from semtoken.guarantees.journal.store import InUse, Size
from semtoken.guarantees.journal.watch import GuaranteeReport, guarantee_report
from semtoken.guarantees.judge import KINDS, Claim
from semtoken.guarantees.labeling import LabelingSession
from tests.guarantees.made_up import DAY, entry
from tests.guarantees.worlds import WORLDS

LIMITS = AuditLimits(distance=0.02, accepted=0.9, undecided=False)


def drawn(n: int, seed: int, world: str = "good model") -> tuple[Any, Any]:
    return WORLDS[world].draw(np.random.default_rng(seed), n)


def answers(n: int, seed: int, **about: Any) -> list[AnswerRecord]:
    """The same as lines of a file."""
    pairs = zip(*drawn(n, seed), strict=True)
    lines = (
        {"log_confidence": s, "correct": bool(c), "question": f"q{i // 2 if i < 6 else i}"}
        for i, (s, c) in enumerate(pairs)
    )
    return [answer_record(f"line {i}", line | {"response": f"r{i} {seed}", **about}) for i, line in enumerate(lines)]


def said_of_thresholds() -> Iterator[Any]:
    for name in WORLDS:
        for guarantee in get_args(Guarantee):
            for n, alpha in ((20, 0.1), (150, 0.1), (150, 0.3)):
                threshold = st.Threshold.fit(*drawn(n, 1, name), guarantee=guarantee, alpha=alpha)
                yield [threshold.statement, threshold.min_log_score]
    scores, correct = drawn(200, 2)
    yield from (threshold._repr_html_(), repr(threshold), st.Threshold.fit(scores, correct, alpha=0.05)._repr_html_())
    yield st.Threshold.fit(scores, correct, alpha=0.2, start=0.5).statement
    bands = Bands.fit(scores, correct, alpha=0.2, discard_alpha=0.4)
    yield [bands.accept.statement, bands.discard_statement, bands.band(scores[:40])]
    yield GroupThresholds.fit(scores, correct, groups=["ab"[i % 2] for i in range(200)], alpha=0.3).statement
    yield [exact.percent(share) for share in (0.1, 0.12345678, 0.99999, 1.0, 0.0, 1e-7)]
    yield [
        exact.shortage(20, 0.1, 0.1),
        exact.shortage(22, 0.1, 0.1),
        exact.forecast(scores[:30], correct[:30], 0.2, 0.1),
    ]


def said_of_calibrators() -> Iterator[Any]:
    known = Fingerprint(model="m", task="facts")
    fitted = st.Calibrator.fit(answers(120, 3), [one.correct for one in answers(120, 3)], alpha=0.2, fingerprint=known)
    plain = replace(fitted, threshold=None)
    for calibrator in (fitted, plain):
        used = CalibratorInUse(calibrator)
        yield from (repr(calibrator), calibrator._repr_html_(), calibrator.guarantee)
        yield [used.check(*drawn(60, 4)), used.check(*drawn(60, 4, "overconfident"))]
        for one in (*answers(4, 5), answer_record("x", {"log_confidence": None})):
            yield [used.sentence(one), decided(used.block(one))]  # type: ignore[arg-type]
        in_use = InUse(calibrator, since=1.7e9)
        yield [in_use.in_words.replace(in_use.checksum[:12], "CHECKSUM"), in_use.guarantee]
        for records in (
            answers(60, 6),
            answers(25, 7, model="other"),
            answers(120, 3),
            [replace(one, correct=None) for one in answers(40, 8)],
        ):
            audit = audit_answers(calibrator, records)
            yield [
                audit.answer,
                *audit.remarks(),
                *audit.exceeded(LIMITS),
                audit.holds(LIMITS),
                audit.holds(),
                audit.is_measured,
            ]
    report = fitted.report(*drawn(100, 9))
    yield from (report.sentence, repr(report), report._repr_html_())
    session = LabelingSession(answers(9, 10))
    yield [[one.where for one in session.answers], session.progress, session._waiting]


def said_of_journals() -> Iterator[Any]:
    claim = Claim(KINDS["selective_risk"], 0.2, 0.1)
    for bad, missing in (
        ([], 0),
        ([False] * 5, 0),
        ([False] * 90, 0),
        ([False] * 30 + [True] * 30, 0),
        ([True] * 30, 3),
    ):
        times = [1.7e9 + DAY * i for i in range(len(bad))]
        report = guarantee_report(bad, times, claim, without_label=missing)
        yield [report.sentence, report.low, report.high, report.holds(LIMITS), report.is_measured()]
    yield GuaranteeReport("kept", "", undecided=2, models_sentence="Models.", moved_sentence="Moved.").remarks()
    for model, models in (
        (None, {"a": 2}),
        (None, {"a": 2, "b": 1}),
        ("a", {"a": 2000}),
        ("a", {"a": 1500, "b": 7, "c": 1}),
    ):
        yield models_sentence(model, models, "newest answers")
    yield from (LabelAgreement(*counts).sentence for counts in ((0, 0), (40, 0), (40, 3)))
    yield from (Size(n, n // 2, n // 3, n // 4, n * 2**18, None, None).sentence for n in (0, 1, 4, 5000))
    row = json.loads(entry(1).line())
    for more in (
        {},
        {"sampled": True, "decision": "answer", "probability_correct": 0.256},
        {"unscored": "none", "model": None},
        {"confidence_lower": 0.8, "confidence_upper": 0.95, "flags": []},
    ):
        yield line_of(row | more)


def printed(one: Any) -> str:
    """A text as it is; other values with six digits, since more are the machine's."""
    if isinstance(one, str):
        return one
    return json.dumps(json.loads(json.dumps(one), parse_float=lambda digits: round(float(digits), 6)))


def test_sentences_are_those_that_were_recorded() -> None:
    """If a change is meant, what this test prints goes into sentences.txt."""
    said = [*said_of_thresholds(), *said_of_calibrators(), *said_of_journals()]
    assert "\n".join(map(printed, said)) + "\n" == Path(__file__).with_name("sentences.txt").read_text("utf-8")
