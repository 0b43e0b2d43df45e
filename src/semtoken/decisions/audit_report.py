"""An audit of decisions as lines that people read, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from semtoken.decisions.audit_results import Audit
from semtoken.decisions.comparing import Sensitivity


def lines(found: Audit, broken: Mapping[str, Sequence[str]], changes: Sequence[Sensitivity]) -> Iterator[str]:
    """The audit for people: the answers to the questions, then other levels, then the numbers behind the verdict."""
    for question in found.questions:
        yield question.answer
    for name in found.unknown:
        yield f"{name}: nothing was measured. The calibrator does not know this question as it was asked."
    for question in found.questions:
        yield from (f"{question.name}: {remark}" for remark in question.remarks)
        if question.choices:
            yield f"\n{question.name}, at other levels, by thresholds that these labels would get:"
            yield from question.choice_lines
        yield ""
        for side in question.sides:
            yield " ".join([side.statement, *broken.get(side.fitted.what, ())])
        if question.sets is not None:
            yield question.sets.statement
    yield from (change.statement for change in changes)


def plain_values(
    found: Audit, broken: Mapping[str, Sequence[str]], changes: Sequence[Sensitivity]
) -> Iterator[Mapping[str, Any]]:
    """The same as JSON lines: each question, each of its sides, its sets, and what other ways of asking changed."""
    for question in found.questions:
        choices = [
            {"alpha": c.alpha, "run": c.run.count, "wrong": c.wrong.count, "judged": c.wrong.of}
            for c in question.choices
        ]
        about = {"question": question.name, "answer": question.answer, "verdict": question.verdict}
        yield {**about, "nothing": question.nothing, "choices": choices}
        for side in question.sides:
            counts = {"accepted": side.fired.count, "asked": side.fired.of}
            counts |= {"wrong": side.wrong.count, "judged": side.wrong.of}
            values = {"question": question.name, "side": side.fitted.side, "verdict": side.verdict, **counts}
            yield {**values, "exceeded": list(broken.get(side.fitted.what, ()))}
        if question.sets is not None:
            held = question.sets.held
            values = {"question": question.name, "side": "set", "verdict": question.sets.verdict}
            yield {**values, "held": held.count, "judged": held.of}
    for name in found.unknown:
        yield {"question": name, "verdict": "nothing was measured", "nothing": "the calibrator does not know it"}
    for change in changes:
        counts = {"asked": change.changed.of, "changed": change.changed.count}
        more = {"decided_otherwise": change.decided_otherwise.count, "moved": change.moved.value}
        right = change.right
        if right is not None:
            more |= {"right_first": right.first.count, "right_second": right.second.count, "judged": right.first.of}
        yield {"question": change.name, "how": change.how, **counts, **more}
