"""The parts of `semtoken demo`; the whole runs where the built-in model is there."""

from __future__ import annotations

import math
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from semtoken import STC
from semtoken.almanac import Question, almanac_path, load_questions
from semtoken.cli import demo
from semtoken.metrics import auroc
from tests.cli.conftest import RunCommand, assert_told

needs_model = pytest.mark.skipif(
    not (almanac_path() / "model.safetensors").exists(), reason="the built-in model is not there"
)


def question(number: int, relation: str, exposure: int) -> Question:
    return Question(f"q{number}", f"Question {number}?", ("yes",), relation, exposure)


QUESTIONS = [
    question(i, relation, exposure)
    for i, (relation, exposure) in enumerate(
        [("city", 3), ("city", 500), ("colour", 0), ("colour", 9), ("city", 0), ("animal", 40), ("city", 0)]
    )
]


def test_shows_the_best_known_and_the_unknown_of_each_kind() -> None:
    assert [q.id for q in demo.well_known(QUESTIONS, 2)] == ["q1", "q5"]
    assert [q.id for q in demo.never_seen(QUESTIONS)] == ["q6", "q2"]


@pytest.mark.parametrize("count", [1, 3, 7, 100])
def test_takes_questions_at_even_distances(count: int) -> None:
    numbers = [int(q.id[1:]) for q in demo.spread(QUESTIONS, count)]
    assert len(numbers) == min(count, 7)
    gaps = {b - a for a, b in pairwise(numbers)}
    assert numbers[0] == 0 and (not gaps or max(gaps) - min(gaps) <= 1)


def test_the_comparison_is_that_of_the_metrics(model: str, clusters: str) -> None:
    stc = STC.from_pretrained(model, clusters=clusters)
    answered = demo.answer(stc, load_questions("dev")[:12])
    answered = [demo.Answered(a.question, a.result, correct=i % 3 > 0) for i, a in enumerate(answered)]
    comparison = demo.compare(answered)
    correct = [a.correct for a in answered]
    assert comparison.stc.value == pytest.approx(auroc([-a.result.log_score for a in answered], correct))
    assert comparison.probability.value == pytest.approx(auroc([-a.result.log_probability for a in answered], correct))
    assert comparison.difference.value == pytest.approx(comparison.stc.value - comparison.probability.value)
    assert comparison.accuracy == pytest.approx(8 / 12)


def test_says_so_when_nothing_can_be_compared(model: str, clusters: str) -> None:
    stc = STC.from_pretrained(model, clusters=clusters)
    shown = StringIO()
    comparison = demo.run(stc, load_questions("dev"), load_questions("dev")[:4], Console(file=shown, width=120))
    assert math.isnan(comparison.difference.value)
    assert "No comparison" in shown.getvalue() and "semtoken ask" in shown.getvalue()


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.1, 0.2, "STC is"), (-0.2, -0.1, "Sequence probability is"), (-0.1, 0.1, "Neither")]
)
def test_reports_whichever_is_better(low: float, high: float, verdict: str) -> None:
    from dataclasses import replace

    from semtoken.metrics import bootstrap, paired_difference

    a, b, correct = [3.0, 1, 2, 4], [1.0, 2, 3, 4], [1, 0, 1, 0]
    estimate = bootstrap("auroc", a, correct, n_resamples=10)
    difference = paired_difference("auroc", a, b, correct, n_resamples=10)
    comparison = demo.Comparison(estimate, estimate, replace(difference, value=low, low=low, high=high), 0.5)
    assert comparison.verdict.startswith(verdict)


@needs_model
def test_the_whole_demo(semtoken: RunCommand, tmp_path: Path) -> None:
    result = semtoken("demo", "--questions", 24, "--save-svg", tmp_path / "demo.svg")
    assert result.exit_code == 0, result.output
    assert "Semantic Token Clustering" in result.stdout and "sequence probability" in result.stdout
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


def test_a_picture_that_cannot_be_saved_is_told_first(semtoken: RunCommand, tmp_path: Path) -> None:
    assert_told(semtoken("demo", "--save-svg", tmp_path / "no" / "demo.svg"), "does not exist")
