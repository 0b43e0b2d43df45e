"""Ranked replies as files: what each ending writes, read by other readers."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from semtoken.errors import InvalidInputError
from semtoken.replies.checking import RankedReplies, rank_replies
from semtoken.web.page.ranked import ENDINGS, title_of, write_ranked
from tests.replies.test_fields import SCHEMA, TALK, TORN, WRONG

EXAMPLES = Path(__file__).parents[2] / "examples" / "replies"


@pytest.fixture(scope="module")
def answers() -> RankedReplies:
    return rank_replies(EXAMPLES)


@pytest.fixture
def documents(tmp_path: Path) -> RankedReplies:
    """One document with numbers, one without a score, and one that is no JSON."""
    saved = {"torn": TORN, "bare": {"choices": [{"message": {"content": "{}"}}]}, "talk": TALK, "wrong": WRONG}
    lines = [json.dumps({"id": name, "response": reply}) + "\n" for name, reply in saved.items()]
    (tmp_path / "saved.jsonl").write_text("".join(lines), "utf-8")
    return rank_replies(tmp_path / "saved.jsonl", schema=SCHEMA)


def page_of(path: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_tables_have_every_answer_and_markdown_the_first_ones(answers: RankedReplies, tmp_path: Path) -> None:
    for ending in (".csv", ".jsonl", ".md", ".html"):
        assert write_ranked(answers, tmp_path / f"out{ending}", title="May", limit=2) == 0
    ids = [one.id for one in answers]
    assert len(ids) == len(list(EXAMPLES.iterdir()))
    rows = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8", newline="")))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [row["id"] for row in rows] == [line["id"] for line in lines] == ids
    sure = [float(row["confidence"]) for row in rows]
    assert sure == sorted(sure) == pytest.approx([one.confidence for one in answers])
    markdown = (tmp_path / "out.md").read_text("utf-8")
    assert f"# The 2 most doubtful of {len(ids)} answers" in markdown
    assert len(re.findall(r"^\| \d+ \|", markdown, re.MULTILINE)) == 2
    [shown] = page_of(tmp_path / "out.html")["files"]
    assert shown["name"] == "May" and len(shown["rows"]) == len(ids)


def test_fields_have_a_row_each_and_keep_the_shape_of_their_document(documents: RankedReplies, tmp_path: Path) -> None:
    for ending in (".csv", ".json", ".md"):
        write_ranked(documents, tmp_path / f"out{ending}", limit=1, fields=True)
    rows = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8", newline="")))
    of_torn = {row["path"]: row["value"] for row in rows if row["document"] == "torn" and row["present"] == "true"}
    assert of_torn == {"/total": "5", "/paid": "true"}
    assert [row["document"] for row in rows if row["error"]] == ["bare"] == [rows[-1]["document"]]
    nested = {one["document"]: one for one in json.loads((tmp_path / "out.json").read_text("utf-8"))}
    assert set(nested) == {"torn", "wrong", "talk", "bare"} and nested["bare"]["error"]
    assert {name for name, sure in nested["torn"]["confidence"].items() if sure is not None} == {"total", "paid"}
    markdown = (tmp_path / "out.md").read_text("utf-8")
    assert len(re.findall(r"^\| \d+ \|", markdown, re.MULTILINE)) == 1 and "## Not scored" in markdown


@pytest.mark.parametrize("name", ["out.txt", "out", "out.json"])
def test_other_endings_are_rejected_and_write_nothing(answers: RankedReplies, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"{name}: "):
        write_ranked(answers, tmp_path / name)
    assert not list(tmp_path.iterdir()) and ".json" in ENDINGS


def test_images_that_cannot_be_read_are_counted(answers: RankedReplies, tmp_path: Path) -> None:
    url = {"type": "image_url", "image_url": {"url": "missing.png"}}
    asked = [{"id": one.id, "messages": [{"role": "user", "content": [url]}]} for one in answers[:2]]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps(one) + "\n" for one in asked), "utf-8")
    assert write_ranked(answers, tmp_path / "out.html", questions=questions) == 2


def test_the_title_is_the_name_of_the_first_source() -> None:
    assert title_of(["a/b.jsonl"]) == "b.jsonl" and title_of(["-", "x"]) == "standard input and 1 more"
    assert title_of(["a/b.jsonl", "c"]) == "b.jsonl and 1 more"
