"""Questions of a file never stand under another answer: joined by any field that both sides have, or refused."""

from __future__ import annotations

import csv
import json
import os
import random
import tracemalloc
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from semtoken.errors import InvalidInputError
from semtoken.replies.checking import RankedReplies, rank_replies
from semtoken.replies.checking.finding import OpenedReplies
from semtoken.replies.checking.ids import identifiers, is_id_name, may_identify
from semtoken.replies.checking.questions import join_questions
from tests.cli.run import invoke
from tests.json_lines import write_lines
from tests.replies.test_check import SURE, reply
from tests.rows import each

Line = dict[str, Any]
USUAL = [
    "custom_id",
    "question_id",
    "id",
    "key",
    "recordId",
    "request_id",
    "uuid",
    "qid",
    "doc_id",
    "docid",
    "sample_id",
    "example_id",
    "item_id",
    "idx",
    "index",
    "_id",
    "ref",
    "guid",
    "hash",
    "file",
    "name",
    "nummer",
    "номер",
]


def answered(number: int) -> Line:
    return reply([(f"A{number}", -0.1)])


def check(tmp_path: Path, replies: list[Line], questions: list[Line]) -> RankedReplies:
    asked = write_lines(tmp_path / "questions.jsonl", questions)
    return rank_replies([str(write_lines(tmp_path / "replies.jsonl", replies))], questions=asked)


def right(found: RankedReplies) -> bool:
    return all(answer.question == f"Q{answer.text[1:]}?" for answer in found.answers)


def orders(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(1).shuffle(numbers)
    return numbers


@each(("place", "name"), enumerate(USUAL))
def test_any_field_that_both_sides_have_joins_them(tmp_path: Path, place: int, name: str) -> None:
    """In the line around a reply, or among the fields of the reply; servers' own ids are different ones."""
    order, own = orders(6), place % 2 == 0
    extra = [{name: f"r20-{i}"} for i in range(6)]
    lines = [
        answered(i) | {"id": f"chatcmpl-{i}f"} | extra[i] if own else extra[i] | {"reply": answered(i)} for i in order
    ]
    questions = [extra[i] | {"question": f"Q{i}?", "answer": "A1"} for i in range(6)]
    found = check(tmp_path, lines, questions)
    assert right(found) and len(found.answers) == 6 and f"'{name}'" in found.joined
    assert all(answer.id == f"r20-{answer.text[1:]}" for answer in found.answers)


def test_the_field_that_joins_stands_in_the_table(tmp_path: Path) -> None:
    check(
        tmp_path,
        [{"nummer": f"r20-{i}", "reply": answered(i)} for i in orders(6)],
        [{"nummer": f"r20-{i}", "question": f"Q{i}?"} for i in range(6)],
    )
    table = tmp_path / "out.csv"
    replies, asked = tmp_path / "replies.jsonl", tmp_path / "questions.jsonl"
    assert invoke(["check", replies, "--questions", asked, "-o", table]).exit_code == 0
    with table.open(encoding="utf-8") as file:
        assert all(row["id"] == f"r20-{row['answer'][1:]}" for row in csv.DictReader(file))


@each("name", USUAL)
@each("in_replies", [False, True])
def test_an_id_of_one_side_alone_is_no_order(tmp_path: Path, name: str, in_replies: bool) -> None:
    ids = [{name: f"r20-{i}"} for i in range(4)]
    lines = [(ids[i] if in_replies else {}) | {"reply": answered(i)} for i in range(4)]
    questions = [({} if in_replies else ids[i]) | {"question": f"Q{i}?"} for i in range(4)]
    with pytest.raises(InvalidInputError, match="4 replies and 4 questions"):
        check(tmp_path, lines, questions)


@pytest.mark.parametrize(("left", "right_name"), [("recordId", "id"), ("key", "custom_id"), ("metadata.doc", "doc")])
def test_identifiers_with_other_names_join(tmp_path: Path, left: str, right_name: str) -> None:
    outer, _, inner = left.partition(".")
    lines = [{outer: {inner: f"d-{i}"} if inner else f"d-{i}", "response": answered(i)} for i in orders(5)]
    found = check(tmp_path, lines, [{right_name: f"d-{i}", "question": f"Q{i}?"} for i in range(7)])
    assert right(found) and {answer.id for answer in found.answers} == {f"d-{i}" for i in range(5)}


def test_batches_of_gemini_and_bedrock_are_joined_with_their_inputs(tmp_path: Path) -> None:
    asked = [{"key": f"k{i}", "request": {"contents": [{"parts": [{"text": f"Q{i}?"}]}]}} for i in range(4)]
    assert right(check(tmp_path, [{"key": f"k{i}", "response": answered(i)} for i in orders(4)], asked))
    told = [
        {"recordId": f"C{i}", "modelInput": {"messages": [{"role": "user", "content": f"Q{i}?"}]}} for i in range(4)
    ]
    lines = [{"recordId": f"C{i}", "modelOutput": answered(i), "modelInput": {"temperature": 0}} for i in orders(4)]
    assert right(check(tmp_path, lines, told))


def test_several_answers_of_one_question_share_its_id(tmp_path: Path) -> None:
    lines = [{"id": f"q{i}", "response": answered(i)} for i in (2, 0, 1, 0, 2)]
    assert right(check(tmp_path, lines, [{"id": f"q{i}", "question": f"Q{i}?"} for i in range(3)]))


def test_the_id_of_a_server_joins_where_the_questions_name_it(tmp_path: Path) -> None:
    lines = [answered(i) | {"id": f"chatcmpl-{i}f"} for i in orders(4)]
    found = check(tmp_path, lines, [{"response_id": f"chatcmpl-{i}f", "question": f"Q{i}?"} for i in range(4)])
    assert right(found)
    alone = rank_replies([str(tmp_path / "replies.jsonl")])  # without questions it is all that there is
    assert {answer.id for answer in alone.answers} == {f"chatcmpl-{i}f" for i in range(4)}


def test_two_fields_that_join_differently_are_refused(tmp_path: Path) -> None:
    lines = [{"index": place, "key": f"k{i}", "reply": answered(i)} for place, i in enumerate(orders(4))]
    with pytest.raises(InvalidInputError, match="'index' and 'key' join other questions"):
        check(tmp_path, lines, [{"index": i, "key": f"k{i}", "question": f"Q{i}?"} for i in range(4)])


def test_values_that_identify_nothing_leave_the_order(tmp_path: Path) -> None:
    lines = [{"run_id": "r1", "seconds": i, "reply": answered(i)} for i in range(4)]
    questions = [{"question": f"Q{i}?", "reference": ("Oslo", "1,5", "2026-01-01", "F1")[i]} for i in range(4)]
    found = check(tmp_path, lines, questions)
    assert right(found) and "by order" in found.joined


def test_what_may_identify_a_line() -> None:
    record = {"a": 1, "b": {"c": "x", "reply": {"d": 1}}, "long": "x" * 300, "lines": "a\nb", "list": [1], "yes": True}
    assert identifiers(record, inside=record["b"]["reply"]) == {"a": "1", "b.c": "x"}  # type: ignore[index]
    assert all(map(is_id_name, ("recordId", "meta.doc_id", "QID", "uuid", "file_name".replace("_", ""), "key")))
    assert not any(map(is_id_name, ("question", "answer", "seconds", "title")))
    assert may_identify("doc", ["inv-1", "inv-2"]) and not may_identify("doc", ["inv-1", "inv-1"])
    assert not may_identify("cost", ["1.5", "2.5"]) and not may_identify("at", ["2026-01-01T1", "2026-01-01T2"])


def test_of_several_identifiers_the_most_telling_names_a_line(tmp_path: Path) -> None:
    names = {"id": "batch-1", "doc_id": "d-1", "question_id": "q-1", "custom_id": "c-1"}
    for name in ("custom_id", "question_id", "id", "doc_id"):
        [found] = OpenedReplies([str(write_lines(tmp_path / "one.jsonl", [names | {"reply": answered(0)}]))])
        assert found.read().id == names.pop(name)


@pytest.mark.parametrize("n", [1, 199, 200])
def test_an_identifier_has_200_characters_at_most(n: int) -> None:
    assert identifiers({"name": "x" * n}) == {"name": "x" * n} and not identifiers({"name": "x" * n + "\n"})
    assert not identifiers({"name": "x" * (n + 200)})


def test_a_line_of_questions_that_asks_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="asks nothing"):
        check(tmp_path, [answered(0)], [{"id": "a"}])


def peak(sources: list[str], questions: Path | None) -> int:
    """The most bytes that a check takes."""
    tracemalloc.start()
    try:
        assert len(rank_replies(sources, questions=questions, keep_tokens=False)) > 1
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@each("in_lines", [False, True])
def test_replies_are_not_in_memory_together_while_they_are_joined(tmp_path: Path, in_lines: bool) -> None:
    lines = [reply([(f" w{i}", -0.1) for i in range(150)]) for _ in range(20)]
    folder = tmp_path / f"lines {in_lines}"
    folder.mkdir()
    if in_lines:
        write_lines(folder / "all.jsonl", lines)
    else:
        for number, line in enumerate(lines):
            (folder / f"r{number}.json").write_text(json.dumps(line))
    asked = write_lines(tmp_path / "questions.jsonl", [{"question": f"Q{number}?"} for number in range(20)])
    rank_replies([str(folder)], questions=asked)  # what is made at first use is no part of it
    assert peak([str(folder)], asked) < peak([str(folder)], None) + 200_000


def test_replies_of_a_pipe_are_joined_too(tmp_path: Path) -> None:
    pipe = tmp_path / "replies.jsonl"
    os.mkfifo(pipe)

    def write() -> None:
        write_lines(pipe, [answered(0), answered(1)])
        while True:
            write_lines(pipe, [])  # who reads it a second time finds nothing, and does not wait for ever

    Thread(target=write, daemon=True).start()
    asked = write_lines(tmp_path / "questions.jsonl", [{"question": "Q0?"}, {"question": "Q1?"}])
    found = rank_replies([str(pipe)], questions=asked)
    assert len(found) == 2 and right(found)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("r0.json", r"r0.json came while the replies were read, or .*r1.json went"),
        ("r2.json", "^1 of 2 replies went while they were read"),
    ],
)
def test_replies_that_came_or_went_meanwhile_take_no_questions_of_others(
    changed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "replies"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"r{number}.json").write_text(json.dumps(answered(number)))
    asked = write_lines(tmp_path / "questions.jsonl", [{"question": "Q1?"}, {"question": "Q2?"}])

    def after_a_change(*given: Any) -> Any:
        if (folder / changed).exists():
            (folder / changed).unlink()
        else:
            (folder / changed).write_text(json.dumps(answered(0)))
        return join_questions(*given)

    monkeypatch.setattr("semtoken.replies.checking.answers.join_questions", after_a_change)
    with pytest.raises(InvalidInputError, match=said):
        rank_replies([str(folder)], questions=asked)


def test_a_reply_without_a_question_is_named_and_no_other_gets_one(tmp_path: Path) -> None:
    """Ids that count from 1 beside ids that count from 0 fit all but once, and every question would be another's."""
    replies = [{"id": str(i), "response": SURE} for i in range(20)]
    source = write_lines(tmp_path / "replies.jsonl", replies)
    asked = write_lines(tmp_path / "questions.jsonl", [{"id": str(i), "question": f"of {i}?"} for i in range(1, 21)])
    said = r"no question has: 1, such as '0' of .*replies\.jsonl:1\. Add their questions, or leave these"
    with pytest.raises(InvalidInputError, match=said):
        rank_replies([str(source)], questions=asked)
