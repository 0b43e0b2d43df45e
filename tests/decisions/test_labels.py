"""Labels as people and spreadsheets write them, and what is said of those that contradict each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from semtoken.decisions import Choice, Predicate, Question, Score
from semtoken.decisions.labels import place_of
from semtoken.decisions.saved import decision_records
from semtoken.errors import InvalidInputError
from tests.json_lines import write_lines
from tests.rows import each

LISTED = [{"value": 0, "label": "calm", "probability": 0.4}, {"value": 1, "label": "angry", "probability": 0.6}]
YES_NO, LEVELS = Predicate("So?"), Score("How?", ["calm", "Annoyed", "furious"])


@each(
    ("label", "question", "place"),
    [
        *((text, YES_NO, 0) for text in (True, "yes", "YES", " true ", "1", 1, 1.0, "1.0", "y")),
        *((text, YES_NO, 1) for text in (False, "no", "False", "0", 0, "N")),
        *((text, LEVELS, 2) for text in (2, 2.0, "2", "2.0", "furious", "Furious ")),
        *((text, Choice("Where?", ["Oslo", "Rome"]), 1) for text in ("Rome", "rome", "ROME")),
        *((text, Choice("Which?", ["4", "5"]), 0) for text in ("4", "4.0", 4, 4.0)),
        (True, Choice("Which?", ["true", True]), 1),
        ("true", Choice("Which?", [True, "true"]), 1),
        ("a", Choice("Which?", ["a", "A"]), 0),
    ],
)
def test_a_label_may_be_spelled_in_another_way(label: Any, question: Question, place: int) -> None:
    assert place_of(label, question) == place


@pytest.mark.parametrize(
    ("label", "question", "why"),
    [
        ("maybe", YES_NO, r"'maybe' is none of the options: True \(Yes\), False \(No\)"),
        ("2", YES_NO, "none of the options"),
        (True, LEVELS, "none of the options"),
        ("3", Score("How?", ["1", "2", "3", "4"]), r"fits the options 2 \(3\) and 3 \(4\). In JSON lines a number"),
        ("OSLO", Choice("Where?", ["oslo", "Oslo"]), "fits the options"),
        (1.5, LEVELS, "none of the options"),
    ],
)
def test_a_label_that_fits_no_option_or_several_is_refused(label: Any, question: Question, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        place_of(label, question)


@pytest.fixture
def replies(tmp_path: Path) -> Path:
    """Three replies with ids to the questions refund and tone."""
    answers = [
        {"type": "predicate", "name": "refund", "probability": 0.9},
        {"type": "score", "name": "tone", "score": 0.6, "probabilities": LISTED},
    ]
    return write_lines(tmp_path / "replies.jsonl", ({"id": f"r{n}", "reply": {"answers": answers}} for n in range(3)))


def labeled(replies: Path, text: str | bytes, name: str = "labels.csv") -> list[int | None]:
    path = replies.parent / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [record.label for record in decision_records(replies, labels=path)]


ROWS = "id;refund;tone\nr0;yes;calm\nr2;0;Angry\n"
WANTED = [0, 0, None, None, 1, 1]


@pytest.mark.parametrize("separator", [";", ",", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_files_as_spreadsheets_save_them_are_read(replies: Path, separator: str, encoding: str) -> None:
    text = ROWS.replace(";", separator).replace("\n", "\r\n")
    assert labeled(replies, text.encode(encoding)) == WANTED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,refund,refund\nr0,yes,no\n", "labels.csv: two columns have the name 'refund'"),
        ("id,refund\nr0,yes\nr1,no\nr0,no\n", r"line 4: 'r0' has the label 'no' for 'refund', and 'yes' at .*line 2"),
        ("id,refund\nr0,yes\n,no\n", "line 3: it has no id"),
        ("id,refund\nr0,yes,no\n", "line 2: there are 3 cells for 2 columns"),
        ("id,refund\nr0,vielleicht\n", "'refund': The label 'vielleicht' is none of the options"),
        ("id,grösse\nr0,yes\n".encode("cp1252"), "line 1 or after: it is not UTF-8. Save it as CSV in UTF-8"),
        ('id,refund\nr0,"yes\n', "line .*: not CSV"),
        ("id,refund\nr0," + "x" * 200_000 + "\n", "none of the options"),
    ],
)
def test_files_that_cannot_be_read_are_named_with_the_line(replies: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        labeled(replies, text)


def test_the_same_label_twice_is_no_contradiction(replies: Path) -> None:
    rows = [{"id": "r0", "labels": {"refund": True}}, {"id": "r0", "labels": {"tone": 1, "refund": True}}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert labeled(replies, text, "labels.jsonl") == [0, 1, None, None, None, None]
