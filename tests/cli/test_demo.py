"""The parts of `semtoken demo`; the whole runs where the built-in model is there."""

from __future__ import annotations

import math
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from semtoken import STC
from semtoken.cli import console, demo
from semtoken.methods.metrics import auroc
from semtoken.support.almanac import Question, almanac_path, load_questions
from tests.cli.conftest import RunCommand, assert_told

needs_model = pytest.mark.skipif(
    not (almanac_path() / "model.safetensors").exists(), reason="the built-in model is not there"
)


QUESTIONS = [Question(f"q{i}", f"Question {i}?", ("yes",), "city", i) for i in range(7)]


def test_the_shown_questions_are_there_in_their_order() -> None:
    shown = demo.demo_set(load_questions("dev"))
    assert [question.question for question in shown] == list(demo.SHOWN)


@pytest.mark.parametrize("count", [1, 3, 7, 100])
def test_takes_questions_at_even_distances(count: int) -> None:
    numbers = [int(q.id[1:]) for q in demo.spread(QUESTIONS, count)]
    assert len(numbers) == min(count, 7)
    gaps = {b - a for a, b in pairwise(numbers)}
    assert numbers[0] == 0 and (not gaps or max(gaps) - min(gaps) <= 1)


def test_the_comparison_is_that_of_the_metrics(model: str, clusters: str) -> None:
    stc = STC.from_pretrained(model, clusters=clusters)
    answered = demo.answer(stc, load_questions("dev")[:12])
    answered = [demo.MarkedAnswer(a.question, a.result, correct=i % 3 > 0) for i, a in enumerate(answered)]
    comparison = demo.compare(answered)
    correct = [a.correct for a in answered]
    values = {name: estimate.value for name, estimate in comparison.estimates.items()}
    assert values["default"] == pytest.approx(auroc([-a.result.log_score for a in answered], correct))
    assert values["probability"] == pytest.approx(auroc([-a.result.log_probability for a in answered], correct))
    prompts, ids = [a.question.prompt() for a in answered], [a.result.token_ids for a in answered]
    paper = STC.from_pretrained(model, clusters=clusters, preset="paper").score(prompts, ids)
    assert values["paper"] == pytest.approx(auroc([-one.log_score for one in paper], correct))
    for name in ("default", "paper"):
        assert comparison.differences[name].value == pytest.approx(values[name] - values["probability"])
    assert comparison.accuracy == pytest.approx(8 / 12)


def test_says_so_when_nothing_can_be_compared(model: str, clusters: str) -> None:
    stc = STC.from_pretrained(model, clusters=clusters)
    shown = StringIO()
    comparison = demo.run(stc, load_questions("dev")[:3], load_questions("dev")[:4], Console(file=shown, width=120))
    assert all(math.isnan(difference.value) for difference in comparison.differences.values())
    assert "no comparison" in shown.getvalue() and "semtoken ask" in shown.getvalue()


@pytest.mark.parametrize(("low", "high", "word"), [(0.1, 0.2, "better"), (-0.2, -0.1, "worse"), (-0.1, 0.1, "neither")])
def test_says_whichever_is_better(low: float, high: float, word: str) -> None:
    from dataclasses import replace

    from semtoken.methods.metrics import paired_difference

    difference = paired_difference("auroc", [3.0, 1, 2, 4], [1.0, 2, 3, 4], [1, 0, 1, 0], n_resamples=10)
    assert f"is {word}" in demo.verdict("It", replace(difference, value=low, low=low, high=high))


def test_a_real_demo_names_what_else_was_considered(model: str, clusters: str) -> None:
    stc = STC.from_pretrained(model, clusters=clusters)
    shown = StringIO()
    questions = {"What is the capital of Peru?": "no such place"}
    [answer] = demo.demo_real(stc, "tiny", Console(file=shown, width=2000), questions)
    assert "wrong: no such place" in shown.getvalue()
    disputes = stc.disputed("Question: What is the capital of Peru?\nAnswer:", answer, max_steps=demo.MAX_STEPS)
    told = shown.getvalue()
    assert [d for d in map(console.dispute_line, disputes[:1]) if d not in told] == []


@needs_model
def test_the_whole_demo(semtoken: RunCommand, tmp_path: Path) -> None:
    result = semtoken("demo", "--questions", 24, "--save-svg", tmp_path / "demo.svg")
    assert result.exit_code == 0, result.output
    assert "preset paper" in result.stdout and "sequence probability" in result.stdout
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


def test_a_picture_that_cannot_be_saved_is_told_first(semtoken: RunCommand, tmp_path: Path) -> None:
    assert_told(semtoken("demo", "--save-svg", tmp_path / "no" / "demo.svg"), "does not exist")
