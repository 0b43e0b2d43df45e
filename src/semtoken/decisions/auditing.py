"""Does a calibrator of decisions hold for other labeled answers, of this server or another one?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from semtoken.decisions.audit_results import Audit, LevelOutcome, QuestionAudit, SetAudit, SideAudit
from semtoken.decisions.calibrating import CalibratedQuestion, DecisionCalibrator, short
from semtoken.decisions.records import DecisionRecord
from semtoken.decisions.sides import DecisionSide, scores_of
from semtoken.errors import InvalidInputError
from semtoken.guarantees import Threshold
from semtoken.guarantees.betting import LEVEL
from semtoken.guarantees.judge import AverageClaim, Claim, Share, judge

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""The levels among which a person can choose, in the table of an audit."""
CHANGED = (
    "No answer is to this question as it was fitted: words, options and their order, reading and orders have to be the "
    "same."
)


def audit(
    calibrator: DecisionCalibrator,
    records: Sequence[DecisionRecord],
    *,
    level: float = LEVEL,
    by: str | None = None,
    required: Collection[str] = (),
) -> Audit:
    """Find out whether the guarantees of a calibrator hold for other answers to the same questions.

    The verdicts need labels of items that the calibrator was not fitted on; the accepted share and the drift do not.
    While every guarantee is kept, any verdict of the audit is `does not hold` with a probability of at most `level`.
    Answers to questions of which no side is `required` are left out (see `DecisionSide.is_required`). `by` names a
    column of the answers whose values make slices. `InvalidInputError` if no answer has that column.
    """
    groups: dict[str, list[DecisionRecord]] = {
        key: []
        for key, question in calibrator.questions.items()
        if any(side.is_required(required) for side in question.sides)
    }
    unknown: dict[str, None] = {}
    for record in records:
        if record.fingerprint in groups:
            groups[record.fingerprint].append(record)
        elif record.fingerprint not in calibrator.questions:
            unknown[record.name] = None
    if by is not None and not any(by in record.columns for record in records):
        raise InvalidInputError(f"No answer has the column {by!r:.60}.")
    counted = [_counted(calibrator.questions[key], own, by, required) for key, own in groups.items()]
    return Audit(_judged(counted, level), tuple(unknown))


def _judged(questions: Sequence[QuestionAudit], level: float) -> tuple[QuestionAudit, ...]:
    """The same questions with the verdicts on all their guarantees, which are judged together."""
    tested: list[tuple[Claim | AverageClaim, Share]] = []
    for question in questions:
        tested += [(claim, side.wrong) for side in question.sides if (claim := side.fitted.claim) is not None]
        tested += [] if question.sets is None else [(question.sets.claim, question.sets.missed)]
    # Together, since the level is about any false alarm of the audit, however many guarantees it tests.
    verdicts = iter(judge(tested, level))
    return tuple(
        replace(
            question,
            sides=tuple(
                side if side.fitted.claim is None else replace(side, verdict=next(verdicts)) for side in question.sides
            ),
            sets=None if question.sets is None else replace(question.sets, verdict=next(verdicts)),
        )
        for question in questions
    )


def _counted(
    fitted: CalibratedQuestion, records: Sequence[DecisionRecord], by: str | None, required: Collection[str]
) -> QuestionAudit:
    """The counts of one question, before they are judged."""
    usable, nothing, remarks = _usable(fitted.states, records)
    sides = tuple(_counted_side(side, records, usable) for side in fitted.sides)
    guaranteed = [side for side in sides if side.fitted.claim is not None and side.fitted.is_required(required)]
    if not records:
        nothing = CHANGED
    elif not guaranteed:
        nothing = "The calibrator guarantees nothing for it."
    elif not nothing and not any(side.wrong.of for side in guaranteed):
        nothing = f"None of its {len(usable):,} labeled answers is one that the guarantee is about."
    if nothing and any(side.fires_otherwise for side in guaranteed):
        remarks = (*remarks, "It fires on another share of the answers than where it was fitted.")
    measured = not nothing
    return QuestionAudit(
        fitted.name,
        len(records),
        sides,
        _counted_sets(fitted, usable) if usable else None,
        nothing,
        remarks,
        _choices([side.fitted for side in guaranteed], records, usable) if measured else (),
        _slices([side.fitted for side in guaranteed], usable, by) if measured and by is not None else {},
    )


def _usable(
    seen: frozenset[str], records: Sequence[DecisionRecord]
) -> tuple[list[DecisionRecord], str, tuple[str, ...]]:
    """The labeled answers that can test a guarantee, why there are none, and what was left out."""
    labeled = [record for record in records if record.label is not None]
    if not labeled:
        return [], f"None of its {len(records):,} answers has a label.", ()
    states = [record.state for record in labeled if record.state]
    if repeated := len(states) - len(set(states)):
        return (
            [],
            f"{repeated:,} of its {len(labeled):,} labeled answers are about an item that another one is about, too: "
            "repeated answers count as evidence that is not there. Leave them out.",
            (),
        )
    # Answers that chose the threshold look better under it than new ones.
    usable = [record for record in labeled if not record.state or short(record.state) not in seen]
    if not usable:
        return [], "All its labels are of items that the calibrator was fitted on. Label others.", ()
    left_out = len(labeled) - len(usable)
    remark = f"{left_out:,} labels are left out: the calibrator was fitted on these items."
    return usable, "", (remark,) if left_out else ()


def _counted_side(side: DecisionSide, records: Sequence[DecisionRecord], usable: Sequence[DecisionRecord]) -> SideAudit:
    chosen, judged = side.own(records), side.own(usable)
    spreads = [spread for record in chosen if (spread := record.answer.order_spread) is not None]
    return SideAudit(
        side,
        Share(sum(side.accepted(chosen)), len(records)),
        side.kind.count(side.accepted(judged), [record.correct for record in judged]),
        side.calibrator.drift(scores_of(chosen)) if side.calibrator and chosen else None,
        float(np.mean(spreads)) if spreads else None,
    )


def _counted_sets(fitted: CalibratedQuestion, usable: Sequence[DecisionRecord]) -> SetAudit | None:
    sets = fitted.sets
    if sets is None:
        return None
    chosen = [sets(record.answer.probabilities) for record in usable]
    held = sum(record.label in options for record, options in zip(usable, chosen, strict=True))
    return SetAudit(fitted.name, sets, Share(held, len(usable)), float(np.mean([len(options) for options in chosen])))


def _choices(
    guaranteed: Sequence[DecisionSide], records: Sequence[DecisionRecord], usable: Sequence[DecisionRecord]
) -> tuple[LevelOutcome, ...]:
    """The outcome of each level, with delta divided by their number, since a person chooses one of them."""
    rows = []
    for alpha in ALPHAS:
        run = wrong = of = 0
        for side in guaranteed:
            own, threshold = side.own(usable), side.threshold
            if not own or threshold is None:
                continue
            right = np.array([record.correct for record in own])
            # A person picks one of the levels after seeing all of them, so they share delta (Bonferroni).
            delta = threshold.delta / len(ALPHAS)
            made = Threshold.fit(scores_of(own), right, guarantee=threshold.guarantee, alpha=alpha, delta=delta)
            accepted = made.accepts(scores_of(own))
            run += int(made.accepts(scores_of(side.own(records))).sum())
            wrong, of = wrong + int((accepted & ~right).sum()), of + int(accepted.sum())
        rows.append(LevelOutcome(alpha, Share(run, len(records)), Share(wrong, of)))
    return tuple(rows)


def _slices(guaranteed: Sequence[DecisionSide], usable: Sequence[DecisionRecord], by: str) -> dict[str, Share]:
    """By the value of a column: what counts against the guarantees, of the labeled answers that they are about."""
    counts: dict[str, tuple[int, int]] = {}
    for side in guaranteed:
        own = side.own(usable)
        about, against = side.kind.counted(side.accepted(own), [record.correct for record in own])
        for record, is_about, is_against in zip(own, about, against, strict=True):
            bad, of = counts.get(value := record.columns.get(by, "(none)"), (0, 0))
            counts[value] = bad + int(is_against), of + int(is_about)
    return {value: Share(bad, of) for value, (bad, of) in sorted(counts.items()) if of}
