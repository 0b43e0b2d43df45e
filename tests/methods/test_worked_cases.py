"""Every worked number that is known of the methods and of the ranking metrics, default variants and others.

The inputs of a case are passed under their own names; `CALLS` says which options its variant stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from research.experiments.published.against import plain, published

from semtoken import methods, metrics
from tests.rows import each

CASES = json.loads((Path(__file__).parent / "data" / "method_cases.json").read_text())

# (method, variant) -> options; a variant that is not named here is a default or a plain option of its own name.
OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("deg", "entail_T1_duplicates_and_diag_one_sum"): {"scale": "sum"},
    ("deg", "entail_T3_duplicates_and_diag_one_sum"): {"scale": "sum"},
    ("deg", "noncontra_T1_duplicates_and_diag_one_sum"): {"scale": "sum"},
    ("deg", "noncontra_T3_duplicates_and_diag_one_sum"): {"scale": "sum"},
    ("conu", "released_code_one_minus_frequency"): {"variant": "released_code_one_minus_frequency"},
}
NAMED_VARIANTS = ("p_true", "semantic_clusters", "semantic_entropy", "eigenscore")
RENAMED = {"lambda": "lambda_", "sample_logprobs_with_eos_last": "sample_logprobs"}


def compute(case: dict[str, Any]) -> Any:
    method, variant = case["method"], case["variant"]
    inputs = {RENAMED.get(name, name): value for name, value in case["inputs"].items()}
    options = dict(OPTIONS.get((method, variant), {}))
    function: Callable[..., Any] = getattr(metrics if method in ("auroc", "prr") else methods, method)
    if method in NAMED_VARIANTS or (method, variant) == ("ln_entropy", "lm_polygraph_eos_in_sum_not_in_count"):
        options["variant"] = variant
    if variant.startswith("noncontra"):
        options["affinity"] = "non_contradiction"
    if (method, variant) == ("token_sar", "original_mean_over_samples"):
        function = methods.token_sar_of_samples
    if (method, case["case"]) == ("token_sar", "all_similarity_one"):
        options["zero_relevance"] = "nan"
    if method == "prr":
        options["random"] = "monte_carlo" if "monte_carlo" in variant else "expected"
        options["ties"] = "stable" if case["case"].startswith("ties") else "average"
    return function(**inputs, **options)


@each("case", CASES, ids=lambda c: f"{c['method']}-{c['variant']}-{c['case']}")
def test_worked_case(case: dict[str, Any]) -> None:
    expected = case["expected"]
    if isinstance(expected, dict):
        expected = expected["prr"]
    tolerance = case["tolerance"]
    expected = float(expected) if isinstance(expected, str) else expected
    np.testing.assert_allclose(compute(case), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@each("case", [c for c in CASES if c["method"] == "prr"], ids=lambda c: f"{c['variant']}-{c['case']}")
def test_areas_behind_prr(case: dict[str, Any]) -> None:
    ties = "stable" if case["case"].startswith("ties") else "average"
    random = "monte_carlo" if "monte_carlo" in case["variant"] else "expected"
    areas = metrics.rejection_areas(**case["inputs"], ties=ties, random=random)
    names = {
        "area": areas.area,
        "oracle_area": areas.oracle,
        "random_area_expected": areas.random,
        "random_area_seed42_1000": areas.random,
    }
    stated = {name: value for name, value in case["expected"].items() if name != "prr"}
    assert stated
    for name, value in stated.items():
        assert names[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


def test_the_file_speaks_of_every_method_that_the_paper_compares() -> None:
    names = {case["method"] for case in CASES} - {"auroc", "prr", "semantic_clusters"}
    compared = set(published().query("table == 'comparison'").setting)
    assert {plain(methods.METHODS[name].title) for name in names} == compared - {"stc"}
