"""The worked cases: computed in exact fractions and 40-digit arithmetic, independently of this code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken import metrics
from semtoken.guarantees import curves, exact, measures
from semtoken.guarantees.judge import Share
from tests.rows import each

CASES = json.loads((Path(__file__).parent / "worked_cases.json").read_text())["cases"]


def arrays(given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(given["uncertainty"], dtype=float), np.array(given["correct"], dtype=float)


def fixed_sequence(given: dict[str, Any]) -> dict[str, Any]:
    kept, tests = exact.fixed_sequence(*arrays(given), given["grid"], given["alpha"], given["delta"])
    return {"threshold": kept, "tests": [vars(test) for test in tests]}


def missed(given: dict[str, Any]) -> dict[str, Any]:
    threshold, n_wrong, rank = exact.wrong_answers_caught(*arrays(given), given["alpha"])
    return {"threshold": threshold, "n_wrong": n_wrong, "rank": rank}


def batch(given: dict[str, Any]) -> dict[str, Any]:
    new = np.array(given["new_uncertainty"])
    p_values, selected = exact.batch_selection(*arrays(given), new, given["alpha"])
    return {"p_values": p_values.tolist(), "selected": selected}


def risk_coverage(given: dict[str, Any]) -> dict[str, Any]:
    curve = metrics.risk_coverage(given["uncertainty"], given["correct"])
    points = np.stack([curve.threshold, curve.coverage, curve.risk], axis=1).tolist()
    return {"points": points, "aurc": curve.aurc}


def labels(given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(given["log_score"], dtype=float), np.array(given["correct"], dtype=float)


def venn_abers(given: dict[str, Any]) -> dict[str, Any]:
    curve = curves.fit_venn_abers(*labels(given))
    p0, p1 = curve.pair(given["new_log_score"])
    return {"p0": p0.tolist(), "p1": p1.tolist(), "probability": curve(given["new_log_score"]).tolist()}


def beta(given: dict[str, Any]) -> dict[str, Any]:
    curve = curves.fit_beta(*labels(given))
    n = len(given["correct"])
    probabilities = np.clip(curve(given["new_log_score"]), 1 / (n + 2), (n + 1) / (n + 2))
    return {"a": curve.a, "b": curve.b, "m": curve.m, "probability": probabilities.tolist()}


def scores(given: dict[str, Any]) -> dict[str, Any]:
    probabilities, correct = np.array(given["probability"]), np.array(given["correct"])
    return {
        "brier": measures.brier_scores(probabilities, correct).mean(),
        "log_loss": measures.log_losses(probabilities, correct).mean(),
    }


def upper_end(given: dict[str, Any]) -> dict[str, Any]:
    """The end of an interval with delta on either side."""
    return {"upper": Share(given["wrong"], given["accepted"]).within(1 - 2 * given["delta"])[1]}


def possible(given: dict[str, Any]) -> dict[str, Any]:
    return {"possible": given["n"] >= exact.labels_needed(0, given["alpha"], given["delta"])}


COMPUTED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "binomial_p_value": lambda given: {"p_value": exact.binomial_p_value(**given)},
    "upper_error_bound": upper_end,
    "labels_needed": lambda given: {"accepted": exact.labels_needed(**given)},
    "fixed_sequence": fixed_sequence,
    "wrong_answers_caught": missed,
    "joint_risk": lambda given: {"threshold": exact.joint_risk(*arrays(given), given["alpha"])},
    "batch_selection": batch,
    "risk_coverage": risk_coverage,
    "venn_abers": venn_abers,
    "beta_calibrator": beta,
    "temperature": lambda given: {"temperature": curves.fit_temperature(*labels(given)).temperature},
    "smallest_possible": possible,
    "scores": scores,
    "wilson": lambda given: {"interval": list(measures.wilson(given["correct"], given["n"]))},
}


def close(found: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            close(found[key], expected[key], tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other, tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=0, abs=tolerance)
    else:
        assert found == expected


@each("case", CASES, ids=lambda case: case["name"])
def test_worked_case(case: dict[str, Any]) -> None:
    close(COMPUTED[case["kind"]](case["input"]), case["expected"], case["tolerance"])


def test_every_case_is_there() -> None:
    assert len(CASES) == 46
    assert {case["kind"] for case in CASES} == set(COMPUTED)
