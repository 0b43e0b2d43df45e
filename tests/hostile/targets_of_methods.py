"""Methods of uncertainty, and metrics of them against judgements."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import numpy as np

from semtoken import methods, metrics
from tests.hostile.functions import Target
from tests.methods.method_records import scattered

RANDOM = np.random.default_rng(0)
ROWS = [[-0.1, -0.7], [-0.2], [-1.5, -0.3, -0.4]]
MATRIX = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.3], [0.1, 0.3, 1.0]])
SCORES = RANDOM.random(12)
CORRECT = np.array([1.0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1])
LOGS = -RANDOM.exponential(0.7, 6)
ENTROPIES = RANDOM.exponential(0.7, 6)
BEST = np.sort(-RANDOM.exponential(3.0, (6, 20)), axis=1)[:, ::-1].copy() - 2.0


def of_methods() -> list[Target]:
    """The methods of comparison."""
    greedy, samples = {"greedy_logprobs": LOGS}, {"sample_logprobs": ROWS}
    graph, similar = {"entail_prob_row_premise": MATRIX}, samples | {"similarity": MATRIX}
    importance = [[0.1, 0.9], [0.2], [0.3, 0.4, 0.5]]
    labels = [[2, 2, 1], [2, 2, 2], [1, 2, 2]]
    sides = {"nli_chosen_to_alternative": [[2, 1]], "nli_alternative_to_chosen": [[2, 0]]}
    weights = {"similarity_to_full_without_token": np.array([0.2, 0.9, 0.5, 0.1, 0.3, 0.4])}
    return [
        Target(methods.perplexity, greedy, 0),
        Target(methods.sequence_probability, greedy, 0),
        Target(methods.predictive_entropy, samples, 0),
        Target(methods.ln_entropy, samples, 0),
        Target(methods.semantic_entropy, samples | {"cluster_ids": [0, 0, 1]}),
        Target(methods.semantic_clusters, {"labels_row_premise_col_hypothesis": labels}, 0),
        Target(methods.nli_labels, {"nli_logits_contra_neutral_entail": RANDOM.normal(0, 2, (3, 3, 3))}, 0, 2),
        Target(methods.affinity_matrix, graph, 0, 1),
        *(Target(method, graph, 0) for method in (methods.deg, methods.ecc, methods.eigv)),
        Target(methods.eigenscore, {"embeddings": RANDOM.normal(size=(4, 4))}),
        Target(methods.conu, {"similarity": MATRIX}, -1, 2),
        Target(methods.ccp, {"alternative_logprobs_chosen_first": [[-0.5, -1.5]]} | sides, -1, 0),
        Target(methods.p_true, {"next_token_logits": RANDOM.normal(0, 3, 13), "true_index": 1, "false_index": 2}, 0),
        Target(methods.sar, similar | {"token_similarity": importance}),
        Target(methods.sentence_sar, similar),
        Target(methods.token_sar, greedy | weights, 0, nan=True),
        Target(methods.token_sar_of_samples, samples | {"token_importance": importance}, 0, nan=True),
        Target(methods.jaccard_affinity, {"texts": ["a b", "b c", "c"]}, 0, 1),
        Target(methods.is_function_word_text, {"text": " the"}),
        Target(methods.token_text, {"text": " the"}),
        Target(methods.stc, {"log_confidence": -0.3}, 0, 1),
        Target(methods.score, {"name": "sar", "generation": scattered()}),
    ]


def of_one_pass() -> list[Target]:
    """Methods that read the one generation."""
    greedy, entropies, best = {"greedy_logprobs": LOGS}, {"token_entropies": ENTROPIES}, {"best_log_probs": [*BEST]}
    attention, few = RANDOM.random((3, 2, 5)) / 2, LOGS[:3].copy()
    phrases, new_phrases = greedy | {"phrase_log_probs": few}, greedy | {"new_phrase_log_probs": few}
    return [
        Target(methods.epr, best, 0),
        Target(methods.wepr, best | {"weights": RANDOM.normal(size=30)}),
        Target(methods.self_certainty, {"uniform_divergences": ENTROPIES}),
        Target(methods.first_content_entropy, best | {"step": 1}, 0),
        Target(methods.first_content_step, {"token_texts": [" the", " sea"]}, 0, 1),
        Target(methods.lowest_group_confidence, best | {"width": 2}),
        *(Target(one, entropies, 0) for one in (methods.max_token_entropy, methods.mean_token_entropy)),
        Target(methods.window_entropy, entropies, 0),
        *(Target(one, entropies | greedy, 0) for one in (methods.surprise_and_peak, methods.trace)),
        Target(methods.rauq, greedy | {"attention_to_previous": attention}, 0),
        Target(methods.weakest_token, greedy, 0),
        *(Target(one, phrases, 0) for one in (methods.weakest_phrase, methods.phrase_and_mean)),
        Target(methods.new_phrases, new_phrases, 0),
        Target(methods.mean_new_word, greedy | {"new_word_log_probs": few}, 0),
        Target(methods.confidence, new_phrases | {"log_confidence": -0.3, "text": "Paris."}, 0),
    ]


def of_metrics() -> list[Target]:
    """Metrics of scores against judgements."""
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
