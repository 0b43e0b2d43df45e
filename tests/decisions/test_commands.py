"""`semtoken decide` as people type it, and runs that are interrupted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from semtoken.cli.app import app
from semtoken.decisions import AnsweredQuestion, Predicate, Question, ReadingOptions
from semtoken.decisions.records import answer_values, read_decisions
from semtoken.decisions.running import DecisionJob
from semtoken.errors import InvalidInput
from tests.decisions.test_calibrating import world

ASKED = Predicate("Is it late?")


def lines(path: Path, values: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
    return path


def answers(path: Path, n: int, seed: int, sharpened: float = 1.0) -> Path:
    """What `decide run` writes, of a world of known chances."""
    found = []
    for i, one in enumerate(world(n, seed, sharpened)):
        answer = answer_values(AnsweredQuestion(ASKED, one.probabilities), ReadingOptions())
        found.append({"state": f"{i}", "labels": {"late": one.label == 0}, "answers": {"late": answer}})
    return lines(path, found)


def semtoken(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["decide", *map(str, words)], prog_name="semtoken")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_fit_audit_and_compare(tmp_path: Path) -> None:
    here, again = answers(tmp_path / "here.jsonl", 2000, 1), answers(tmp_path / "again.jsonl", 2000, 2)
    there = answers(tmp_path / "there.jsonl", 2000, 2, sharpened=4.0)
    code, shown, _ = semtoken("fit", here, "-o", tmp_path / "made", "--alpha", "0.2")
    assert (code, shown.count("With confidence 90 %, at most 20 %")) == (0, 2)
    code, shown, _ = semtoken("audit", tmp_path / "made", again)
    assert code == 0 and "does not hold" not in shown
    code, shown, _ = semtoken("audit", tmp_path / "made", there, "--json")
    verdicts = {one["side"]: one["verdict"] for one in map(json.loads, shown.splitlines())}
    assert verdicts == {"true": "does not hold", "false": "does not hold"}
    code, shown, _ = semtoken("compare", again, there)
    assert code == 0 and "the same choice in 2000 of 2000" in shown and "rank correlation 1.00" in shown
    turned = lines(tmp_path / "turned.jsonl", [json.loads(line) for line in reversed(there.read_text().splitlines())])
    code, _, said = semtoken("compare", again, turned)
    assert code == 1 and "not to the same states in one order" in " ".join(said.split())


def test_answers_known_within_bounds_are_compared_as_such(tmp_path: Path) -> None:
    here = answers(tmp_path / "here.jsonl", 50, 1)
    found = [json.loads(line) for line in here.read_text().splitlines()]
    for line in found[:10]:  # a server that left out No
        given = line["answers"]["late"]
        yes = given["probabilities"][0]
        given["bounds"] = [[yes - 0.05 * yes, yes], [1 - yes, 1 - yes + 0.05 * yes]]
    there = lines(tmp_path / "there.jsonl", found)
    code, shown, _ = semtoken("compare", here, there)
    lost = sum(0.05 * line["answers"]["late"]["probabilities"][0] for line in found[:10]) / 50
    said = " ".join(shown.split())
    assert code == 0 and "In 10 of 50" in said and f"anything from {-lost:+.3f} to +0.000" in said
    assert "did not list" not in semtoken("compare", here, here)[1]
    found[0]["answers"]["late"]["bounds"] = [[0.5, 0.4], [0, 1]]
    code, _, said = semtoken("compare", here, lines(there, found))
    assert code == 1 and "line 1" in said and "bounds" in said


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    good, target = answers(tmp_path / "good.jsonl", 5, 1), tmp_path / "made"
    for content in ([1], [[]], [{"answers": []}], [{"answers": {"q": 1}}], [{"answers": {}, "labels": [1]}], []):
        bad = lines(tmp_path / "bad.jsonl", content)  # type: ignore[arg-type]
        for words in (("fit", bad, "-o", target), ("compare", good, bad)):
            code, _, said = semtoken(*words)
            assert code == 1 and said.startswith("Error: ") and "Traceback" not in said, (content, said)
    code, _, said = semtoken("audit", target, good)
    assert code == 1 and "semtoken decide fit" in said and not target.exists()


class _Interrupted:
    """A model that knows its answers, and that somebody stops."""

    def __init__(self, after: int | None) -> None:
        self.left = after

    def __call__(
        self, state: Any, questions: Mapping[str, Question], options: ReadingOptions
    ) -> dict[str, AnsweredQuestion]:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left = None if self.left is None else self.left - 1
        return {name: AnsweredQuestion(one, (0.75, 0.25)) for name, one in questions.items()}


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    source = lines(tmp_path / "items.jsonl", [{"state": f"{i}"} for i in range(7)])
    whole = DecisionJob(source, tmp_path / "whole.jsonl", {"late": ASKED}, ReadingOptions())
    assert whole.run(_Interrupted(None)) == 7
    job = DecisionJob(source, tmp_path / "parts.jsonl", {"late": ASKED}, ReadingOptions())
    with pytest.raises(KeyboardInterrupt):
        job.run(_Interrupted(3))
    with job.target.open("a") as file:
        file.write('{"state": "3", "ans')  # killed while it wrote
    assert job.left() == 4
    assert job.run(_Interrupted(None)) == 4
    assert job.target.read_bytes() == whole.target.read_bytes()
    assert len(read_decisions(job.target)) == 7


@pytest.mark.parametrize(
    ("question", "options"),
    [(ASKED, ReadingOptions("words")), (ASKED, ReadingOptions(orders=2)), (Predicate("Is it lost?"), ReadingOptions())],
)
def test_a_run_does_not_go_on_with_something_else(tmp_path: Path, question: Question, options: ReadingOptions) -> None:
    source, target = lines(tmp_path / "items.jsonl", [{"state": f"{i}"} for i in range(4)]), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        DecisionJob(source, target, {"late": ASKED}, ReadingOptions()).run(_Interrupted(2))
    before = target.read_bytes()
    with pytest.raises(InvalidInput, match="line 1: the answer is to another"):
        DecisionJob(source, target, {"late": question}, options).run(_Interrupted(None))
    with pytest.raises(InvalidInput, match="line 1: the answer is to another"):
        DecisionJob(source, target, {"late": question}, options).check()
    assert target.read_bytes() == before
