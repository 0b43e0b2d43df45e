"""Audits of calibrators of answers against limits, beside counts by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.choices import Guarantee
from semtoken.guarantees.answer_records import AnswerRecord, without_disputes
from semtoken.guarantees.auditing import AnswersAudit, AuditLimits, audit_answers
from semtoken.guarantees.drift import Drift
from semtoken.guarantees.journal.watch import GuaranteeReport
from semtoken.guarantees.judge import Share, Verdict
from tests.guarantees.made_up import fitted
from tests.known import known

FAR, FEW, TOO_FEW = (Drift(0.3, 0.2, 0.4, 400, n) for n in (100, 30, 29))
"""The same distance, from many scores, from just enough to say so and from one less."""


def found(verdict: Verdict, drift: Drift, accepted: int = 40, of: int = 100) -> AnswersAudit:
    return AnswersAudit(fitted().calibrator, verdict, of, accepted, Share(2, accepted), drift, {})


@pytest.mark.parametrize(
    ("audit", "limits", "said"),
    [
        (found("holds", FAR), {"distance": 0.19}, ["That is further than the limit of 0.19."]),
        (found("holds", FAR), {"distance": 0.2}, []),  # the lower end of the interval counts
        (found("holds", FEW), {"distance": 0.1}, ["That is further than the limit of 0.1."]),
        (found("holds", TOO_FEW), {"distance": 0.1}, []),
        # The exact 95% interval of 40 of 100 is 0.303 to 0.503.
        (found("holds", FAR), {"accepted": 0.51}, ["Accepted are fewer than the limit of 0.51."]),
        (found("holds", FAR), {"accepted": 0.5}, []),
        (found("holds", FAR), {}, []),
    ],
)
def test_a_guarantee_that_is_kept_holds_with_its_limits(
    audit: AnswersAudit, limits: dict[str, Any], said: list[str]
) -> None:
    assert audit.exceeded(AuditLimits(**limits)) == said
    assert audit.holds(AuditLimits(**limits)) == (not said) and audit.holds()


def test_a_guarantee_of_which_the_labels_do_not_tell_holds_unless_a_limit_asks_for_more() -> None:
    for verdict, tolerant, strict in (
        ("holds", True, True),
        ("cannot be told", True, False),
        ("nothing was guaranteed", True, True),
        ("does not hold", False, False),
    ):
        audit = found(verdict, FAR)  # type: ignore[arg-type]
        assert (audit.holds(), audit.holds(AuditLimits(undecided=False))) == (tolerant, strict), verdict
    for state, tolerant, strict in (("kept", True, True), ("unknown", True, False), ("broken", False, False)):
        report = GuaranteeReport(state, "", n=1)  # type: ignore[arg-type]
        assert (report.holds(), report.holds(AuditLimits(undecided=False))) == (tolerant, strict), state


@pytest.mark.parametrize(
    ("moved", "distance", "n", "holds", "measured"),
    [
        (None, None, 0, True, False),
        (None, 0.1, 0, True, False),
        (FAR, None, 0, True, False),
        (FAR, 0.1, 0, False, True),
        (FAR, 0.2, 0, True, True),
        (TOO_FEW, 0.1, 0, True, True),
        (None, None, 1, True, True),
    ],
)
def test_scores_of_a_journal_count_where_their_distance_is_limited(
    moved: Drift | None, distance: float | None, n: int, holds: bool, measured: bool
) -> None:
    report = GuaranteeReport("kept", "", n=n, moved=moved)
    limits = AuditLimits(distance)
    assert (report.holds(limits), report.is_measured(limits)) == (holds, measured)


def test_the_accepted_share_is_that_of_the_labeled_answers() -> None:
    """Ten labels, of which the four surest are accepted, and as many sure answers without a label."""
    applied = fitted()
    threshold = applied.calibrator.threshold
    assert threshold is not None and threshold.min_log_score is not None
    at = threshold.min_log_score
    scores = [at / 2] * 4 + [at * 2] * 6
    answers = [AnswerRecord(f"line {i}", {}, score, i < 9) for i, score in enumerate(scores)]
    answers += [AnswerRecord(f"line {i}", {}, at / 2, None) for i in range(10, 20)]
    audit = audit_answers(applied.calibrator, answers)
    assert (audit.n_labeled, audit.n_accepted) == (10, 4)
    # The exact 95% interval of 4 of 10 ends at 0.738; of 14 of 20 it would end at 0.881.
    assert audit.holds(AuditLimits(accepted=0.73)) and not audit.holds(AuditLimits(accepted=0.74))


def test_a_question_that_is_repeated_is_no_more_evidence_than_once() -> None:
    """Three sure answers, ten times each in the file: 30 right ones would hold at 20%, and 20 wrong ones would not."""
    applied = fitted()
    for wrong in (0, 2):
        same = [AnswerRecord(f"line {i}", {"question": f"Q{i % 3}"}, -1e-6, i % 3 >= wrong) for i in range(30)]
        once, repeated = (audit_answers(applied.calibrator, rows) for rows in (same[:3], same))
        assert repeated.verdict == once.verdict == "cannot be told" and repeated.seen == Share(wrong, 3)
        assert (repeated.n_labeled, repeated.n_repeated, repeated.drift) == (3, 27, once.drift)
        assert "27 further labels are left out: they are of answers to the same questions." in repeated.remarks()
        one_more = audit_answers(applied.calibrator, same[:4]).remarks()
        assert "1 further label is left out: it is of answers to the same questions." in one_more
        assert audit_answers(applied.calibrator, [replace(a, record={}) for a in same]).verdict != "cannot be told"


@pytest.mark.parametrize("guarantee", ["selective_risk", "miss_rate", "joint_risk"])
def test_a_calibrator_that_guarantees_nothing_never_holds(guarantee: Guarantee) -> None:
    """Nothing is accepted, so no label can count against it."""
    scores, right = -np.arange(1, 61) / 20, np.arange(60) % 3 < 2
    empty = st.Calibrator.fit(scores, right, alpha=0.02, guarantee=guarantee)
    assert not empty.guarantees
    for n in (6, 200):
        labeled = [AnswerRecord(f"line {i}", {"question": f"Q{i}"}, -0.01 * i, i > 2) for i in range(n)]
        audit = audit_answers(empty, labeled)
        assert (audit.verdict, audit.seen, audit.n_accepted) == ("nothing was guaranteed", None, 0)
        assert audit.answer == empty.guarantee and audit.answer.startswith("Nothing can be guaranteed")
        assert audit.is_measured is (n == 200), "the distance takes 30 scores"
        assert not audit.repeats_fit
    own = [AnswerRecord(f"line {i}", {}, float(scores[i]), bool(right[i])) for i in range(60)]
    assert audit_answers(empty, own).repeats_fit, "its scores are at no distance from themselves"


def test_answers_without_a_label_do_not_test_a_guarantee() -> None:
    calibrator = fitted().calibrator
    audit = audit_answers(calibrator, [AnswerRecord(f"line {i}", {}, -0.01 * i, None) for i in range(40)])
    assert (audit.verdict, audit.answer) == ("nothing was measured", "") and audit.holds() and audit.is_measured
    assert next(audit.remarks()).startswith("The guarantee was not tested: no answer has a label")


def test_a_share_of_accepted_answers_that_is_just_at_its_limit_seldom_exceeds_it() -> None:
    """In each of 200 draws, 30 answers are accepted with the limit's probability; a plain share fails some half."""
    limits, accepted = AuditLimits(accepted=0.4), np.random.default_rng(5).binomial(30, 0.4, size=200)
    assert (accepted < 12).sum() > 70
    assert sum(not found("holds", FAR, int(n), of=30).holds(limits) for n in accepted) <= 10


def test_an_answer_that_is_labeled_right_and_wrong_counts_as_wrong_wherever_it_stands() -> None:
    """Two people label the same forty answers, and disagree on ten: whose label is read first does not count."""
    applied = fitted()

    def said(who: str, right: Callable[[int], bool]) -> list[AnswerRecord]:
        return [
            AnswerRecord(f"{who} {i}", {"question": f"Q{i}", "response": f"It is {i}"}, -1e-6, right(i))
            for i in range(40)
        ]

    ann, bob = said("ann", lambda i: i >= 5), said("bob", lambda i: i < 35)
    for rows in (ann + bob, bob + ann):
        audit = audit_answers(applied.calibrator, rows)
        assert audit.seen == Share(10, 40) and audit.n_disputed == audit.to_dict()["disputed"] == 10
        assert "10 answers are labeled both right and wrong: they count as wrong." in audit.remarks()
    assert audit_answers(applied.calibrator, ann + ann).n_disputed == 0
    one = audit_answers(applied.calibrator, [*ann, replace(ann[0], correct=True)])
    assert one.seen == Share(5, 40) and "1 answer is labeled both right and wrong: it counts as wrong." in one.remarks()
    others = [replace(a, record={"question": a.question, "response": "Other"}) for a in bob]
    assert audit_answers(applied.calibrator, ann + others).n_disputed == 0, "another answer to the same question"
    recomputed = [replace(a, log_confidence=known(a.log_confidence) - 1e-7) for a in bob]
    assert audit_answers(applied.calibrator, ann + recomputed).n_disputed == 10, "the last digits are no other answer"
    elsewhere = [replace(a, log_confidence=known(a.log_confidence) - 0.1) for a in bob]
    assert audit_answers(applied.calibrator, ann + elsewhere).n_disputed == 0, "the same words about another context"
    numbered = [replace(a, record={**a.record, "id": i}) for i, a in enumerate(ann + bob)]
    assert audit_answers(applied.calibrator, numbered).n_disputed == 0, "answers of other ids"
    places = [replace(a, record={**a.record, "place": who}) for who, rows in (("x", ann), ("y", bob)) for a in rows]
    assert [without_disputes(places, by)[1] for by in (None, "place")] == [10, 0]
    unknown = [replace(a, record={"question": a.question}) for a in ann + bob]
    assert audit_answers(applied.calibrator, unknown).n_disputed == 0, "nobody knows whether these are the same answers"
