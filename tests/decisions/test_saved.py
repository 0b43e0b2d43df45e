"""Saved replies to typed questions, of every documented server, with labels by id or by order."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from semtoken.decisions.questions import READ_AS_USUAL
from semtoken.decisions.records import AskedQuestion
from semtoken.decisions.saved import decision_records, decision_rows, holds_decisions, is_decision, saved_decisions
from semtoken.errors import InvalidInputError
from semtoken.replies.checking.finding import OpenedReplies
from tests.cli.run import invoke
from tests.decisions.server_replies import (
    BY_LEVEL,
    BY_OPTION,
    LEVELS,
    MASSES,
    PROBABILITIES,
    QUESTIONS,
    SERVERS,
    URGENT,
)
from tests.json_lines import read_lines, write_lines

REPLIES = {name: next(iter(server.routes.values()))[1] for name, server in SERVERS.items()}
FINGERPRINTS = {name: AskedQuestion(one, READ_AS_USUAL).fingerprint for name, one in QUESTIONS.items()}


@pytest.mark.parametrize("name", REPLIES)
def test_a_folder_of_replies_with_labels_by_id(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "replies"
    folder.mkdir()
    for file in ("a.json", "b.json"):
        (folder / file).write_text(json.dumps(REPLIES[name], indent=1), "utf-8")
    right = {"team": "shipping", "urgent": False, "tone": 0}
    labels = write_lines(tmp_path / "labels.jsonl", [{"id": "b", "labels": right}])
    replies = OpenedReplies([str(folder)])
    assert replies.first is not None and is_decision(replies.first)
    found = saved_decisions(replies, labels=labels, questions=QUESTIONS)
    assert [(one.id, one.record.name) for one in found] == [(i, question) for i in "ab" for question in QUESTIONS]
    for one in found:
        assert one.record.answer.probabilities == PROBABILITIES[one.record.name]
        assert one.record.fingerprint == FINGERPRINTS[one.record.name]
        assert one.record.answer.option_mass == (MASSES[one.record.name] if SERVERS[name].masses else None)
    assert [one.record.label for one in found] == [None, None, None, 1, 1, 0]


def test_tables_of_labels_and_requests_beside_replies(tmp_path: Path) -> None:
    from semtoken.decisions.wire.shapes import QUESTION_SHAPES

    shape = {one.name: one for one in QUESTION_SHAPES}["sglang"]
    saved = [
        {"custom_id": str(i), "request": shape.body(f"state {i}", QUESTIONS), "response": {"body": REPLIES["SGLang"]}}
        for i in range(3)
    ]
    source = write_lines(tmp_path / "batch.jsonl", saved)
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["id", "urgent", "tone", "team"], ["2", "TRUE", "2", "billing"], ["0", "false", "", ""]]
        )
    found = decision_records(source, labels=tmp_path / "labels.csv")
    assert [one.label for one in found] == [None, 1, None, None, None, None, 0, 0, 2]
    assert {one.fingerprint for one in found} == set(FINGERPRINTS.values())


LANGCHAIN = {  # `OpenAIDecisions` of langchain-openai, `response.model_dump()`
    "model": "m",
    "answers": {
        "team": {"type": "choice", "choice": "billing", "probabilities": BY_OPTION, "confidence": 0.625},
        "urgent": {"type": "predicate", "probability": URGENT[0]},
        "tone": {"type": "score", "score": 0.7, "legend": LEVELS, "probabilities": BY_LEVEL, "confidence": 0.1},
    },
    "usage": {"input_tokens": 5, "output_tokens": 1},
    "request_id": None,
}
CLOUDFLARE = {"result": REPLIES["Jev"], "success": True, "errors": [], "messages": []}


@pytest.mark.parametrize("reply", [LANGCHAIN, CLOUDFLARE, {"id": "a", "response": {"body": CLOUDFLARE}}])
@pytest.mark.parametrize("asked", [True, False])
def test_langchain_and_cloudflare_are_read_as_saved(tmp_path: Path, reply: dict[str, Any], asked: bool) -> None:
    replies = OpenedReplies([str(write_lines(tmp_path / "r.jsonl", [reply]))])
    assert replies.first is not None and is_decision(replies.first)
    found = saved_decisions(replies, questions=QUESTIONS if asked else None)
    assert {one.record.name: one.record.answer.probabilities for one in found} == PROBABILITIES


def test_the_probability_in_a_row_is_that_of_its_value(tmp_path: Path) -> None:
    """Also where the server chose another option than the most probable one."""
    probabilities = {"billing": 0.6, "shipping": 0.4}
    answer = {"type": "choice", "choice": "shipping", "probabilities": probabilities, "confidence": 0.2}
    source = write_lines(tmp_path / "r.jsonl", [{"model": "m", "answers": {"team": answer}}])
    [row] = decision_rows(saved_decisions(OpenedReplies([str(source)])))
    assert (row["value"], row["probability"]) == ("shipping", 0.4)


def test_a_request_of_langchain_beside_its_reply_is_read(tmp_path: Path) -> None:
    request = {
        "input": "The card was charged twice.",
        "questions": {
            "team": {"type": "choice", "instructions": "Which team?", "choices": dict.fromkeys(BY_OPTION)},
            "urgent": {"type": "predicate", "instructions": "Is it urgent?"},
            "tone": {"type": "score", "instructions": "How upset?", "levels": ["calm", "annoyed", "furious"]},
        },
    }
    saved = {"id": "a", "request": request, "response": LANGCHAIN}
    found = decision_records(write_lines(tmp_path / "r.jsonl", [saved]))
    assert {one.name: one.fingerprint for one in found} == FINGERPRINTS


def test_what_does_not_fit_together_is_said(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "r.jsonl", [{"id": name, "reply": REPLIES["Jev"]} for name in "xy"])
    for given, why in (
        ([{"id": "z", "labels": {}}], "no reply has the id 'z'"),
        ([{"labels": {}}], "1 line without ids for 2 replies"),
        ([{"id": "x", "labels": {"urgent": "maybe"}}], "is none of the options"),
        ([{"id": "x", "labels": {"other": 1}}], "'other' that was not asked"),
        ([{"id": "x"}], "line 1"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            decision_records(source, labels=write_lines(tmp_path / "labels.jsonl", given))
    with pytest.raises(InvalidInputError, match="no question 'team'"):
        decision_records(source, questions={"urgent": QUESTIONS["urgent"]})
    chat = write_lines(tmp_path / "chat.jsonl", [{"choices": []}])
    replies = OpenedReplies([str(chat)])
    assert replies.first is not None and not is_decision(replies.first)
    with pytest.raises(InvalidInputError, match="no reply answers typed questions"):
        saved_decisions(replies)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (5, "it is no answer to typed questions"),
        ({}, "the field 'type' is missing"),
        ({"type": "choice", "probabilities": 5}, "it is no answer to typed questions"),
        ({"type": "predicate", "probabilities": {"true": "x"}}, "not one to this question"),
    ],
)
def test_a_damaged_answer_is_named_with_its_line(tmp_path: Path, answer: Any, why: str) -> None:
    lines = [
        {"reply": {"answers": {"a": one}}, "request": "a text"} for one in (REPLIES["Jev"]["answers"]["urgent"], answer)
    ]
    with pytest.raises(InvalidInputError, match=rf"r\.jsonl:2: .*{why}"):
        decision_records(write_lines(tmp_path / "r.jsonl", lines))


def test_fit_audit_and_check_read_them(tmp_path: Path) -> None:
    def reply(p: float) -> dict[str, Any]:
        return {"answers": [{"type": "predicate", "name": "late", "probability": p}], "model": "m", "usage": {}}

    saved = [{"id": f"r{i}", "reply": reply(0.005 + i / 400 * 0.99)} for i in range(400)]
    right = [{"id": f"r{i}", "labels": {"late": (i * 7919) % 400 < i}} for i in range(400)]
    source, labels = write_lines(tmp_path / "r.jsonl", saved), write_lines(tmp_path / "l.jsonl", right)
    made = tmp_path / "c"
    done = invoke(["calibrate", source, "--labels", labels, "-o", made, "--alpha", "0.2"])
    assert done.exit_code == 0 and "With confidence 90%" in done.output, done.output
    done = invoke(["audit", source, "--calibrator", made, "--labels", labels])
    assert done.exit_code == 3 and "late: nothing was measured. All its labels are of items that" in done.output
    others = write_lines(tmp_path / "others.jsonl", [one | {"id": f"other {one['id']}"} for one in saved])
    same = write_lines(tmp_path / "same.jsonl", [one | {"id": f"other {one['id']}"} for one in right])
    done = invoke(["audit", others, "--calibrator", made, "--labels", same])
    assert done.exit_code == 0 and "late, called true: holds" in done.output, done.output
    ranked = tmp_path / "o.jsonl"
    done = invoke(["check", source, "--labels", labels, "--calibrator", made, "-n", "2", "-o", ranked])
    assert done.exit_code == 0 and "2 of 400 answers to typed questions" in done.output, done.output
    rows = read_lines(ranked)
    assert rows[0]["probability"] <= rows[1]["probability"] and rows[-1]["decision"] == "answer"
    assert [row["rank"] for row in rows] == [*range(1, len(rows) + 1)]


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_decisions_on_standard_input_are_known(name: str) -> None:
    done = invoke(["check", "-"], stdin=json.dumps(REPLIES[name]))
    assert done.exit_code == 0 and f"of {len(QUESTIONS)} answers to typed questions" in done.output, done.output


def test_accepted_answers_are_no_answers_to_typed_questions(tmp_path: Path) -> None:
    """A folder whose first file is one of `semtoken score` was taken for one of decisions."""
    scored = {"question": "Where?", "response": "Oslo", "answers": ["Oslo"], "log_confidence": -0.1}
    write_lines(tmp_path / "answers.jsonl", [scored, {**scored, "answers": []}])
    assert [is_decision(reply) for reply in OpenedReplies([str(tmp_path)])] == [False, False]
    assert "attribute" not in invoke(["check", tmp_path]).output


@pytest.mark.parametrize("name", REPLIES)
def test_a_file_of_replies_of_each_server_holds_decisions(tmp_path: Path, name: str) -> None:
    for wrapped in (REPLIES[name], {"id": "1", "response": REPLIES[name]}, {"body": REPLIES[name]}):
        assert holds_decisions(write_lines(tmp_path / "saved.jsonl", [wrapped]))
    (tmp_path / "saved.JSON").write_text("{\n}")
    assert holds_decisions(tmp_path / "saved.JSON")


@pytest.mark.parametrize(
    "line", [{"response": "Oslo.", "answers": ["Oslo"]}, {"question": "Capital?", "answers": []}, ["Oslo"], "{"]
)
def test_a_file_of_answers_in_text_holds_no_decisions(tmp_path: Path, line: Any) -> None:
    source = tmp_path / "answers.jsonl"
    source.write_text(line if line == "{" else json.dumps(line), "utf-8")
    assert not holds_decisions(source)
    assert not holds_decisions(tmp_path / "missing.jsonl")
    assert holds_decisions(tmp_path) and holds_decisions(tmp_path / "missing.json")  # one reply each, or many
