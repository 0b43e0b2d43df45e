"""examples/learn_a_number.py from answers with states to a calibrator, against the experiment's own implementation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken import Calibrator
from semtoken.guarantees.answer_records import read_answers
from semtoken.guarantees.labels import log_confidences
from semtoken.support.almanac import load_questions
from tests.cli.run import invoke
from tests.json_lines import read_lines, write_lines

pytest.importorskip("sklearn")
ROOT = Path(__file__).parents[2]
LABELED = 170


def run(*given: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "examples" / "learn_a_number.py", *given]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Answers of the embedded model with states, and made-up labels that the states know."""
    folder = tmp_path_factory.mktemp("learned")
    questions = [{"question": one.question} for one in load_questions("dev")[: LABELED + 40]]
    source, target = write_lines(folder / "questions.jsonl", questions), folder / "answers.jsonl"
    asked = [str(source), "-o", str(target), "--scoring.states=true", "--model.batch-size", "32"]
    assert invoke(["score", *asked]).exit_code == 0
    states = np.stack([one.state.values for one in read_answers(target) if one.state is not None])
    centered = (states - states.mean(axis=0)) / states.std(axis=0)
    known = centered @ np.linalg.svd(centered, full_matrices=False)[2][0]
    right = known > np.median(known)
    return [one | {"correct": bool(label)} for one, label in zip(read_lines(target), right, strict=True)]


def test_what_was_learned_is_calibrated_and_scores_later_answers(answers: list[dict[str, Any]], tmp_path: Path) -> None:
    source = write_lines(tmp_path / "labeled.jsonl", answers[:LABELED])
    done = run("learn", source, tmp_path / "learned.jsonl")
    assert done.returncode == 0, done.stderr
    assert "ranks answers that it did not see better than the confidence" in done.stdout
    given = ["calibrate", tmp_path / "learned.jsonl", "--by", "learned", "-o", tmp_path / "made"]
    assert (made := invoke(list(map(str, given)))).exit_code == 0, made.output
    later = write_lines(tmp_path / "later.jsonl", answers[LABELED:])
    done = run("apply", tmp_path / "learned.npz", later, tmp_path / "scored.jsonl")
    assert done.returncode == 0, done.stderr
    calibrator = Calibrator.load(tmp_path / "made")
    probabilities = calibrator.predict_proba(read_answers(tmp_path / "scored.jsonl"))
    right = np.array([one["correct"] for one in answers[LABELED:]])
    assert probabilities[right].mean() > probabilities[~right].mean() + 0.2


def test_it_is_the_recipe_of_the_experiment(answers: list[dict[str, Any]], tmp_path: Path) -> None:
    """The risks of answers that were not seen rank as those of research/experiments/learned do."""
    from research.experiments.learned import learning

    source = write_lines(tmp_path / "labeled.jsonl", answers[:LABELED])
    assert run("learn", source, tmp_path / "learned.jsonl").returncode == 0
    records = read_answers(source)
    states = np.stack([one.state.values for one in records if one.state is not None]).astype(np.float64)
    surprises = -log_confidences(records, "confidence")
    correct = np.array([float(bool(one.correct)) for one in records])
    expected = learning.cross_fitted(learning.Readings(surprises[:, None], states), correct).risk
    own = [one["score_learned"] for one in read_lines(tmp_path / "learned.jsonl")]
    assert np.corrcoef(own, expected)[0, 1] > 0.99


def test_shuffled_labels_keep_the_confidence(answers: list[dict[str, Any]], tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(LABELED)
    shuffled = [one | {"correct": answers[i]["correct"]} for one, i in zip(answers[:LABELED], order, strict=True)]
    done = run("learn", write_lines(tmp_path / "shuffled.jsonl", shuffled), tmp_path / "learned.jsonl")
    assert done.returncode == 1 and "Kept the confidence: your labels do not show a gain" in done.stderr
    assert not (tmp_path / "learned.jsonl").exists() and not (tmp_path / "learned.npz").exists()


@pytest.mark.parametrize("change", ["no states", "another model", "few"])
def test_what_cannot_be_learned_from_is_refused(answers: list[dict[str, Any]], tmp_path: Path, change: str) -> None:
    records, said = answers[:LABELED], "It takes 150 labels"
    if change == "no states":
        records, said = (
            [{k: v for k, v in one.items() if not k.startswith("state")} for one in records],
            "scoring.states",
        )
    elif change == "another model":
        records, said = [records[0] | {"state_weights": "other"}, *records[1:]], "different models"
    else:
        records = records[:100]
    done = run("learn", write_lines(tmp_path / "in.jsonl", records), tmp_path / "learned.jsonl")
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
