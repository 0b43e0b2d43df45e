"""Figures for evaluation tools, against counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semtoken.errors import InvalidInputError
from semtoken.integrations.selective import auroc_figures, risk_coverage_figures, selective_figures
from tests.rows import each


def risk_by_counting(uncertainty: list[float], right: list[float], share: float) -> float:
    """Answer the surest questions, ties together, until at least the share of them is answered."""
    for threshold in sorted(set(uncertainty)):
        answered = [r for u, r in zip(uncertainty, right, strict=True) if u <= threshold]
        if len(answered) >= share * len(right) - 1e-9:
            return 1 - sum(answered) / len(answered)
    raise AssertionError


@each("seed", range(8))
def test_risks_are_those_of_counting(seed: int) -> None:
    random = np.random.default_rng(seed)
    uncertainty = random.integers(0, 6, 23).astype(float).tolist()
    right = random.integers(0, 2, 23).astype(float).tolist()
    figures = risk_coverage_figures(uncertainty, right, (0.1, 0.5, 0.8))
    for share in (0.1, 0.5, 0.8, 1.0):
        assert figures[f"risk_at_{round(100 * share)}"] == pytest.approx(risk_by_counting(uncertainty, right, share))


def test_answers_without_uncertainty_or_judgment_are_left_out() -> None:
    whole = selective_figures([0.1, 0.9, 0.2, 0.8], [1, 0, 0, 1])
    gaps = selective_figures([0.1, 0.9, 0.2, 0.8, math.nan, 0.5], [1, 0, 0, 1, 1, math.nan])
    assert gaps == pytest.approx(whole)
    assert whole["n"] == 4


def test_half_right_counts_as_wrong_for_auroc_only() -> None:
    assert auroc_figures([0.1, 0.5, 0.9], [1.0, 0.5, 0.0])["auroc"] == 1.0
    assert risk_coverage_figures([0.1, 0.5, 0.9], [1.0, 0.5, 0.0])["risk_at_100"] == pytest.approx(0.5)


def test_nothing_to_compare_is_no_number() -> None:
    figures = selective_figures([0.1, 0.2], [1, 1])
    assert math.isnan(figures["auroc"]) and math.isnan(figures["prr"])
    assert figures["risk_at_100"] == 0
    nothing, something = selective_figures([], []), selective_figures([0.1, 0.2], [1, 0])
    assert nothing.keys() == something.keys() and math.isnan(nothing["risk_at_50"])


def test_a_coverage_near_another_has_a_figure_of_its_own() -> None:
    """The figure at 99.5% was written over by that at 100%, and that at 49.6% by that at 50%."""
    uncertainty, right = np.arange(1000.0).tolist(), [*[1.0] * 996, *[0.0] * 4]
    figures = risk_coverage_figures(uncertainty, right, (0.29, 0.496, 0.5, 0.995))
    assert {"risk_at_29", "risk_at_49.6", "risk_at_50", "risk_at_99.5", "risk_at_100"} < figures.keys()
    assert figures["risk_at_99.5"] == 0.0 and figures["risk_at_100"] == pytest.approx(0.004)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="share of questions"):
        risk_coverage_figures([0.1], [1], (0.0,))
    with pytest.raises(InvalidInputError, match="every answer"):
        auroc_figures([0.1, 0.2], [1])
