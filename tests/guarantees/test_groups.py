"""Calibrators for groups of answers in files, and what makes groups of a file."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import semtoken as st
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.guarantees import Fingerprint, GroupThresholds
from semtoken.guarantees.answer_records import AnswerRecord, answer_record, one_of_each_question
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.auditing import audit_answers
from semtoken.guarantees.fingerprint import ELSEWHERE
from semtoken.guarantees.group_names import Group, group_name
from semtoken.guarantees.groups import answer_groups, fit_groups
from semtoken.support.files.record_files import read_rows, write_records
from tests.guarantees.test_calibrator import response
from tests.guarantees.worlds import WORLDS
from tests.rows import each


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
        [found] = fit_groups(answer_groups(own, further))  # 10% by default
        [beside] = fit_groups(answer_groups([*own, *further]), alpha=0.1)
        threshold = found.calibrator.threshold
        assert threshold is not None and threshold.tests == wanted.tests
        assert beside.calibrator.threshold == threshold
    assert st.Threshold.fit(own, right, alpha=0.1, unlabeled=more).tests != wanted.tests


def test_the_calibrator_of_a_group_knows_the_answers_of_others() -> None:
    """By the field that divided them, as a file has it; of an answer of a server, which has none, nothing is said."""
    german, english = records(60, language="de"), records(60, seed=1, language=" en ")
    fitted = fit_groups(answer_groups([*german, *english], by="language"), alpha=0.3)
    assert [str(one.calibrator.fingerprint.task) for one in fitted] == ["language de", "language en"]
    for one, own, other in ((fitted[0], german, english), (fitted[1], english, german)):
        alone = audit_answers(one.calibrator, own)
        beside = audit_answers(one.calibrator, [*other[:40], *own])
        said = (
            "40 answers are left out: they are of another group (language "
            f"{other[0].record['language'].strip()}) than the calibrator's ({one.calibrator.fingerprint.task}). Use "
            "the calibrator of that group."
        )
        assert list(beside.remarks()) == [*list(alone.remarks())[:-2], said, *list(alone.remarks())[-2:]]
        assert (beside.verdict, beside.seen, beside.drift) == (alone.verdict, alone.seen, alone.drift)
        with pytest.raises(InvalidInputError, match="nothing to audit"):
            audit_answers(one.calibrator, other)
    many = [*german, *(one for i in range(9) for one in records(1, language=f"x{i}"))]
    assert (
        "9 answers are left out: they are of other groups (language x0, language x1, language x2 and 6 more) than the "
        "calibrator's (language de). Use the calibrators of those groups."
    ) in audit_answers(fitted[0].calibrator, many).remarks()
    unknown = audit_answers(fitted[0].calibrator, [*german, *records(5, seed=3)])
    assert unknown.n_labeled == 65 and not unknown.other_groups, "nobody says of which group these are"
    answer, applied = response(-0.1), CalibratorInUse(fitted[0].calibrator)
    flags = {value: applied.block(answer, {"language": value})[ELSEWHERE] for value in ("de", "en", None)}
    assert len(flags["en"]) == len(flags["de"]) + 1 and flags["de"] == flags[None] == applied.block(answer)[ELSEWHERE]
    assert any("is of another group (language en) than the calibrator's (language de)" in flag for flag in flags["en"])


def test_a_task_that_somebody_chose_divides_nothing() -> None:
    """Whatever it is called: groups are those that `answer_groups` made."""
    german, english = records(60, language="de"), records(60, seed=1, language="en")
    [alone] = fit_groups(answer_groups(german), alpha=0.3, fingerprint=Fingerprint(task="language=de"))
    assert alone.calibrator.fingerprint.task == "language=de"
    found = audit_answers(alone.calibrator, english)
    assert found.n_labeled == 60 and not found.other_groups
    assert CalibratorInUse(alone.calibrator).block(response(-0.1), {"language": "en"}) == CalibratorInUse(
        alone.calibrator
    ).block(response(-0.1))


def test_a_group_is_known_in_every_kind_of_file(tmp_path: Path) -> None:
    """A switch, a number and a name, as JSON lines, as CSV by semtoken and by pandas, and as Parquet."""
    frame = pd.DataFrame({"flag": [True, False] * 2, "version": [1.0, 2.0, 2.5, 1.0]})
    frame["language"] = ["de", " en", "1", ""]
    rows = [{**row, "version": v} for row, v in zip(frame.to_dict("records"), (1, 2, 2.5, 1), strict=True)]
    write_records(tmp_path / "a.jsonl", rows)
    write_records(tmp_path / "a.csv", frame.to_dict("records"))
    frame.to_csv(tmp_path / "b.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for file in ("a.jsonl", "a.csv", "b.csv", "a.parquet"):
        read = [fields for _, _, fields in read_rows(tmp_path / file)]
        assert [[group_name(row[name]) for name in frame] for row in read] == [
            ["true", "1", "de"],
            ["false", "2", "en"],
            ["true", "2.5", "1"],
            ["false", "1", ""],
        ]


@each(
    ("value", "name"),
    [
        *((value, "") for value in (None, math.nan, np.float32("nan"), pd.NA, pd.NaT, "", " ")),
        *((value, "true") for value in (True, np.True_, "true", "TRUE", " True ")),
        *((value, "0") for value in (0, 0.0, np.int8(0), "0.0")),
        *((value, value) for value in ("nan", "None", "1.10", "1.1.0", "v1.0", "01.00", "ü")),
        (["a", 1], '["a", 1]'),
        (math.inf, "inf"),
        (date(2026, 12, 1), "2026-12-01"),
    ],
)
def test_names_of_groups(value: Any, name: str) -> None:
    assert group_name(value) == name


def test_lines_of_all_kinds_of_files_are_of_the_group_that_was_fitted() -> None:
    [fitted, other] = fit_groups(
        answer_groups([*records(60, flag=True), *records(60, seed=1, flag=False)], by="flag"), alpha=0.3
    )
    assert (fitted.group.value, other.group.value) == ("false", "true")
    assert audit_answers(fitted.calibrator, records(60, seed=2, flag="False")).n_labeled == 60
    assert audit_answers(other.calibrator, [*records(40, seed=2, flag="true"), *records(9, flag=0)]).n_labeled == 40
    both = [*records(3, flag=True), *records(3, flag="True")]
    assert len(one_of_each_question(both, "flag")) == 3
    [own] = answer_groups(both[:3], both[3:], by="flag")
    assert own.further == tuple(both[3:])


def test_another_model_is_said_once(tmp_path: Path) -> None:
    """The models are the groups, and fingerprints name the model, too."""
    both = [*records(60, model="a"), *records(60, seed=1, model="b")]
    [fitted, _] = fit_groups(answer_groups(both, by="model"), alpha=0.3)
    remarks = " ".join(audit_answers(fitted.calibrator, both).remarks())
    assert remarks.count("another") == 1 and "60 answers are left out: they are of another group (model b)" in remarks
    for known, said in (
        (Fingerprint(), "(model b)"),
        (Fingerprint(model="a"), "(model b)"),
        (Fingerprint(model="b"), "the model was 'a' and is 'b'"),
    ):
        block = CalibratorInUse(fitted.calibrator, known).block(response(-0.1), {"model": "b"})
        assert [said in flag for flag in block[ELSEWHERE]].count(True) == 1
        assert len(block[ELSEWHERE]) == 2, "and that nothing is known of the rules"


def test_groups_of_models_are_compared_where_the_model_is_not_known() -> None:
    by_model = [Fingerprint(task=Group("model", name), distribution="raw", signature="s") for name in "ab"]
    [flag] = by_model[0].flags(replace(by_model[1], model="b"))
    assert "is of another group (model b)" in flag.message


def test_groups_in_a_mapping_are_named_as_those_that_are_asked_for() -> None:
    threshold = st.Threshold.fit(-np.linspace(0, 2, 100), np.ones(100))
    found = GroupThresholds({"True": threshold, "1.0": threshold})
    assert list(found.thresholds) == ["true", "1"]
    for name in ("True", True, "1.0", 1):
        assert found.decide(-0.01, name) == threshold.decide(-0.01)
    with pytest.raises(InvalidInputError, match="have the same name"):
        GroupThresholds({"True": threshold, "true": threshold})


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
    with pytest.raises(
        ArtifactError, match=rf"^{tmp_path} cannot be used\. It holds no calibrator itself, but others: .*/made\.$"
    ):
        st.Calibrator.load(tmp_path)
    good.save(tmp_path)
    assert st.Calibrator.load(tmp_path) == good.calibrator


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
