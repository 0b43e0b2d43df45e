"""Methods of uncertainty, and metrics of them against judgments."""

from __future__ import annotations

import math
from inspect import signature
from operator import attrgetter
from typing import Any

import numpy as np

from semtoken import methods, metrics
from semtoken.methods import METHODS
from semtoken.methods.table import Method
from tests.hostile.functions import Target
from tests.methods.method_records import scattered

RANDOM = np.random.default_rng(0)
SCORES = RANDOM.random(12)
CORRECT = np.array([1.0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1])


def of_methods() -> list[Target]:
    """Every method of the table, with what it gets of a record and within the range that the table states."""
    return [Target(method.function, _arguments(method), *method.range, named=name) for name, method in METHODS.items()]


def _arguments(method: Method) -> dict[str, Any]:
    record = scattered()
    if method.arguments is not None:
        return method.arguments(record)
    return signature(method.function).bind(*(getattr(record, name) for name in method.needs)).arguments


def of_formulas() -> list[Target]:
    """Formulas beside those of the table, their parts, and further forms of their arguments."""
    samples, best = [[-0.1, -0.7], [-0.2], [-1.5, -0.3, -0.4]], [*np.log([[0.6, 0.3], [0.5, 0.4], [0.9, 0.05]])]
    entails = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.3], [0.1, 0.3, 1.0]])
    labels = [[2, 2, 1], [2, 2, 2], [1, 2, 2]]
    importance = [[0.1, 0.9], [0.2], [0.3, 0.4, 0.5]]
    of_samples = {"sample_logprobs": samples, "token_importance": importance}
    return [
        Target(methods.score, {"name": "sar", "generation": scattered()}),
        Target(methods.affinity_matrix, {"entail_prob_row_premise": entails}, 0, 1),
        Target(methods.ecc, {"entail_prob_row_premise": entails}, 0, named="ecc of probabilities"),
        Target(methods.semantic_clusters, {"labels_row_premise_col_hypothesis": labels}, 0),
        Target(methods.nli_labels, {"nli_logits_contra_neutral_entail": RANDOM.normal(0, 2, (3, 3, 3))}, 0, 2),
        Target(methods.jaccard_affinity, {"texts": ["a b", "b c", "c"]}, 0, 1),
        Target(methods.token_sar_of_samples, of_samples, 0, nan=True),
        Target(methods.wepr, {"best_log_probs": best, "weights": np.ones(4), "best": 2}),
        Target(methods.first_content_step, {"token_texts": [" the", " sea"]}, 0, 1),
        Target(methods.is_function_word_text, {"text": " the"}),
        Target(methods.token_text, {"text": " the"}),
    ]


def of_metrics() -> list[Target]:
    """Metrics of scores against judgments."""
    pair: dict[str, Any] = {"uncertainty": SCORES, "correct": CORRECT}
    graded = {"uncertainty": SCORES, "quality": CORRECT}
    few: dict[str, Any] = {"metric": "auroc", "n_resamples": 20}
    two = {"metric": "auroc", "uncertainty_a": SCORES, "uncertainty_b": SCORES[::-1].copy(), "correct": CORRECT}
    interval = attrgetter("value", "low", "high")
    resampled = metrics.resample(**few, **pair)

    def judged(function: Any, given: Any, low: float = -math.inf, high: float = math.inf, **more: Any) -> Target:
        return Target(function, given, low, high, nan=True, booleans=("correct", "quality"), **more)

    return [
        judged(metrics.auroc, pair, 0, 1),
        judged(metrics.aurc, pair, 0, 1),
        judged(metrics.prr, graded, -math.inf, 1),
        judged(metrics.rejection_areas, graded),
        judged(metrics.risk_coverage, pair, read=bool),
        judged(metrics.risk_coverage_curve, pair, read=bool),
        Target(metrics.expected_calibration_error, {"confidence": SCORES, "correct": CORRECT}, 0, 1, nan=True),
        Target(metrics.holm, {"p_values": np.array([0.01, 0.5, 0.03])}, 0, 1, nan=True),
        Target(metrics.bootstrap, pair | few, 0, 1, nan=True, weight=0.5, read=interval),
        Target(metrics.paired_difference, two | few, -1, 1, nan=True, weight=0.3, read=interval),
        Target(metrics.permutation_test, two | {"n_permutations": 20}, 0, 1, nan=True, weight=0.3),
        Target(metrics.resample, pair | few, 0, 1, nan=True, weight=0.5, read=attrgetter("value")),
        Target(resampled.minus, {"other": resampled}, -1, 1, nan=True, read=attrgetter("value")),
    ]
