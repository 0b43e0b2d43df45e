"""Judges without a network: by words, by similarity, imported; agreement; settings; the command."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.bench.judges import AnswerToJudge, Tally, Verdict, agreement, correctness, label_records, tally
from semtoken.bench.judges.kinds import (
    ContainsJudge,
    ExactJudge,
    ImportedJudge,
    RougeJudge,
    SimilarityJudge,
    judge_from,
    read_answers,
    write_verdicts,
)
from semtoken.bench.judges.llm import LLMJudge
from semtoken.bench.settings import RunSettings, check_settings
from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import answer_record, are_scored
from semtoken.support.almanac import Question
from tests.cli.run import invoke
from tests.json_lines import read_lines, write_lines
from tests.rows import each


def item(answer: str, *accepted: str, id: str = "1") -> AnswerToJudge:
    return AnswerToJudge(Question(id, "who is it", accepted), answer)


def said(verdicts: Sequence[Verdict]) -> list[float]:
    return list(correctness(verdicts))


def test_exact_and_contains() -> None:
    items = [
        item(" The ANN.\n", "Bob", "ann"),
        item("I think it is Ann, of course", "Ann"),
        item("a party", "art"),
        item("", "Ann"),
        item("the", "The", "a"),
        item("New  York!", "new york"),
    ]
    seen: list[int] = []
    assert said(ExactJudge().judge(items, seen.append)) == [1, 0, 0, 0, 0, 1]
    assert seen == [1, 2, 3, 4, 5, 6]
    assert said(ContainsJudge().judge(items)) == [1, 1, 0, 0, 0, 1]


def rouge_l(answer: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest common subsequence, by the definition."""
    table = np.zeros((len(answer) + 1, len(reference) + 1))
    for i, a in enumerate(answer, 1):
        for j, b in enumerate(reference, 1):
            table[i, j] = table[i - 1, j - 1] + 1 if a == b else max(table[i - 1, j], table[i, j - 1])
    common = table[-1, -1]
    return 0.0 if not common else 2 * common / (len(answer) + len(reference))


WORDS = st.lists(st.sampled_from(["ann", "bob", "x1", "new", "york"]), max_size=6)


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_rouge_is_the_best_f1_of_the_longest_common_subsequence(answer: list[str], accepted: list[list[str]]) -> None:
    [verdict] = RougeJudge().judge([item(" ".join(answer).title(), *(" ".join(words) for words in accepted))])
    expected = max(rouge_l(answer, words) for words in accepted)
    assert verdict.quality == pytest.approx(expected)
    assert verdict.correct == (expected > 0.3)


def test_a_quality_of_the_threshold_is_not_above_it() -> None:
    [verdict] = RougeJudge(threshold=0.5).judge([item("ann b c", "ann")])
    assert verdict == Verdict(0.0, 0.5)


def test_similarity_is_the_largest_one_of_the_model() -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    import torch

    from semtoken.support.almanac import almanac_sts_path

    items = [item("Mexico\n", "Canada", "Mexico"), item("a cat", "the euro"), item(" ", "Mexico", "")]
    seen: list[int] = []
    one = SimilarityJudge(model="almanac", threshold=0.6)
    verdicts = one.judge(items, seen.append)
    encoder = sentence_transformers.CrossEncoder(str(almanac_sts_path()))
    pairs = [("Mexico", "Canada"), ("Mexico", "Mexico"), ("a cat", "the euro")]
    a, b, c = encoder.predict(pairs, activation_fn=torch.nn.Sigmoid()).tolist()
    assert [verdict.quality for verdict in verdicts] == pytest.approx([max(a, b), c, 0.0], abs=1e-5)
    assert said(verdicts) == [float(max(a, b) > 0.6), float(c > 0.6), 0.0] == [1.0, 0.0, 0.0]
    assert seen == [3] and one.judge([]) == []
    assert one.settings == {"kind": "similarity", "model": "almanac", "threshold": 0.6}
    assert SimilarityJudge().settings["model"] == "cross-encoder/stsb-roberta-large"


# --- imported -------------------------------------------------------------------------------------------------------

THREE = [item("Ann", "Ann", id="a"), item("Bob\n", "Ann", id="b"), item("", "Ann", id="c")]


def imported(folder: Path, text: str, name: str = "v.csv") -> ImportedJudge:
    """A judge that reads a file with this text."""
    (folder / name).write_text(text, encoding="utf-8")
    return ImportedJudge(path=str(folder / name))


def test_a_file_that_is_missing_is_reported_as_such(tmp_path: Path) -> None:
    for name in ("people.csv", "people.jsonl"):
        missing = ImportedJudge(path=str(tmp_path / name))
        for ask in (partial(missing.check, ["1"]), partial(getattr, missing, "settings")):
            with pytest.raises(InvalidInputError, match=r"No such file or directory") as caught:
                ask()
            assert "CSV" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v.jsonl", '{"id": "b", "correct": 0}\n{"id": "a", "correct": true, "more": 1}\n'),
        ("v.jsonl", '{"id": "a", "correct": 1.0}\n{"id": "b", "correct": false}\n{"id": "c", "correct": null}\n'),
        ("v.csv", "id,correct\nb,0\na,True\nc,\n"),
        ("v.csv", '\ufeffid,answer,correct\r\nb,"Bob\n",0.0\r\na,Ann,1\r\nc,,nan\r\n'),
    ],
)
def test_verdicts_from_elsewhere(tmp_path: Path, name: str, text: str) -> None:
    seen: list[int] = []
    found = imported(tmp_path, text, name).judge(THREE, seen.append)
    np.testing.assert_array_equal(said(found), [1, 0, math.nan])
    assert seen == [3]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("v.csv", "id,correct\na,1\nz,1\n", "line 3: there is no question with the id 'z' among the 3 judged"),
        ("v.csv", "id,correct\na,1\na,1\n", "line 3: the id 'a' stands more than once"),
        ("v.csv", "id,correct\na,0.5\n", "line 2: correct must be 1 or 0 .* got '0.5'"),
        ("v.csv", "id,right\na,1\n", "line 2: the column 'correct' is missing; there are id, right"),
        ("v.csv", 'id,correct\na,"1\n', "line 2: not CSV"),
        ("v.jsonl", '{"id": "a", "correct": "maybe"}', "line 1: correct must be 1 or 0"),
        ("v.jsonl", '{"id": "b", "correct": 1, "answer": "Rob"}', "of the answer 'Rob', but the answer here is 'Bob'"),
        ("v.jsonl", "nonsense", "line 1"),
    ],
)
def test_verdicts_that_cannot_be_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    one = imported(tmp_path, text, name)
    with pytest.raises(InvalidInputError, match=message):
        one.check(item.question.id for item in THREE)
        one.judge(THREE)


def test_a_file_may_be_judged_in_parts_and_hold_more_if_that_is_said(tmp_path: Path) -> None:
    settings = imported(tmp_path, "id,correct\na,1\nb,0\nz,1\n").model_dump()
    with pytest.raises(InvalidInputError, match="no question with the id 'z'"):
        judge_from(settings, ids="abc")
    one = judge_from(settings | {"others": "ignore"}, ids="abc")
    assert said(one.judge(THREE[:1])) == [1] and said(one.judge(THREE[1:2])) == [0]


def test_a_changed_file_of_verdicts_has_other_settings(tmp_path: Path) -> None:
    one, other, again = (imported(tmp_path, f"id,correct\na,{verdict}\n").settings for verdict in (0, 1, 0))
    assert one == again != other


# --- agreement ------------------------------------------------------------------------------------------------------

VERDICTS = st.lists(
    st.tuples(*[st.sampled_from([0.0, 1.0, 1.0, math.nan])] * 2),
    max_size=30,
)


@given(VERDICTS)
def test_agreement_and_kappa_by_hand(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    [found] = agreement({"x": first, "y": second})
    both = [(a, b) for a, b in pairs if not math.isnan(a) and not math.isnan(b)]
    n = len(both)
    assert (found.first, found.second, found.n) == ("x", "y", n)
    assert (found.both_correct, found.both_incorrect) == (both.count((1, 1)), both.count((0, 0)))
    assert (found.only_first, found.only_second) == (both.count((1, 0)), both.count((0, 1)))
    assert (found.first_missing, found.second_missing) == (sum(map(math.isnan, first)), sum(map(math.isnan, second)))
    if not n:
        assert math.isnan(found.agreement) and math.isnan(found.kappa)
        return
    observed = sum(a == b for a, b in both) / n
    p, q = sum(a for a, _ in both) / n, sum(b for _, b in both) / n
    chance = p * q + (1 - p) * (1 - q)
    assert found.agreement == pytest.approx(observed)
    if chance == 1:
        assert math.isnan(found.kappa)
    else:
        assert found.kappa == pytest.approx((observed - chance) / (1 - chance))


def test_every_two_judges_are_compared() -> None:
    found = agreement({"a": [1, 0, 1], "b": [1, 0, 1], "c": [0, 1, 0]})
    assert [(pair.first, pair.second, pair.kappa) for pair in found] == [
        ("a", "b", 1.0),
        ("a", "c", pytest.approx(-0.8)),
        ("b", "c", pytest.approx(-0.8)),
    ]
    assert agreement({"a": [1, 0]}) == []
    with pytest.raises(InvalidInputError, match="judgments of b have shape"):
        agreement({"a": [1, 0], "b": [1]})
    with pytest.raises(InvalidInputError, match="judgments of b must be a list of 1, 0 and NaN"):
        agreement({"a": [1, 0], "b": [1, 0.5]})


def test_a_tally() -> None:
    assert tally([1, 0, math.nan, 1]) == Tally(2, 1, 1)
    assert tally([1, 0, math.nan, 1]).accuracy == pytest.approx(2 / 3)
    assert math.isnan(tally([math.nan]).accuracy)


# --- settings -------------------------------------------------------------------------------------------------------


def test_judges_from_settings(tmp_path: Path) -> None:
    assert judge_from("exact") == ExactJudge()
    assert judge_from({"kind": "rouge", "threshold": 0.5, "name": "strict"}) == RougeJudge(threshold=0.5, name="strict")
    assert judge_from({"kind": "similarity", "model": "almanac"}) == SimilarityJudge(model="almanac")
    path = str(tmp_path / "{model}-{dataset}.csv")
    read = judge_from({"kind": "imported", "path": path}, model="m", dataset="NQ")
    assert read == ImportedJudge(path=str(tmp_path / "m-NQ.csv"))
    one = judge_from({"kind": "llm", "base_url": "http://localhost:1/v1", "concurrency": 2, "requests_per_minute": 500})
    assert isinstance(one, LLMJudge)
    assert (one.model, one.name, one.key_env) == ("gpt-4.1-2025-04-14", "llm", "OPENAI_API_KEY")
    assert (one.concurrency, one.requests_per_minute) == (2, 500)


def test_a_name_that_was_not_given_is_not_written_and_read_back_as_the_kind() -> None:
    given = {"models": ["almanac"], "datasets": ["almanac"], "judges": ["exact", {"kind": "rouge", "name": "strict"}]}
    written = check_settings(given, "here").model_dump(mode="json")
    assert written["judges"] == [
        {"name": None, "kind": "exact"},
        {"name": "strict", "kind": "rouge", "threshold": 0.3},
    ]
    read = RunSettings.model_validate(written)
    assert [judge.name for judge in read.judges] == ["exact", "strict"] and read.primary_judge == "exact"


@each(
    ("settings", "message"),
    [
        ("nope", "There is no judge 'nope'; there are exact, contains, rouge, similarity, llm, imported"),
        ({"threshold": 1}, "There is no judge None"),
        ({"kind": "rouge", "treshold": 0.5}, r"rouge\.treshold: Extra inputs are not permitted"),
        ({"kind": "rouge", "threshold": 2}, r"rouge\.threshold: Input should be less than or equal to 1"),
        ({"kind": "llm", "concurrency": 0}, r"llm\.concurrency"),
        ({"kind": "llm", "api_key": "sk-1"}, r"llm\.api_key: Extra inputs"),
        ({"kind": "imported"}, r"imported\.path: Field required"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        judge_from(settings)
    assert "sk-1" not in str(caught.value)


def test_speed_and_folders_are_no_part_of_what_decides_verdicts(tmp_path: Path) -> None:
    base = {"kind": "llm", "base_url": "http://localhost:1/v1"}
    faster = {"concurrency": 99, "requests_per_minute": 1, "timeout": 5, "cache": str(tmp_path), "key_env": "K"}
    assert judge_from(base).settings == judge_from(base | faster).settings
    assert json.loads(json.dumps(dict(judge_from(base).settings))) == judge_from(base).settings


# --- files and the command ------------------------------------------------------------------------------------------


ROWS = (
    {"id": "a", "question": "who?", "answers": ["Ann"], "answer": "Ann\n"},
    {"id": "b", "question": "who?", "answers": "Ann", "answer": "it is Ann"},
    {"id": "c", "question": "who?", "answers": ["Ann"], "answer": ""},
)


def asked(row: int) -> dict[str, Any]:
    """The fields of a row about its question."""
    return {name: ROWS[row][name] for name in ("id", "question", "answers")}


def run(*arguments: Any) -> Any:
    return invoke(["bench", "judge", *arguments])


def test_an_address_that_cannot_be_used_is_refused_before_other_judges_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExactJudge, "_verdict", lambda judge, item: pytest.fail("An answer was judged."))
    result = run(write_lines(tmp_path / "in.jsonl", ROWS), "-j", "exact", "--base-url", "localhost:8000")
    assert result.exit_code == 1 and "address of the endpoint" in result.output


def test_the_command_judges_writes_and_compares(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", ROWS)
    people = tmp_path / "people.csv"
    people.write_text("id,right\na,1\nb,1\n")
    by_people = json.dumps({"kind": "imported", "path": str(people), "column": "right"})
    result = run(source, "-j", "exact", "-j", "contains", "-j", by_people)
    assert result.exit_code == 0, result.output
    assert read_lines(tmp_path / "in.judged.jsonl") == [
        {**asked(0), "response": "Ann\n", "correct": 1, "exact": 1, "contains": 1, "imported": 1},
        {**asked(1), "response": "it is Ann", "correct": 0, "exact": 0, "contains": 1, "imported": 1},
        {**asked(2), "response": "", "correct": 0, "exact": 0, "contains": 0, "imported": None},
    ]
    lines = [line.split() for line in result.output.splitlines()]
    assert ["exact", "1", "2", "0", "33.3%"] in lines and ["imported", "2", "0", "1", "100.0%"] in lines
    assert ["exact", "contains", "1", "0", "1", "1", "66.7%", "0.400"] in lines
    assert ["contains", "imported", "2", "0", "0", "0", "100.0%", "nan"] in lines


def test_what_the_command_writes_can_be_imported_and_judged_again(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{**row, "response": row["answer"], "answer": "Eve"} for row in ROWS])
    again = '{"kind": "contains", "name": "strict"}'
    for target in (tmp_path / "out.csv", tmp_path / "out.jsonl"):
        rouge = '{"kind": "rouge", "threshold": 0.9, "name": "strict"}'
        assert run(source, "-j", rouge, "-o", target).exit_code == 0
        items = read_answers(source)
        assert said(ImportedJudge(path=str(target), column="strict").judge(items)) == [1, 0, 0]
        assert run(target, "-j", again, "-o", tmp_path / "again.jsonl", "--force").exit_code == 0
        found = read_lines(tmp_path / "again.jsonl")
        assert [row["strict"] for row in found] == [1, 1, 0], "the newer verdicts take the place of the older ones"
        assert [row["answer"] for row in found] == ["Eve"] * 3, "another field than the one that was judged"
    rows = list(csv.DictReader((tmp_path / "out.csv").open(newline="")))
    assert [float(row["strict_quality"]) for row in rows] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-j", "exat"], "There is no judge 'exat'"),
        (["-j", "{nope"], "is no JSON"),
        (["-j", "exact", "-j", '{"kind": "rouge", "name": "exact"}'], "Two judges have the name 'exact'"),
        (["-j", '{"kind": "exact", "name": "question"}'], "The answers have a field 'question'"),
        (["-j", '{"kind": "exact", "name": "correct"}'], "The name 'correct' is reserved"),
        (["-j", '{"kind": "exact", "name": "my"}'], "The answers have a field 'my_quality', which the judge 'my'"),
        (["-j", "exact", "-j", '{"kind": "rouge", "name": "exact_reply"}'], "would write a column 'exact_reply'"),
        (["-o", "out.txt"], "must end in .jsonl, .csv or .parquet"),
        (["-o", "in.jsonl"], "is the input"),
        (["-o", "there.csv"], "there.csv exists"),
        (["-o", "folder.csv", "--force"], "folder.csv is a folder; give the name of a file"),
        (["-j", '{"kind": "rouge", "threshold": 7}'], "less than or equal to 1"),
        (["--imported", "none.csv"], "cannot be read"),
    ],
)
def test_the_command_refuses_and_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write_lines(Path("in.jsonl"), [{**row, "my_quality": 0.5} for row in ROWS])
    Path("there.csv").write_text("mine")
    Path("folder.csv").mkdir()
    result = run(source, *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ") and message in result.stderr and "Traceback" not in result.output
    assert {path.name for path in Path().iterdir()} == {"in.jsonl", "there.csv", "folder.csv"}
    assert Path("there.csv").read_text() == "mine" and len(read_answers(source)) == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "d", "question": "who?", "answers": ["Ann"]}, "line 4: the answer to judge must be a text"),
        ({**ROWS[0]}, "line 4: the id 'a' stands more than once"),
        (
            {"id": "d", "question": "who?", "answers": ["Ann"], "answer": "\ud800"},
            "line 4: a text holds half a character",
        ),
    ],
)
def test_answers_that_cannot_be_judged_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_answers(write_lines(tmp_path / "in.jsonl", [*ROWS, row]))


@pytest.mark.parametrize("ending", ["csv", "CSV"])
def test_an_empty_answer_in_a_table_is_judged_and_is_known_to_be_scored(tmp_path: Path, ending: str) -> None:
    (path := tmp_path / f"in.{ending}").write_text("question,answers,response,sequence_uncertainty\nwho?,Ann,,0.5\n")
    assert [item.answer for item in read_answers(path)] == [""]
    assert are_scored(path)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "NDJSON"])
def test_lines_that_could_not_be_scored_are_not_judged(tmp_path: Path, ending: str) -> None:
    prompts: list[dict[str, Any]] = [
        {"prompt": "who?", "response": "Ann"},
        {"prompt": 17},
        {"prompt": "who?", "response": "Bob"},
    ]
    source = write_lines(tmp_path / "in.jsonl", [{"answers": ["Ann"], **prompt} for prompt in prompts])
    scored, judged = tmp_path / f"scored.{ending}", tmp_path / "judged.jsonl"
    assert invoke(["score", source, "-o", scored]).exit_code == 0
    assert run(scored, "-o", judged).exit_code == 0
    assert [(line["response"], line["correct"]) for line in read_lines(judged)] == [("Ann", 1), ("Bob", 0)]


def test_a_file_without_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="holds no answer"):
        read_answers(write_lines(tmp_path / "empty.jsonl", []))


def test_a_failed_write_keeps_the_former_file(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("before")
    with pytest.raises(ValueError, match="half a character"):
        write_verdicts(target, [item("\ud800", "a")], {"exact": [Verdict(1.0)]})
    assert target.read_text() == "before" and list(tmp_path.iterdir()) == [target]


class _Undecided:
    """A judge that has no usable verdict on texts with a question mark, and calls all others right."""

    name = "undecided"
    settings: Mapping[str, Any] = {}

    def judge(self, items: Sequence[AnswerToJudge], on_judged: object = None) -> list[Verdict]:
        return [Verdict(math.nan if "?" in one.answer else 1.0) for one in items]


def test_answers_are_labeled_by_a_judge_where_they_have_accepted_ones_and_no_label() -> None:
    given = [
        ("Oslo", ["Oslo"], None),
        ("Bergen", ["Oslo"], None),
        ("Oslo?", ["Oslo"], None),
        ("Oslo", [], None),
        ("Oslo", ["Oslo"], False),
    ]
    records = [
        answer_record(f"line {i}", {"question": "Capital?", "text": text, "answers": accepted, "correct": label})
        for i, (text, accepted, label) in enumerate(given)
    ]
    assert [one.correct for one in label_records(records, ExactJudge())] == [True, False, True, None, False]
    labeled = label_records(records, _Undecided())
    assert [one.correct for one in labeled] == [True, True, None, None, False]
    assert [one.where for one in labeled] == [one.where for one in records]
