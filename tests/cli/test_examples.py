"""The scripts in `examples/` run, and print what the library computes."""

from __future__ import annotations

import html
import runpy
import sys
from pathlib import Path

import pytest

from semtoken import ScoredModel, TokenClusters
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import read_decisions
from semtoken.support.text import with_bounds

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> None:
    script = str(EXAMPLES / name)
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(script, run_name="__main__")


def test_own_generate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: str, clusters: str
) -> None:
    run_example(monkeypatch, "own_generate.py", model, clusters)
    questions = ("What is the capital of Japan?", "What is the chemical symbol of gold?")
    prompts = [f"Answer these questions:\n\nQuestion:\n{question}\nAnswer:\n" for question in questions]
    expected = ScoredModel.from_pretrained(model, clusters=clusters).generate(prompts, 6)
    assert capsys.readouterr().out.splitlines() == [f"{e.text!r}  {e.summary}" for e in expected]


def test_score_text(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    model: str,
    clusters: str,
) -> None:
    run_example(monkeypatch, "score_text.py", model, clusters, tmp_path / "page.html")
    prompt = "Answer these questions:\n\nQuestion:\nWhat is the capital of Japan?\nAnswer:\n"
    [expected] = ScoredModel.from_pretrained(model, clusters=clusters).score(prompt, "Kyoto\n")
    shown = with_bounds(expected.confidence, expected.confidence_interval, digits=2)
    assert f"confidence {shown}" in capsys.readouterr().out
    assert f"confidence {shown}" in html.unescape((tmp_path / "page.html").read_text())


def test_make_clusters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str
) -> None:
    run_example(monkeypatch, "make_clusters.py", model, 60, tmp_path / "made")
    assert "saved and loaded: True" in capsys.readouterr().out
    assert TokenClusters.from_pretrained(tmp_path / "made").n_clusters == 60


@pytest.mark.slow
def test_small_model_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    run_example(monkeypatch, "small_model_first.py")
    statement, *lines = capsys.readouterr().out.splitlines()
    assert statement.startswith("With confidence 90%, at most 30% of the answers that the two models give are wrong")
    decided = [line.split()[:2] for line in lines]
    assert len(decided) == 8 and ["first", "answer"] in decided
    assert ["first", "abstain"] not in decided  # then the second one was asked


def test_gate_of_recorded_calls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_example(monkeypatch, "gate_a_tool_call.py", "--replies", EXAMPLES / "gate" / "replies.jsonl")
    shown = capsys.readouterr().out
    page = (EXAMPLES.parent / "docs" / "gate-a-tool-call.md").read_text("utf-8")
    assert shown.strip() in page
    assert shown.count("ask a person") == 2 and "run it" not in shown


def test_gate_opens_for_the_call_that_a_guarantee_covers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The commands of the page on made-up answers, and what they print there."""
    monkeypatch.syspath_prepend(EXAMPLES)
    run_example(monkeypatch, "gate/made_up.py", tmp_path)
    records = read_decisions(tmp_path / "answers.jsonl")
    DecisionCalibrator.fit(records, alpha=0.05).save(tmp_path / "may-run")
    given = ("--replies", tmp_path / "replies.jsonl", "--calibrator", tmp_path / "may-run")
    run_example(monkeypatch, "gate_a_tool_call.py", *given)
    shown = capsys.readouterr().out
    assert shown.strip() in (EXAMPLES.parent / "docs" / "gate-a-tool-call.md").read_text("utf-8")
    assert [line[5:].split(":")[0] for line in shown.splitlines() if line.startswith("  ->")] == [
        "run it",
        "ask a person",
        "ask a person",
    ]
    run_example(monkeypatch, "gate_a_tool_call.py", *given, "--least", "0.99")
    assert "run it" not in capsys.readouterr().out


@pytest.mark.slow
def test_gate_with_a_model_that_writes_no_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example(monkeypatch, "gate_a_tool_call.py", "--model", "almanac")
    assert capsys.readouterr().out.count("  no call\n") == 2
