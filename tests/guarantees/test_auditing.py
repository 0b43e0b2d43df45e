"""Audits of calibrators of answers against limits, beside counts by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from semtoken.guarantees.answer_records import AnswerRecord
from semtoken.guarantees.auditing import AnswersAudit, AuditLimits, audit_answers
from semtoken.guarantees.drift import Drift
from semtoken.guarantees.journal.watch import GuaranteeReport
from semtoken.guarantees.judge import Share, Verdict
from tests.guarantees.made_up import fitted

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


def test_a_share_of_accepted_answers_that_is_just_at_its_limit_seldom_exceeds_it() -> None:
    """In each of 200 draws, 30 answers are accepted with the limit's probability; a plain share fails some half."""
    limits, accepted = AuditLimits(accepted=0.4), np.random.default_rng(5).binomial(30, 0.4, size=200)
    assert (accepted < 12).sum() > 70
    assert sum(not found("holds", FAR, int(n), of=30).holds(limits) for n in accepted) <= 10
