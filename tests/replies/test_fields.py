"""Fields of extracted JSON from the shell: a row for each document and field, the most doubtful first."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

import semtoken as st
from semtoken.bench.score_file.batches import annotator
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.fingerprint import ELSEWHERE
from semtoken.guarantees.group_names import Group
from semtoken.replies.checking import rank_replies
from semtoken.replies.checking.fields import (
    CUT_BEFORE,
    NO_JSON,
    REPEATED,
    SIGNATURE,
    field_records,
    often_missing,
    read_schema,
)
from tests.cli.run import invoke
from tests.guarantees.made_up import put
from tests.replies.made import chat_reply
from tests.replies.test_check import decided, reply, run
from tests.rows import each

SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "paid": {"type": "boolean"}, "currency": {"enum": ["EUR", "USD"]}},
}
TORN = reply(
    [('{"total": ', -0.01), ("5", -0.2), (",", -0.9), ('"paid": ', -0.01), ("true", -0.05), ("}", -0.01)],
    others={1: [("7", -1.8)], 2: [(".", -0.8)], 4: [("false", -3.2)]},
)
WRONG = reply([('{"total": "', -0.01), ("lots", -0.02), ('","currency":"', -0.01), ("CHF", -0.01), ('"}', -0.01)])
TALK = reply([("I cannot read this.", -0.5)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [{"id": name, "response": one} for name, one in (("torn", TORN), ("wrong", WRONG), ("talk", TALK))]
    (tmp_path / "replies.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    return tmp_path


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def notes_on(text: str, schema: dict[str, Any], *, cut: bool = False) -> list[str]:
    """The notes on the fields of an answer of letters, in its order."""
    content = [{"token": letter, "logprob": -0.01, "top_logprobs": []} for letter in text]
    [answer] = st.score_reply(chat_reply(text, content))
    fields = field_records(answer.with_fields(truncated=cut), {"type": "object", **schema})
    assert all(field["decision"] == "check" for field in fields if field["note"])
    return [field["note"] for field in fields]


def test_fields_that_more_than_three_documents_lack_are_counted_the_most_frequent_first() -> None:
    lacking = {"/b": 4, "/a": 4, "/c": 5, "/d": 3, "": 9}
    rows = [{"path": path, "present": False} for path, count in lacking.items() for _ in range(count)]
    found = often_missing([*rows, *({"path": "/e", "present": True} for _ in range(9))])
    assert list(found.items()) == [("/c", 5), ("/a", 4), ("/b", 4)]


@each("types", [["string", "null"], ["null", "string"], ["string", "number"], "string"])
@each("value", ['"x"', "5", "true", "null"])
def test_a_field_of_another_type_than_its_schema_lists_is_told(types: Any, value: str) -> None:
    [note] = notes_on(f'{{"a": {value}}}', {"properties": {"a": {"type": types}}})
    kind = {'"x"': "string", "5": "number", "true": "boolean", "null": "null"}[value]
    assert ("The schema asks for" in note) is (kind not in ([types] if types == "string" else types))


@each(
    ("text", "schema", "note"),
    [
        ('{"a": 1.5}', {"type": "integer"}, "The schema asks for a whole number."),
        ('{"a": 2.0}', {"type": "integer"}, ""),  # as JSON Schema has it
        ('{"a": 1' + "0" * 400 + "}", {"type": "integer"}, ""),
        ('{"a": 1.5}', {"type": ["integer", "number"]}, ""),
        ('{"a": null}', {"anyOf": [{"type": "string"}, {"type": "null"}]}, ""),  # as Pydantic writes what is optional
        ('{"a": null}', {"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}]}, ""),
        ('{"a": null}', {"$ref": "#/$defs/unit"}, "The schema allows only kg, g."),
        ('{"a": null}', {"type": "number"}, "The schema asks for a number, this is null."),
        ('{"a": "x"}', {"const": "y"}, "The schema allows only y."),
        ('{"a": {"b": 1}}', {"type": "string"}, "The schema has no object or list at /a."),
        ('{"a": [1]}', {"type": "object"}, "The schema asks for an object at /a, this is a list."),
        ('{"a": {"0": 1}}', {"type": "object"}, ""),
        ('{"a": [[1]]}', {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, ""),
    ],
)
def test_what_a_schema_does_not_allow_is_told(text: str, schema: dict[str, Any], note: str) -> None:
    assert notes_on(text, {"properties": {"a": schema}, "$defs": {"unit": {"enum": ["kg", "g"]}}}) == [note]


def test_a_list_in_place_of_the_document_is_told() -> None:
    assert notes_on('[{"a": 1}]', {"properties": {"a": {}}}) == [
        "The schema asks for an object at the top, this is a list."
    ]


def test_a_field_that_stands_twice_is_told_of_both() -> None:
    assert notes_on('{"a": 1, "a": 2, "b": 3}', {}) == [REPEATED, REPEATED, ""]


@each(("cut", "note"), [(True, CUT_BEFORE), (False, NO_JSON)])
def test_an_answer_that_ends_within_its_first_value(cut: bool, note: str) -> None:
    assert notes_on('{"a": "Par', {"properties": {"a": {"type": "string"}}}, cut=cut) == [note]


def test_a_row_for_each_document_and_field(folder: Path) -> None:
    run("check", folder / "replies.jsonl", "--schema", folder / "schema.json", "-o", folder / "fields.csv")
    rows = table(folder / "fields.csv")
    found = {(row["document"], row["path"]): row for row in rows}
    assert len(rows) == len(found) == 7 and [row["rank"] for row in rows] == [str(i) for i in range(1, 8)]
    # The number ends where a comma comes: 1 - p(".") is not known from the list, so the comma's own probability counts.
    total = found["torn", "/total"]
    assert float(total["confidence"]) == pytest.approx(math.exp(-0.2 - 0.9), rel=1e-6)
    assert total["rival"] == "5." and float(total["rival_probability"]) == pytest.approx(math.exp(-0.8))
    assert total["decision"] == "check"
    paid = found["torn", "/paid"]
    assert (paid["value"], paid["rival"], paid["decision"]) == ("true", "false", "accept")
    assert float(paid["confidence"]) == pytest.approx(math.exp(-0.05))
    assert found["torn", "/currency"]["note"].startswith("The schema asks for it")
    assert found["wrong", "/total"]["note"] == "The schema asks for a number, this is a string."
    assert found["wrong", "/currency"]["note"] == "The schema allows only EUR, USD."
    assert found["wrong", "/paid"]["present"] == "false"
    assert found["talk", ""]["note"] == NO_JSON
    assert {row["decision"] for row in rows if row["note"]} == {"check"}
    known = [float(row["confidence"]) for row in rows if row["confidence"]]
    assert known == sorted(known) and [row["confidence"] for row in rows[:3]] == ["", "", ""]


@pytest.mark.parametrize("ending", ["html", "md", "jsonl"])
def test_fields_are_written_as_the_ending_says(folder: Path, ending: str) -> None:
    target = folder / f"out.{ending}"
    said = run("check", folder / "replies.jsonl", "--schema", folder / "schema.json", "-n", "4", "-o", target)
    assert "torn/total: 5" in said and "also likely: “5.” 45%" in said
    assert "/total" in target.read_text(encoding="utf-8")


def test_labeled_fields_give_chances_and_decisions_and_answers_keep_theirs(folder: Path) -> None:
    def made(p: float) -> Any:
        content = [('{"paid": ', -0.01), ("true", math.log(p)), ("}", -0.001)]
        return reply(content, others={1: [("false", math.log(1 - p) - 1e-3)]})

    schema = {"type": "object", "properties": {"paid": {"type": "boolean"}}}
    (folder / "paid.json").write_text(json.dumps(schema), encoding="utf-8")
    rows = decided(folder, made, "--schema", folder / "paid.json")
    assert {row["decision"] for row in rows} == {"accept", "check"}
    (folder / "mine.csv").write_text("document,path,value\na,/paid,true\n", encoding="utf-8")
    assert "is for `semtoken label`" in invoke(["check", str(folder / "mine.csv")]).stderr
    applied = CalibratorInUse.load(folder / "calibrator")
    refused = invoke(["check", str(folder / "replies.jsonl"), "--calibrator", str(folder / "calibrator")])
    assert refused.exit_code == 2 and "give the --schema" in refused.stderr
    [answer] = st.score_reply(made(0.5))
    with pytest.raises(CalibratorMismatchError):
        applied.block(answer)
    assert field_records(answer, schema, applied)[0]["probability_correct"] is not None


def test_what_stands_beside_several_answers_is_said_of_each(tmp_path: Path) -> None:
    """Their group, unless they name another, and an error, which those with an empty field do not hide."""
    [answer] = st.score_reply(TORN)
    origin: dict[str, Any] = {"signature": answer.rules, "distribution": answer.distribution, "scores": "top-k"}
    calibrator = CalibratorInUse(put(tmp_path / "cal", task=Group("language", "de"), **origin))
    path = tmp_path / "in.json"
    answers = [TORN, {**TORN, "language": None}, {"language": "de", "response": TORN}]
    path.write_text(json.dumps({"question": "Why?", "language": "en", "answers": answers}), encoding="utf-8")
    found = sorted(rank_replies(path, calibrator=calibrator), key=lambda one: one.place)
    assert [any("another group" in said for said in one.messages) for one in found] == [True, True, False]
    record = {"error": {"message": "partial"}, "answers": [TORN, {**TORN, "error": None}]}
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"2 x .*partial"):
        rank_replies(path)


@each("schema", [None, SCHEMA])
def test_answers_of_another_group_than_the_calibrators_are_flagged(tmp_path: Path, schema: Any) -> None:
    """In tables, and on the terminal; what is decided stays. `semtoken score` says the same of fields."""
    [answer] = st.score_reply(TORN)
    signature = answer.rules if schema is None else f"{answer.rules}|{SIGNATURE}"
    origin: dict[str, Any] = {"signature": signature, "distribution": answer.distribution, "scores": "top-k"}
    calibrator = put(tmp_path / "cal", task=Group("language", "de"), **origin)
    lines = [{"id": own, "language": own, "response": TORN} for own in ("de", "en")]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    options = () if schema is None else ("--schema", tmp_path / "schema.json")
    shown = run("check", tmp_path / "in.jsonl", *options, "-o", tmp_path / "o.csv", "--calibrator", tmp_path / "cal")
    said = "answer is of another group (language en) than the calibrator's (language de)"
    assert said in shown
    rows = table(tmp_path / "o.csv")
    made = annotator("m", CalibratorInUse(calibrator), schema)
    for own in ("de", "en"):
        if schema is None:
            found = [row["flags"] for row in rows if row["id"] == own]
            assert [ELSEWHERE in flags for flags in found] == [own == "en"]
            continue
        assert made is not None
        parts = made(answer, {"language": own})["parts"]
        for fields in (parts, [row for row in rows if row["document"] == own]):
            by_path = {field["path"]: field for field in fields}
            assert [by_path[path]["decision"] for path in ("/paid", "/total")] == ["accept", "check"]
            assert [said in by_path[path]["note"] for path in ("/paid", "/total")] == [own == "en"] * 2
    refusing = annotator("m", CalibratorInUse(put(tmp_path / "other", model="another", **origin)), SCHEMA)
    assert refusing is not None and {part["decision"] for part in refusing(answer, {})["parts"]} == {"check"}


def test_a_model_extracts_and_a_second_run_changes_nothing(folder: Path) -> None:
    documents = [
        {"id": "a", "prompt": "x", "response": '{"city": "Lima", "open": true}'},
        {"id": "b", "prompt": "x", "response": '{"city": "Oslo"}'},
    ]
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    schema = {"properties": {"city": {"type": "string"}, "open": {"type": "boolean"}}}
    (folder / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    asked = ("score", folder / "in.jsonl", "--model", "almanac", "--schema", folder / "schema.json", "--parts", "field")
    run(*asked, "-o", folder / "fields.csv")
    first = (folder / "fields.csv").read_bytes()
    found = {(row["document"], row["path"]): row for row in table(folder / "fields.csv")}
    assert set(found) == {("a", "/city"), ("a", "/open"), ("b", "/city"), ("b", "/open")}
    assert found["b", "/open"]["present"] == "false" and found["a", "/city"]["value"] == "Lima"
    assert found["a", "/city"]["model"] == "almanac"  # so that a calibrator of these fields knows whose they are
    [answer] = st.ScoredModel.from_pretrained().score(["x"], [documents[0]["response"]])
    parts = {part.path: part.confidence for part in answer.parts("field", schema=schema)}
    for path, confidence in parts.items():
        assert float(found["a", str(path)]["confidence"]) == pytest.approx(confidence, rel=1e-3)  # padded together
    run(*asked, "-o", folder / "fields.csv")
    assert (folder / "fields.csv").read_bytes() == first
    page = run("check", folder / "fields.jsonl", "-o", folder / "page.html")
    assert "2 answers" in page
    (folder / "other.csv").write_text("mine", encoding="utf-8")
    done = invoke([str(one) for one in (*asked, "-o", folder / "other.csv")])
    assert done.exit_code != 0 and (folder / "other.csv").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("content", "told"), [("[1]", "no JSON Schema"), ("{", r"schema\.json is not JSON: "), (None, "cannot be read")]
)
def test_what_is_no_schema_is_refused(tmp_path: Path, content: Any, told: str) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=told):
        read_schema(path)


def test_a_field_that_many_documents_lack_is_one_line_with_their_number(tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"d{i}", "response": WRONG}) for i in range(20)]
    (tmp_path / "replies.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    told = run("check", tmp_path / "replies.jsonl", "--schema", tmp_path / "schema.json", "-n", "30")
    assert told.count("/paid") == 1 and "/paid is missing in 20 documents" in told
    assert (
        "30 of 40 fields in 20 documents" not in told
    )  # those with a value are listed, up to as many as were asked for
    assert told.count("/total: lots") + told.count("/currency: CHF") == 30


def test_fields_are_written_in_the_shape_of_their_json(folder: Path) -> None:
    run("check", folder / "replies.jsonl", "--schema", folder / "schema.json", "-o", folder / "fields.json")
    written = {document["document"]: document for document in json.loads((folder / "fields.json").read_text())}
    confidence = written["torn"]["confidence"]
    assert set(confidence) == {"total", "paid", "currency"} and confidence["currency"] is None
    assert 0 < confidence["total"] < confidence["paid"] < 1
    assert "/total" in written["wrong"]["check"] and written["talk"]["confidence"] is None
    done = invoke(["check", str(folder / "replies.jsonl"), "-o", str(folder / "x.json")])
    assert done.exit_code != 0 and "--schema" in done.output and not (folder / "x.json").exists()
