"""All that is said of fits, audits and comparisons of decisions, word by word, as sentences.txt holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from semtoken.choices import Guarantee
from semtoken.decisions import Answer, Choice
from semtoken.decisions.audit_report import lines, plain_values
from semtoken.decisions.auditing import audit
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.comparing import BothRight, compare, sensitivity
from semtoken.decisions.doubts import doubts_of_answers, doubts_of_labels
from semtoken.decisions.options import OptionScale, PredictionSets
from semtoken.decisions.records import DecisionRecord
from semtoken.guarantees.auditing import AuditLimits
from semtoken.guarantees.judge import Share
from semtoken.guarantees.measures import Interval
from tests.decisions.made_up import ASKED, changed, world

TONE = Choice("Which tone?", ["calm", "angry", "sad"], name="tone")


def tones(n: int, *, shift: int = 0) -> list[DecisionRecord]:
    """Answers to another question, which counting gives: every third or so is wrong."""
    rows = [(60 + i % 30, 30 - i % 20, 10 + i % 7) for i in range(shift, shift + n)]
    chances = [tuple(one / sum(row) for one in row) for row in rows]
    return [
        DecisionRecord(
            Answer(TONE, p, option_mass=0.4 + i % 5 / 10, order_spread=i % 4 / 40),
            label=i * i % 3 if i % 7 else None,
            state=str(i + shift),
            columns={"team": "ab"[i % 2]},
        )
        for i, p in enumerate(chances)
    ]


def said_of_audits() -> Iterator[Any]:
    limits = AuditLimits(distance=0.02, accepted=0.5, undecided=False)
    labeled, newer = world(120, 1) + tones(60), world(120, 2) + tones(70, shift=200)
    odd = [
        world(8, 4) + tones(9, shift=500),
        [replace(one, label=None) for one in world(30, 5)],
        world(20, 6) * 2 + labeled[:30],
        labeled[:30],
        labeled[:30] + world(40, 9),
        [changed(one, question=replace(ASKED, instructions="Else?")) for one in world(9, 7)],
    ]
    for guarantee in get_args(Guarantee):
        fitted = DecisionCalibrator.fit(labeled, alpha=0.3, guarantee=guarantee)
        yield from (*fitted.lines(), *fitted.plain_values(), *fitted.without_guarantee([]))
        for records in (newer, *odd) if guarantee == "selective_risk" else (newer,):
            found = audit(fitted, records)
            broken = found.exceeded(limits)
            yield from (*lines(found, broken, ()), *plain_values(found, broken, ()), *found.gaps, found.is_broken)
    sliced = audit(fitted, [one for one in tones(90, shift=300) if one.label is not None], by="team")
    yield from (line for question in sliced.questions for line in question.slice_lines)


def said_of_pairs() -> Iterator[Any]:
    first = tones(60)
    second = [
        changed(one, probabilities=one.answer.probabilities[::-1] if i % 5 == 0 else one.answer.probabilities)
        for i, one in enumerate(first)
    ]
    wide = [changed(one, bounds=((0.1, 0.9),) * 3) if i % 3 else one for i, one in enumerate(second)]
    fitted = DecisionCalibrator.fit(tones(90), alpha=0.5, guarantee="miss_rate")
    unlabeled = [replace(one, label=None) for one in first]
    for one in (*compare(unlabeled, second), *compare(first, wide), *compare(unlabeled, unlabeled)):
        yield one.statement
    for records in (unlabeled, first):
        yield from (one.statement for one in sensitivity(fitted, records, second, "in other words"))
    for low, value, high in ((0.1, 0.2, 0.3), (0.0, 0.2, 0.4), (-0.4, -0.2, 0.0), (-0.3, -0.2, -0.1)):
        yield BothRight(Share(6, 10), Share(8, 10), Interval(value, low, high)).statement


def said_of_numbers() -> Iterator[Any]:
    for records in (tones(60), [changed(one, option_mass=0.1) for one in tones(60)], tones(20)):
        yield from doubts_of_answers([changed(one, choice="sad" if i % 3 else None) for i, one in enumerate(records)])
        for guarantee in get_args(Guarantee):
            for alpha in (0.05, 0.3):
                yield from doubts_of_labels(records, guarantee, alpha, 0.1)
    for biases, missing in (((0.5, -0.5), ""), ((0.0, 0.0), ""), ((0.0, 0.0), "few")):
        yield OptionScale(1.234, biases, 60, missing).statement
    for labels, shared in (((30, 30), 0), ((30, 0), 9), ((0, 0), 50), ((0, 0), 3)):
        yield PredictionSets(0.1, (0.3 if shared != 3 else 0.0, 0.0), labels, shared).statement
    for mass in (0.5, 0.4999, 0.001, 0.00099):
        yield [flag.message for flag in Answer(ASKED, (0.7, 0.3), option_mass=mass).flags]


def test_sentences_are_those_that_were_recorded() -> None:
    """If a change is meant, what this test prints goes into sentences.txt."""
    said = [*said_of_audits(), *said_of_pairs(), *said_of_numbers()]
    found = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in said) + "\n"
    print(found)
    assert found == Path(__file__).with_name("sentences.txt").read_text("utf-8")
