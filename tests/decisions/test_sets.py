"""Sets of options: coverage by simulation, against brute force, and in the block of a calibrator."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from semtoken.decisions import Choice
from semtoken.decisions.answers import Answer
from semtoken.decisions.audit_results import SetAudit
from semtoken.decisions.auditing import audit
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.doubts import doubts_of_labels
from semtoken.decisions.options import PredictionSets, least_to_a_person
from semtoken.decisions.records import DecisionRecord
from semtoken.errors import InvalidInputError

TEAM = Choice("Which?", list("abcd"), "team")


def draw(rng: np.random.Generator, n: int, sharpness: float, decimals: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Answers among four options, some of them rarely right, from a model that is too sure or not sure enough."""
    prior = np.array([0.55, 0.3, 0.1, 0.05])
    labels = rng.choice(4, n, p=prior)
    logits = rng.normal(0, 1, (n, 4)) + 1.5 * np.eye(4)[labels]
    p = np.exp(sharpness * logits)
    return np.round(p / p.sum(axis=1, keepdims=True), decimals), labels


@pytest.mark.parametrize(
    ("sharpness", "decimals", "repeats"),
    [
        (0.5, 9, 100),
        (4.0, 1, 100),
        *(pytest.param(s, d, 400, marks=pytest.mark.slow) for s in (0.5, 4.0) for d in (9, 1)),
    ],
)
def test_coverage_is_as_promised_over_all_and_for_each_option(sharpness: float, decimals: int, repeats: int) -> None:
    rng, alpha = np.random.default_rng(0), 0.1
    over_all: list[float] = []
    by_option: list[list[float]] = [[] for _ in range(4)]
    for _ in range(repeats):
        sets = PredictionSets.fit(*draw(rng, 200, sharpness, decimals), alpha)
        p, labels = draw(rng, 200, sharpness, decimals)
        held = np.array([label in sets(row) for row, label in zip(p, labels, strict=True)])
        over_all.append(held.mean())
        for k in range(4):
            if sets.labels[k]:
                by_option[k].append(held[labels == k].mean() if (labels == k).any() else np.nan)
    assert np.mean(over_all) >= 1 - alpha - 3 * np.std(over_all) / math.sqrt(repeats)
    for found in by_option[:3]:
        assert np.nanmean(found) >= 1 - alpha - 3 * np.nanstd(found) / math.sqrt(len(found))
    assert len(by_option[3]) < repeats  # sometimes too few labels for a threshold of its own


def test_thresholds_are_those_of_the_formula() -> None:
    p = np.linspace(0.02, 0.98, 25)
    sets = PredictionSets.fit(np.stack([p, 1 - p], axis=1), [0] * 20 + [1] * 5, 0.1)
    first, second = sets.thresholds
    assert first == pytest.approx(np.sort(p[:20])[1]) and second == 0.0  # floor(0.1 x 21) = 2; 5 labels are too few
    assert (sets.labels, sets.shared) == ((20, 0), 5)
    assert [PredictionSets.fit(p[:n, None], [0] * n, 0.1).thresholds[0] for n in (8, 9, 18)] == [0.0, p[0], p[0]]
    assert PredictionSets.fit(p[:9, None], [0] * 9) == PredictionSets.fit(p[:9, None], [0] * 9, 0.1)
    hundred = np.linspace(0, 1, 99)  # 0.29 x 100 is 29, though not in floating-point numbers
    assert PredictionSets.fit(hundred[:, None], [0] * 99, 0.29).thresholds == (hundred[28],)
    fewer = PredictionSets.fit(np.stack([p, 1 - p], axis=1)[:19], [0] * 19, 0.1)
    assert fewer.thresholds[0] == pytest.approx(p[1])  # floor(0.1 x 20) = 2
    assert sets([0.05, 0.95]) == (1,) and sets([0.06, 0.94]) == (0, 1)
    few = PredictionSets.fit([[0.6, 0.4]] * 8, [0, 1] * 4, 0.1)
    assert few.labels == (0, 0) and few.statement.endswith("8 labels are too few for 10%, 9 are needed")
    assert "for 1 option alone, too" in sets.statement and "at least 90%" in sets.statement
    with pytest.raises(InvalidInputError, match="alpha"):
        PredictionSets.fit([[0.5, 0.5]], [0], 1.5)
    with pytest.raises(InvalidInputError, match="a label"):
        PredictionSets.fit([], [])
    for outside in (-0.01, 1.01):
        with pytest.raises(InvalidInputError, match="outside"):
            PredictionSets(0.1, (0.5, outside), (0, 0), 30)


def test_the_least_work_is_reached_by_a_perfect_score_and_never_beaten() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        n, alpha = int(rng.integers(5, 300)), float(rng.uniform(0.01, 0.4))
        wrong = np.sort(rng.random(n) < rng.random())  # right ones first: the best order there is
        accepted = max(m for m in range(n + 1) if wrong[:m].sum() <= alpha * m)
        least = least_to_a_person(int(wrong.sum()), n, alpha)
        assert least <= 1 - accepted / n + 1e-9 and 1 - (accepted + 1) / n <= least + 1e-9


def records(n: int, seed: int) -> list[DecisionRecord]:
    p, labels = draw(np.random.default_rng(seed), n, 1.0)
    p = p / p.sum(axis=1, keepdims=True)
    return [
        DecisionRecord(Answer(TEAM, tuple(map(float, row))), label=int(label), state=f"{seed} {i}")
        for i, (row, label) in enumerate(zip(p, labels, strict=True))
    ]


def audited_sets(calibrator: DecisionCalibrator, answers: list[DecisionRecord]) -> list[SetAudit]:
    return [question.sets for question in audit(calibrator, answers).questions if question.sets is not None]


@pytest.mark.slow
def test_an_audit_of_answers_that_are_alike_rarely_says_otherwise() -> None:
    found = [DecisionCalibrator.fit(records(150, 2 * i), alpha=0.1) for i in range(60)]
    verdicts = [audited_sets(one, records(1500, 2 * i + 1))[0].verdict for i, one in enumerate(found)]
    assert verdicts.count("does not hold") <= 8  # 5%: more than 8 of 60 come in 2 of 1000 runs


def test_a_calibrator_keeps_them_and_an_audit_judges_them(tmp_path: Path) -> None:
    fitted = DecisionCalibrator.fit(records(400, 1), alpha=0.2)
    fitted.save(tmp_path / "made")
    written = json.loads((tmp_path / "made" / "decisions.json").read_text())
    assert (written["format"], written["format_version"]) == ("semtoken.decisions", 2)
    read = DecisionCalibrator.load(tmp_path / "made")
    assert read == fitted and read.checksum == fitted.checksum
    one = records(1, 2)[0]
    told = read.block(one)["prediction_set"]
    assert told["coverage"] == 0.8 and one.answer.value in told["options"]
    [same] = audited_sets(read, records(800, 3))
    assert same.held.count / same.held.of == pytest.approx(0.8, abs=0.04) and same.verdict != "does not hold"
    assert audited_sets(read, records(1, 3))[0].held.of == 1
    turned = [replace(one, label=(one.label or 0) + 1) for one in records(200, 4) if one.label != 3]
    assert audited_sets(read, turned)[0].verdict == "does not hold"
    [sentence] = doubts_of_labels(records(600, 1), "selective_risk", 0.01, 0.1)
    assert "must go to a person, whatever the score" in sentence
    assert not doubts_of_labels(records(600, 1), "selective_risk", 0.99, 0.1)
