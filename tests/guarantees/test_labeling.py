"""The order in which a person labels a file of answers, and the file of labels."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import AnswerRecord, answer_record, read_answers
from semtoken.guarantees.labeling import LabelingSession, labeling_order, labels_of, with_earlier, write_labeled
from tests.json_lines import read_lines, write_lines


def answers(n: int, **fields: Any) -> list[AnswerRecord]:
    return [
        answer_record(
            f"line {i}", {"question": f"{i}?", "response": f"It is {i}.", "log_confidence": -0.1 * i, **fields}
        )
        for i in range(n)
    ]


def test_every_answer_with_a_text_comes_once_and_each_beginning_spreads_over_the_scores() -> None:
    given = answers(40)
    order = labeling_order([*given, *answers(2, response=" ")])
    assert sorted(order) == list(range(40))
    for n in (4, 8):  # one of each fourth and eighth of the scores, give or take the random start
        assert len({place * n // 40 for place in order[:n]}) >= n - 1
    assert order != sorted(order)


def test_a_second_field_of_a_document_comes_after_the_first_of_all_others() -> None:
    given = [one for i in range(6) for one in answers(4, document=f"bill {i}")] + answers(3)
    order = labeling_order(given)
    of_documents = [given[place].document for place in order if given[place].document]
    rounds = [of_documents[at : at + 6] for at in (0, 6, 12, 18)]
    assert all(len(set(each)) == 6 for each in rounds) and len(order) == 27
    assert {given[place].document for place in order[:9]} >= {None, "bill 0", "bill 5"}


def test_labels_are_kept_and_read_again_and_go_before_those_of_the_input(tmp_path: Path) -> None:
    given = [
        *answers(3, note="kept"),
        answer_record("line 3", {"question": "3?", "response": "", "log_confidence": None}),
    ]
    path = tmp_path / "labeled.jsonl"
    assert labels_of(with_earlier(given, path)) == {}
    write_labeled(path, given, {0: True, 2: False})
    rows = read_lines(path)
    assert [row["correct"] for row in rows] == [True, None, False, None]
    assert [row.get("note") for row in rows] == ["kept", "kept", "kept", None]
    assert [one.log_confidence for one in read_answers(path)] == [0.0, -0.1, -0.2, -math.inf]
    assert labels_of(with_earlier(given, path)) == {0: True, 2: False}
    assert labels_of(with_earlier(answers(3, note="kept", correct=True), tmp_path / "none.jsonl")) == dict.fromkeys(
        range(3), True
    )
    labeled = [answer_record(one.where, {**one.record, "correct": True}) for one in given]
    assert labels_of(with_earlier(labeled, path)) == {0: True, 1: True, 2: False, 3: True}


def test_remarks_in_the_file_of_labels_stay(tmp_path: Path) -> None:
    path = tmp_path / "labeled.jsonl"
    write_labeled(path, answers(2, note="kept"), {0: True})
    lines = read_lines(path)
    write_lines(path, [{**lines[0], "remark": "ask Ada"}, {**lines[1], "note": "mine"}])
    again = with_earlier(answers(2, note="kept", model="m"), path)
    write_labeled(path, again, labels_of(again))
    assert read_lines(path) == [
        {**lines[0], "remark": "ask Ada", "model": "m"},
        {**lines[1], "note": "mine", "model": "m"},
    ]


@pytest.mark.parametrize("change", [{"question": "Another?"}, {"response": "Other"}, {"log_confidence": -9.0}])
def test_labels_of_other_answers_are_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    write_labeled(tmp_path / "labeled.jsonl", answers(3), {0: True})
    with pytest.raises(InvalidInputError, match="holds other answers"):
        labels_of(with_earlier(answers(3, **change), tmp_path / "labeled.jsonl"))
    with pytest.raises(InvalidInputError, match="holds other answers"):
        labels_of(with_earlier(answers(2), tmp_path / "labeled.jsonl"))


def test_a_session_puts_off_takes_back_and_ends() -> None:
    given = answers(5)
    order = labeling_order(given)
    session = LabelingSession(given)
    session.undo()  # nothing was given
    session.skip()
    session.give(True)
    session.give(False)
    assert session.labels == {order[1]: True, order[2]: False}
    session.undo()
    taken_back = session.next
    assert taken_back is given[order[2]]
    for correct in (True, True, False):  # the answer that was put off comes last
        session.give(correct)
    last = session.next
    assert last is given[order[0]] and session.labels[order[4]] is False
    assert session.progress == "4 of 5 answers have a label (3 right, 1 wrong)."
    session.skip()
    assert session.next is None
    labeled = [replace(answer, correct=session.labels.get(i)) for i, answer in enumerate(given)]
    assert LabelingSession(labeled).next is labeled[order[0]]
    assert LabelingSession(labeled, limit=4).next is None
