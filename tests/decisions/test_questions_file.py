"""A file of questions that is wrong somewhere says where."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from semtoken.decisions.question_files import read_questions
from semtoken.errors import InvalidInputError


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"refund: {type: predicate}", r"questions.yaml, question 'refund', predicate\.instructions: Field required\."),
        (b"refund: {kind: choice}", r"questions.yaml, question 'refund': .*needs the field 'type'"),
        (
            b"refund: {type: boolean}",
            r"question 'refund': .*'type' is 'boolean', and should be one of 'predicate', 'choice', 'score'",
        ),
        (
            b"refund: {type: choice, instructions: Which, choices: [a, 2]}",
            r"question 'refund', choice\.choices\.1\.value\.str: Input should be a valid string",
        ),
        (b"refund: yes", r"questions.yaml, question 'refund': .*got bool"),
        (b"refund: {type: \xff}", r"questions.yaml is not YAML: .*"),
        (b"refund: {type: ]", r"questions.yaml is not YAML: .*found '\]' at line 1, column 16"),
        (b"[1, 2]", r"questions.yaml must hold questions by their names"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "questions.yaml").write_bytes(content)
    with pytest.raises(InvalidInputError) as caught:
        read_questions(tmp_path / "questions.yaml")
    assert re.search(said, str(caught.value))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("type: choice, choices: [calm, true]", "type: choice, choices: [{value: calm}, {value: true}]"),
        (
            "type: choice, choices: {calm: , angry: Upset}",
            "type: choice, choices: [{value: calm}, {value: angry, description: Upset}]",
        ),
        ("type: score, levels: [low, high]", "type: score, levels: [{label: low}, {label: high}]"),
    ],
)
def test_choices_and_levels_may_be_written_shortly(short: str, long: str, tmp_path: Path) -> None:
    read = []
    for written in (short, long):
        (tmp_path / "questions.yaml").write_text(f"tone: {{instructions: Which, {written}}}", encoding="utf-8")
        read.append(read_questions(tmp_path / "questions.yaml"))
    assert read[0] == read[1]


def test_items_in_the_place_of_questions_are_known_as_such(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text('{"state": "Late."}\n', encoding="utf-8")
    with pytest.raises(InvalidInputError, match="holds items, not questions: the file of questions comes first"):
        read_questions(tmp_path / "items.jsonl")
    named = {"state": {"type": "predicate", "instructions": "Is the parcel in a good state?"}}
    (tmp_path / "questions.json").write_text(json.dumps(named), encoding="utf-8")
    assert list(read_questions(tmp_path / "questions.json")) == ["state"]
