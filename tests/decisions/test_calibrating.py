"""Calibrators of decisions, and audits: worlds of known chances, and counts by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from semtoken.decisions import Answer, Predicate
from semtoken.decisions.audit_results import Audit, SideAudit
from semtoken.decisions.auditing import audit
from semtoken.decisions.calibrating import NO_LABELS, OTHER_QUESTION, CalibratedQuestion, DecisionCalibrator
from semtoken.decisions.sides import DecisionSide
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.guarantees import Threshold
from semtoken.guarantees.auditing import AuditLimits
from semtoken.guarantees.exact import percent
from semtoken.guarantees.judge import Share
from semtoken.support.files.strict_json import dump_json, seal
from tests.decisions.made_up import ASKED, changed, side_of, world
from tests.known import known

N = 1000
OTHER = Predicate("Is it early?", name="late")


def sides_of(found: Audit) -> list[SideAudit]:
    return [side for question in found.questions for side in question.sides]


@pytest.fixture(scope="module")
def fitted() -> DecisionCalibrator:
    return DecisionCalibrator.fit(world(N, 1), alpha=0.2)


def test_the_same_server_holds(fitted: DecisionCalibrator) -> None:
    found = sides_of(audit(fitted, world(N, 2)))
    assert {one.fitted.side for one in found} == {"true", "false"}
    assert {one.verdict for one in found} <= {"holds", "cannot be told"}
    for one in found:
        low, high = binomtest(one.wrong.count, one.wrong.of).proportion_ci(0.95, method="exact")
        assert one.wrong.interval == pytest.approx((low, high))
        assert not one.fires_otherwise and one.fired.of == N


def test_an_overconfident_server_does_not(fitted: DecisionCalibrator) -> None:
    found = sides_of(audit(fitted, world(N, 3, sharpened=20.0)))
    assert {one.verdict for one in found} == {"does not hold"}
    assert all(one.fires_otherwise for one in found)
    assert all(one.drift is not None and one.drift.low > 0.1 for one in found)


def test_an_answer_of_another_model_abstains_and_can_be_audited(fitted: DecisionCalibrator, tmp_path: Path) -> None:
    labeled = [changed(record, model="prod") for record in world(N, 1)]
    DecisionCalibrator.fit(labeled, alpha=0.2).save(tmp_path / "fitted")
    made = DecisionCalibrator.load(tmp_path / "fitted")
    assert made.model == "prod" and made.checksum != fitted.checksum
    record = max(world(300, 9), key=lambda one: one.answer.log_confidence)
    for name in ("prod", None):  # a server that does not name its model may have any
        assert made.block(changed(record, model=name)) == fitted.block(record)
    assert fitted.block(changed(record, model="other")) == fitted.block(record)
    block = made.block(changed(record, model="other"))
    assert set(block) == {"decision", "guarantee", "labels"} and block["decision"] == "abstain"
    assert "'prod'" in block["guarantee"] and "'other' gave this one" in block["guarantee"]
    later = world(200, 2)
    others = [changed(one, model="other") for one in later]
    assert sides_of(audit(made, others)) == sides_of(audit(made, later))
    with pytest.raises(InvalidInputError, match="different models: 'other' and 'prod'"):
        DecisionCalibrator.fit([*others, *labeled])


def test_guarantees_are_of_a_tenth_unless_told_otherwise() -> None:
    made = DecisionCalibrator.fit(world(300, 5))
    assert {(one.threshold.guarantee, one.threshold.alpha, one.threshold.delta) for one in made.sides} == {  # type: ignore[union-attr]
        ("selective_risk", 0.1, 0.1)
    }
    with pytest.raises(InvalidInputError, match=r"Nothing can be fitted\. late, called.*label 21 more"):
        DecisionCalibrator.fit(world(20, 5))


def test_a_side_with_too_few_labels_accepts_nothing() -> None:
    few = [one for one in world(300, 5) if one.answer.side == "false"] + [
        one for one in world(9, 6) if one.answer.side == "true"
    ]
    side = side_of(DecisionCalibrator.fit(few), few[-1])
    assert (
        side.calibrator is None and side.n == sum(one.answer.side == "true" for one in few) and side.asked == len(few)
    )
    assert (side.n_accepted, side.n_wrong_accepted, side.accepts(few[-1])) == (0, 0, False)


def test_what_is_said_of_an_answer_unlike_all_labeled_ones() -> None:
    [false] = [changed(one, probabilities=(0.1, 0.9)) for one in world(1, 1)]
    side = DecisionSide("late", "true", 9, 9, 0, 0, None, "Too few.")
    calibrator = DecisionCalibrator({false.fingerprint: CalibratedQuestion(false.asked, (side,))})
    assert calibrator.block(false) == {"decision": "abstain", "guarantee": NO_LABELS, "labels": 0}
    unasked = calibrator.decide(replace(false.answer, refusal="Two options are alike."))
    assert (unasked.action, unasked.reason, unasked.guarantee) == ("abstain", "empty", "Two options are alike.")
    other = calibrator.block(changed(false, question=OTHER))
    assert other == {"decision": "abstain", "guarantee": OTHER_QUESTION, "labels": 0}
    refused = calibrator.block(changed(false, probabilities=(0.9, 0.1)))
    assert refused == {"decision": "abstain", "guarantee": "Too few.", "labels": 9}


def test_the_answer_comes_first_and_levels_can_be_chosen(fitted: DecisionCalibrator) -> None:
    later = [replace(one, columns={"shop": "ab"[i % 2]}) for i, one in enumerate(world(400, 7))]
    [question] = audit(fitted, later, by="shop").questions
    run = sum(fitted.accepts(one) for one in later)
    assert question.answer.startswith(f"late: {run:,} of 400 run, {400 - run:,} go to a person; at most 20% of")
    assert [choice.alpha for choice in question.choices] == [0.01, 0.02, 0.05, 0.1, 0.2]
    assert [c.run.count for c in question.choices] == sorted(c.run.count for c in question.choices)
    for choice in question.choices:
        ran = bad = 0
        for side in ("true", "false"):  # all levels are looked at, so each has a fifth of delta
            own = [one for one in later if one.answer.side == side]
            scores, right = [one.answer.log_confidence for one in own], np.array([one.correct for one in own])
            accepted = Threshold.fit(scores, right, alpha=choice.alpha, delta=0.1 / 5).accepts(scores)
            ran, bad = ran + accepted.sum(), bad + (accepted & ~right).sum()
        assert (choice.run.count, choice.run.of) == (ran, 400)
        assert (choice.wrong.count, choice.wrong.of) == (bad, ran) and bad <= choice.alpha * ran
    wrong = {s: sum(fitted.accepts(r) and not r.correct for r in later if r.columns["shop"] == s) for s in "ab"}
    runs = {s: sum(fitted.accepts(r) for r in later if r.columns["shop"] == s) for s in "ab"}
    assert {shop: (seen.count, seen.of) for shop, seen in question.slices.items()} == {
        shop: (wrong[shop], runs[shop]) for shop in "ab"
    }
    assert "(the worst)" in question.slice_lines[0] and len(question.slice_lines) == 2
    few = replace(question, slices={"b": Share(3, 4), "a": Share(1, 1)})
    assert few.slice_lines[0].startswith("a (the worst): 1 of 1, 100%") and few.slice_lines[1].startswith("b: 3 of 4")
    one = replace(question, slices={"a": question.slices["a"]})  # alone it needs no correction for several looks
    low, high = binomtest(wrong["a"], runs["a"]).proportion_ci(0.95)
    assert one.slice_lines[0].endswith(f"({percent(low)} to {percent(high)})")
    with pytest.raises(InvalidInputError, match="has the column 'city'"):
        audit(fitted, later, by="city")


def test_guarantees_of_other_kinds_are_counted_by_hand() -> None:
    labeled, later = world(600, 11), world(400, 12)
    for guarantee in ("miss_rate", "joint_risk"):
        made = DecisionCalibrator.fit(labeled, guarantee=guarantee, alpha=0.1)
        for one in sides_of(audit(made, later)):
            chosen = [r for r in later if r.answer.side == one.fitted.side]
            level = known(known(one.fitted.threshold).min_log_score)
            inside = [
                r
                for r in chosen
                if (r.answer.log_confidence > level if guarantee == "miss_rate" else r.answer.log_confidence >= level)
            ]
            of = sum(not r.correct for r in chosen) if guarantee == "miss_rate" else len(chosen)
            assert (one.wrong.count, one.wrong.of) == (sum(not r.correct for r in inside), of)
            assert one.fired.count == len(inside)
            assert one.fitted.wrong.count <= 0.1 * one.fitted.wrong.of


def test_an_answer_about_the_same_state_is_no_further_evidence() -> None:
    with pytest.raises(InvalidInputError, match="1 labeled answers are about a state"):
        DecisionCalibrator.fit([*world(100, 1), world(100, 1)[0]])


def test_saving_replaces_a_calibrator_and_loses_nothing_else(fitted: DecisionCalibrator, tmp_path: Path) -> None:
    for _ in range(2):
        fitted.save(tmp_path / "made")
    (tmp_path / "made" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"holds 'notes\.txt', .* would be lost"):
        fitted.save(tmp_path / "made")
    assert (tmp_path / "made" / "notes.txt").read_text() == "mine"
    assert DecisionCalibrator.load(tmp_path / "made").checksum == fitted.checksum
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="cannot be written"):
        fitted.save(tmp_path / "file")


def test_a_calibrator_of_answers_without_their_questions_is_refused_by_name(
    fitted: DecisionCalibrator, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "made")
    file = tmp_path / "made" / "decisions.json"
    content = {**json.loads(file.read_bytes()), "questions": {}}
    file.write_bytes(dump_json(seal({name: value for name, value in content.items() if name != "checksum"})))
    with pytest.raises(ArtifactError, match=r"does not say how 'late' was asked.*Fit it again"):
        DecisionCalibrator.load(tmp_path / "made")


def test_a_saved_calibrator_says_the_same_and_a_changed_one_nothing(fitted: DecisionCalibrator, tmp_path: Path) -> None:
    fitted.save(tmp_path / "made")
    loaded = DecisionCalibrator.load(tmp_path / "made")
    assert loaded == fitted and "calibrated_probabilities" in fitted.block(world(1, 1)[0])
    for record in world(50, 6):
        assert loaded.block(record) == fitted.block(record)
    DecisionCalibrator.fit(world(N, 2), alpha=0.2).save(tmp_path / "other")
    parts = [next((tmp_path / name).rglob("*/calibrator.json")) for name in ("made", "other")]
    kept = parts[0].read_bytes()
    parts[0].write_bytes(parts[1].read_bytes())  # whole by itself, and of another fit
    with pytest.raises(ArtifactError, match="is part of another calibrator"):
        DecisionCalibrator.load(tmp_path / "made")
    parts[0].write_bytes(kept)
    file = tmp_path / "made" / "decisions.json"
    file.write_bytes(file.read_bytes().replace(b'"late"', b'"soon"'))
    with pytest.raises(ArtifactError, match="changed"):
        DecisionCalibrator.load(tmp_path / "made")


def test_what_is_required_is_named_by_its_question_or_its_side() -> None:
    """Answers called true are nearly always right, and answers called false half the time."""
    records = [
        replace(changed(one, probabilities=(0.99, 0.01)), label=0)
        if i % 2
        else replace(changed(one, probabilities=(0.3, 0.7)), label=i % 4 // 2)
        for i, one in enumerate(world(400, 5))
    ]
    records[1], records[3], records[5], records[7], records[9] = (
        replace(changed(one, probabilities=(0.51, 0.49)), label=1) for one in records[1:10:2]
    )
    fitted = DecisionCalibrator.fit(records, alpha=0.1)
    assert {side.what: side.guarantees for side in fitted.sides} == {
        "late, called true": True,
        "late, called false": False,
    }
    assert fitted.without_guarantee() == fitted.without_guarantee(["late"]) == ["late, called false"]
    assert fitted.without_guarantee(["late, called false"]) == ["late, called false"]
    assert fitted.without_guarantee(["late, called true"]) == []
    assert fitted.unknown(["late", "late, called true", "weather", "early"]) == ["early", "weather"]
    for odd in ("late", [1], {"late": 1}):  # a text is no list of its letters
        for method in (fitted.without_guarantee, fitted.unknown):
            with pytest.raises(InvalidInputError, match="required"):
                method(odd)  # type: ignore[arg-type]


def test_only_required_sides_have_to_keep_the_limits(fitted: DecisionCalibrator) -> None:
    found = audit(fitted, world(N, 2))
    strict = AuditLimits(accepted=1.0)
    assert set(found.exceeded(strict)) == {"late, called true", "late, called false"}
    assert all(found.exceeded(strict).values()) and not any(found.exceeded(AuditLimits()).values())
    assert list(found.exceeded(strict, ["late, called false"])) == ["late, called false"]
    assert found.exceeded(strict, ["weather"]) == {}


@pytest.mark.parametrize("label", [True, "0", 2, -1, 0.0])
def test_a_label_is_the_place_of_an_option(label: Any) -> None:
    """True counted as the place of "No", a text as wrong, and others ended in messages of NumPy's."""
    records = [*world(100, 1), replace(world(1, 2)[0], label=label)]
    with pytest.raises(InvalidInputError, match=r"'records\[100\].label' must be a whole number"):
        DecisionCalibrator.fit(records)


def test_a_side_that_guarantees_nothing_is_given_as_the_reason() -> None:
    """It was called uncertain, as if a surer answer were accepted."""
    fitted = DecisionCalibrator.fit(world(300, 1))
    reasons = {side.side: side.guarantees for side in fitted.sides}
    assert reasons == {"true": False, "false": True}
    for p, reason in ((0.999, "no_threshold"), (0.51, "no_threshold"), (0.49, "uncertain"), (0.001, "accepted")):
        assert fitted.decide(Answer(ASKED, (p, 1 - p))).reason == reason


def test_decisions_are_about_answers() -> None:
    fitted, [record] = DecisionCalibrator.fit(world(300, 1)), world(1, 2)
    for given in (None, record, 5, [record.answer]):
        with pytest.raises(InvalidInputError, match="'answer' must be an Answer"):
            fitted.decide(given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'options' must be"):
        fitted.decide(record.answer, 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'record' must be"):
        fitted.accepts(record.answer)  # type: ignore[arg-type]
