"""From answers with hidden states to a learned number, and back to answers: the commands one after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from semtoken.almanac import load_questions
from semtoken.calibration import Calibrator
from semtoken.calibration.labels import read_answers
from semtoken.cli.app import app
from tests.cli.conftest import RunCommand, assert_told

pytest.importorskip("sklearn")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers with states, and made-up labels that the states know."""
    folder = tmp_path_factory.mktemp("learn")
    questions = [{"question": one.question} for one in load_questions("dev")[:170]]
    source = written(folder / "questions.jsonl", questions)
    answers = folder / "answers.jsonl"
    asked = [str(source), "-o", str(answers), "--questions", "--states", "--batch-size", "32"]
    assert CliRunner().invoke(app, ["score", *asked]).exit_code == 0
    records = lines(answers)
    states = np.stack([one.state.values for one in read_answers(answers) if one.state is not None])
    assert len(states) == 170
    centred = (states - states.mean(axis=0)) / states.std(axis=0)
    known = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    right = known > np.median(known)
    return written(
        folder / "labelled.jsonl", [one | {"correct": bool(r)} for one, r in zip(records, right, strict=True)]
    )


def test_what_was_learned_scores_later_answers_and_watches_their_states(
    semtoken: RunCommand, labelled: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    done = semtoken("calibrate", labelled, "-o", made, "--learn", "--alpha", "0.3")
    assert done.exit_code == 0, done.output
    assert "Uses the learned number" in done.output
    calibrator = Calibrator.load(made)
    assert calibrator.learned is not None and calibrator.threshold is not None
    later = written(tmp_path / "later.jsonl", [{"question": one.question} for one in load_questions("dev")[200:260]])
    scored = tmp_path / "scored.jsonl"
    done = semtoken("score", later, "-o", scored, "--questions", "--batch-size", "32", "--calibrator", made)
    assert done.exit_code == 0, done.output
    records = lines(scored)
    assert all(one["chance"] is not None and one["score_learned"] is not None for one in records)
    assert all("state" not in one for one in records)
    done = semtoken("watch", "--json", "--calibrator", made, scored)
    assert done.exit_code == 0, done.output
    told = json.loads(done.output.splitlines()[-1])
    assert told["states"]["n_recent"] == 60 and told["states"]["n_fitted"] == 170
    assert "Hidden states: distance" in semtoken("watch", scored, "--calibrator", made).output


def test_another_form_of_prompt_is_told_and_gets_no_chance(
    semtoken: RunCommand, labelled: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    assert semtoken("calibrate", labelled, "-o", made, "--learn", "--alpha", "0.3").exit_code == 0
    other = written(tmp_path / "other.jsonl", [{"prompt": "The capital of France is"}])
    done = semtoken("score", other, "--calibrator", made)
    assert_told(done, "learned on prompts each of which begins with")


def test_shuffled_labels_keep_the_headline(semtoken: RunCommand, labelled: Path, tmp_path: Path) -> None:
    records = lines(labelled)
    order = np.random.default_rng(1).permutation(len(records))
    shuffled = [one | {"correct": records[i]["correct"]} for one, i in zip(records, order, strict=True)]
    done = semtoken("calibrate", written(tmp_path / "s.jsonl", shuffled), "-o", tmp_path / "made", "--learn")
    assert done.exit_code == 0, done.output
    assert "Kept the headline: your labels do not show a gain" in " ".join(done.output.split())
    calibrator = Calibrator.load(tmp_path / "made")
    assert calibrator.learned is None and calibrator.learning.startswith("kept the headline")


def test_learning_needs_what_answers_left(semtoken: RunCommand, labelled: Path, tmp_path: Path) -> None:
    bare = [{k: v for k, v in one.items() if not k.startswith("state")} for one in lines(labelled)]
    done = semtoken("calibrate", written(tmp_path / "bare.jsonl", bare), "-o", tmp_path / "made", "--learn")
    assert_told(done, "--states")
    assert_told(semtoken("calibrate", labelled, "-o", tmp_path / "made", "--learn", "--by", "trace"), "leave --by out")
    assert not (tmp_path / "made").exists()
