"""Calibrators for groups of answers in files, and what makes groups of a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.errors import InvalidInputError
from semtoken.guarantees import Fingerprint, GroupThresholds
from semtoken.guarantees.answer_records import AnswerRecord, answer_record, one_of_each_question
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.auditing import audit_answers
from semtoken.guarantees.fingerprint import ELSEWHERE
from semtoken.guarantees.groups import answer_groups, fit_groups
from tests.guarantees.test_calibrator import response
from tests.guarantees.worlds import WORLDS


def records(n: int, *, seed: int = 0, unlabeled: bool = False, **fields: Any) -> list[AnswerRecord]:
    scores, correct = WORLDS["good model"].draw(np.random.default_rng(seed), n)
    return [
        answer_record(
            f"line {i}",
            {"question": f"{seed}-{i}?", "response": "It is.", "log_confidence": float(score)}
            | {"correct": None if unlabeled else bool(right), **fields},
        )
        for i, (score, right) in enumerate(zip(scores, correct, strict=True))
    ]


def test_each_group_has_its_own_threshold_and_all_guarantees_hold_together() -> None:
    """Beside `Threshold.fit` on each group with its part of delta, and `GroupThresholds`, which is one for both."""
    german, english = records(200, language="de"), records(150, seed=1, language=" en ")
    fitted = fit_groups(answer_groups([*english, *german], by="language"), alpha=0.25, delta=0.1)
    assert [one.group.title for one in fitted] == ["language de", "language en"]
    both = GroupThresholds.fit(
        [*german, *english],
        [one.correct for one in (*german, *english)],
        groups=["de"] * 200 + ["en"] * 150,
        alpha=0.25,
        delta=0.1,
    )
    for one, own in zip(fitted, (german, english), strict=True):
        alone = st.Threshold.fit(own, [record.correct for record in own], alpha=0.25, delta=0.05)
        found = one.calibrator.threshold
        assert found is not None and found.min_log_score == alone.min_log_score
        assert both.thresholds[one.group.value].min_log_score == found.min_log_score
        assert one.calibrator.guarantees == (alone.min_log_score is not None)
        assert (one.scores.n, one.report.n) == (len(own), len(own))


def test_answers_without_labels_place_the_threshold_unless_another_model_gave_them() -> None:
    own = records(300, model="prod")
    right = [record.correct for record in own]
    more, others = (records(200, seed=2, unlabeled=True, model=model) for model in ("prod", "other"))
    for placing, further in ((more, more), (None, others), (None, more[:199])):
        wanted = st.Threshold.fit(own, right, alpha=0.1, unlabeled=placing)
        [found] = fit_groups(answer_groups(own, further), alpha=0.1)
        [beside] = fit_groups(answer_groups([*own, *further]), alpha=0.1)
        threshold = found.calibrator.threshold
        assert threshold is not None and threshold.tests == wanted.tests
        assert beside.calibrator.threshold == threshold
    assert st.Threshold.fit(own, right, alpha=0.1, unlabeled=more).tests != wanted.tests


def test_the_calibrator_of_a_group_knows_the_answers_of_others() -> None:
    """By the field that divided them, as a file has it; of an answer of a server, which has none, nothing is said."""
    german, english = records(60, language="de"), records(60, seed=1, language=" en ")
    fitted = fit_groups(answer_groups([*german, *english], by="language"), alpha=0.3)
    assert [one.calibrator.fingerprint.task for one in fitted] == ["language=de", "language=en"]
    for one, own, other in ((fitted[0], german, english), (fitted[1], english, german)):
        assert not audit_answers(one.calibrator, own).tasks_sentence
        value = other[0].record["language"].strip()
        said = (
            f"40 of the 100 answers are of another task than the calibrator's, {one.calibrator.fingerprint.task!r}: "
            f"40 of 'language={value}'."
        )
        assert said in list(audit_answers(one.calibrator, [*own, *other[:40]]).remarks())
    answer, applied = response(-0.1), CalibratorInUse(fitted[0].calibrator)
    flags = {value: applied.block(answer, {"language": value})[ELSEWHERE] for value in ("de", "en", None)}
    assert len(flags["en"]) == len(flags["de"]) + 1 and flags["de"] == flags[None] == applied.block(answer)[ELSEWHERE]
    assert "The calibrator may not fit: the task was 'language=de' and is 'language=en'." in flags["en"]
    [alone] = fit_groups(answer_groups(german), alpha=0.3, fingerprint=Fingerprint(task="mine"))
    assert alone.calibrator.fingerprint.task == "mine" and not audit_answers(alone.calibrator, english).tasks


def test_a_group_that_cannot_be_fitted_is_named() -> None:
    both = [*records(60, language="de"), *records(20, seed=1, language="en")]
    with pytest.raises(InvalidInputError, match=r"^language en: .*label 10 more"):
        fit_groups(answer_groups(both, by="language"))
    with pytest.raises(InvalidInputError, match=r"^A calibrator needs"):
        fit_groups(answer_groups(both[60:]))


@pytest.mark.parametrize("value", [None, ""])
def test_every_answer_needs_its_group(value: str | None) -> None:
    with pytest.raises(InvalidInputError, match=r"line 0: the field 'language'"):
        answer_groups(records(2, language="de"), records(1, language=value), by="language")


def test_folders_of_groups_lead_nowhere_else(tmp_path: Path) -> None:
    names = ["..", ".", "a/b", "../../c", "C:\\d", "en", "%2E"]
    groups = answer_groups([one for name in names for one in records(1, name=name)], by="name")
    places = [tmp_path / group.folder for group in groups]
    assert len(set(places)) == len(names) and all(place.resolve().parent == tmp_path for place in places)


def test_a_saved_group_is_read_as_a_calibrator(tmp_path: Path) -> None:
    [poor] = fit_groups(answer_groups(records(60)), alpha=0.01)
    poor.save(tmp_path / "made")
    assert not poor.calibrator.guarantees and "labels" in poor.forecast
    assert st.Calibrator.load(tmp_path / "made") == poor.calibrator
    assert poor.forecast in (tmp_path / "made" / "report.html").read_text("utf-8")
    [good] = fit_groups(answer_groups(records(300)), alpha=0.3)
    assert good.calibrator.guarantees and good.forecast == ""


def test_one_answer_to_each_question_is_kept_in_the_order_of_the_questions() -> None:
    rows = [AnswerRecord(f"line {i}", {"question": name}, -float(i), None) for i, name in enumerate("abacb")]
    rows += [AnswerRecord(f"line {i}", {}, -1.0, None) for i in (5, 6)]
    kept = one_of_each_question(rows)
    assert [one.question for one in kept] == ["a", "b", "c", "", ""]
    assert Counter(map(id, kept)) <= Counter(map(id, rows))


def test_which_answer_to_a_question_counts_does_not_depend_on_its_score() -> None:
    """In a ranked file the first answers are the most doubtful ones: of 600 pairs about half of those are drawn."""
    rows = [AnswerRecord(f"line {i}", {"question": f"Question {i % 600}?"}, float(i < 600), None) for i in range(1200)]
    drawn = [one.log_confidence for one in one_of_each_question(rows)]
    assert len(drawn) == 600 and 250 < sum(map(bool, drawn)) < 350


def test_no_label_is_left_out_for_an_answer_without_one() -> None:
    """Of five answers to each question one has a label: a draw among all of them would keep a fifth of the labels."""
    rows = [
        AnswerRecord(f"line {i}", {"question": f"Question {i // 5}?"}, -1.0, True if i % 5 == 2 else None)
        for i in range(500)
    ]
    assert [one.where for one in one_of_each_question(rows, labeled_first=True)] == [
        f"line {i}" for i in range(2, 500, 5)
    ]
    assert one_of_each_question(rows[:2] + rows[3:5], labeled_first=True)[0] in rows[:5], "where none has a label"


def test_each_group_has_its_answer_to_a_question() -> None:
    names = ["first", "second", " first"]  # the blank is no part of a group's name
    rows = [
        AnswerRecord(f"line {i}", {"question": f"Question {i // 3}?", "model": names[i % 3]}, -1.0, True)
        for i in range(300)
    ]
    kept = one_of_each_question(rows, "model")
    assert len(one_of_each_question(rows)) == 100 and len(kept) == 200
    assert {group.value: len(group.answers) for group in answer_groups(kept, by="model")} == {
        "first": 100,
        "second": 100,
    }
