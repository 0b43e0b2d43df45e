"""The public functions, each with arguments that work and the range of its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from examples.cascade import CascadeThreshold

import semtoken
from semtoken import TokenClusters, methods, metrics
from semtoken.core.results import ScoredAnswer
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import scorer_for
from tests import worked
from tests.hostile.functions import Target
from tests.hostile.targets_of_answers import of_decisions, of_one_pass, of_parts, of_replies, of_tables
from tests.hostile.targets_of_objects import of_answers, of_calibrators, of_models, of_questions, of_vocabularies
from tests.hostile.targets_of_passes import of_judgements, of_loading, of_passes
from tests.methods.method_records import scattered

CLUSTERS = worked.clusters()
IDS = worked.ids(*worked.ANSWER)
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(0, 3, (len(IDS), len(worked.TOKENS)))
ROWS = [[-0.1, -0.7], [-0.2], [-1.5, -0.3, -0.4]]
MATRIX = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.3], [0.1, 0.3, 1.0]])
NLI = RANDOM.normal(0, 2, (3, 3, 3))
SCORES = RANDOM.random(12)
CORRECT = np.array([1.0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1])
TABLE = RANDOM.normal(size=(24, 4))
STEPS = [
    {
        "token": token,
        "logprob": math.log(step[token]),
        "top_logprobs": [{"token": t, "logprob": math.log(p)} for t, p in step.items()],
    }
    for token, step in zip(worked.ANSWER, worked.STEPS, strict=True)
]
ITEMS = {"logprobs": {"content": STEPS}, "index": 0, "finish_reason": "stop"}
REPLY = {
    "object": "chat.completion",
    "model": "m",
    "choices": [ITEMS | {"message": {"role": "assistant", "content": "".join(worked.ANSWER)}}],
}


def scored() -> ScoredAnswer:
    """A scored answer."""
    return semtoken.score_logits(LOGITS, IDS, CLUSTERS)


def all_targets() -> list[Target]:
    """Every public function that takes numbers, texts or options."""
    answer = scored()
    return [
        *(*scores(), *of_methods(), *of_metrics(), *of_results(), *of_clusters(), *of_calibration(), *of_records()),
        *(*of_one_pass(), *of_parts(answer, scorer_for(CLUSTERS.vocabulary, ScoringRules())), *of_replies(REPLY)),
        *(*of_decisions(), *of_tables(), *of_calibrators(answer), *of_answers(answer)),
        *(*of_vocabularies(CLUSTERS), *of_models(), *of_questions()),
        *(*of_passes(), *of_judgements(CLUSTERS), *of_loading()),
    ]


def uncertainty(result: ScoredAnswer | Sequence[ScoredAnswer]) -> list[float]:
    """The numbers of scored answers, which lie in [0, 1] and in order."""
    found = []
    for one in [result] if isinstance(result, ScoredAnswer) else result:
        low, high = one.sequence_uncertainty_interval
        if not low - 1e-12 <= one.sequence_uncertainty <= high + 1e-12:
            raise AssertionError(f"{one.sequence_uncertainty} lies outside [{low}, {high}]")
        found += [one.sequence_uncertainty, low, high, *(token.agreeing_probability for token in one.tokens)]
    return found


def scores() -> list[Target]:
    """Scoring."""

    def logits(**arguments: Any) -> list[float]:
        return uncertainty(semtoken.score_logits(**arguments))

    def top(**arguments: Any) -> list[float]:
        return uncertainty(semtoken.score_logprobs(**arguments))

    def parsed_reply(**arguments: Any) -> list[float]:
        return uncertainty(semtoken.score_reply(**arguments))

    def rules(**arguments: Any) -> bool:
        return bool(ScoringRules(**arguments).signature)

    more = {"vocabulary": CLUSTERS, "distribution": "raw", "preset": "default"}
    return [
        Target("score_logits", logits, {"logits": LOGITS, "token_ids": IDS, **more}, 0, 1, weight=4),
        Target(
            "score_logprobs",
            top,
            {"steps": STEPS, "token_ids": None, "proxy_for": None, "text": None, **more},
            0,
            1,
        ),
        Target(
            "score_reply",
            parsed_reply,
            {
                "reply": REPLY,
                "format": None,
                "segment": "answer",
                "temperature": None,
                "proxy_for": None,
                "tokenizer": CLUSTERS,
                "preset": "default",
                "distribution": None,
            },
            0,
            1,
        ),
        Target(
            "ScoringRules",
            rules,
            {"preset": "default", "function_words": None, "clustering": None, "prefix_matching": None},
        ),
    ]


def of_methods() -> list[Target]:
    """The methods of comparison."""
    log_probs = np.array([-0.1, -0.7, -0.2])
    entail = {"nli_logits_unique_contra_neutral_entail": None, "unique_text_index_per_sample": None}
    graph = {"entail_prob_row_premise": MATRIX, "temperature": 1.0, "affinity": "entailment", **entail}
    record = {"generation": scattered()}
    sampled = {"sample_logprobs": ROWS, "similarity": MATRIX}
    importance = [[0.1, 0.9], [0.2], [0.3, 0.4, 0.5]]
    return [
        Target("perplexity", methods.perplexity, {"greedy_logprobs": log_probs}, 0),
        Target(
            "sequence_probability",
            methods.sequence_probability,
            {"greedy_logprobs": log_probs, "variant": "one_minus_probability"},
            0,
        ),
        Target("predictive_entropy", methods.predictive_entropy, {"sample_logprobs": ROWS}, 0),
        Target("ln_entropy", methods.ln_entropy, {"sample_logprobs": ROWS, "variant": "matching_counts"}, 0),
        Target(
            "semantic_entropy",
            methods.semantic_entropy,
            {"sample_logprobs": ROWS, "cluster_ids": [0, 0, 1], "variant": "rao_normalised_length_mean"},
        ),
        Target(
            "semantic_clusters",
            methods.semantic_clusters,
            {
                "labels_row_premise_col_hypothesis": [[2, 2, 1], [2, 2, 2], [1, 2, 2]],
                "unique_text_index_per_sample": None,
                "variant": "first_member_strict_bidirectional",
            },
            0,
        ),
        Target("nli_labels", methods.nli_labels, {"nli_logits_contra_neutral_entail": NLI}, 0, 2),
        Target("affinity_matrix", methods.affinity_matrix, graph, 0, 1),
        Target("deg", methods.deg, {**graph, "scale": "mean"}, 0),
        Target("ecc", methods.ecc, {**graph, "threshold": 0.9}, 0),
        Target("eigv", methods.eigv, graph, 0),
        Target(
            "eigenscore",
            methods.eigenscore,
            {"embeddings": TABLE[:4], "alpha": 0.001, "variant": "cov_over_d_minus_1_log10"},
        ),
        Target(
            "conu",
            methods.conu,
            {"similarity": MATRIX, "lambda_": 0.5, "threshold": 0.7, "variant": "talk_formula"},
            -1,
            2,
        ),
        Target(
            "ccp",
            methods.ccp,
            {
                "alternative_logprobs_chosen_first": [[-0.5, -1.5]],
                "nli_chosen_to_alternative": [[2, 1]],
                "nli_alternative_to_chosen": [[2, 0]],
                "is_function_word": None,
                "directions": "both",
                "scale": "negative_product",
            },
            -1,
            0,
        ),
        Target(
            "p_true",
            methods.p_true,
            {"next_token_logits": LOGITS[0], "true_index": 1, "false_index": 2, "variant": "neg_logprob_true"},
            0,
        ),
        Target(
            "sar",
            methods.sar,
            {**sampled, "token_similarity": importance, "t": 0.001, "symmetric": True, "zero_relevance": "uniform"},
        ),
        Target("sentence_sar", methods.sentence_sar, {**sampled, "t": 0.001, "symmetric": True}),
        Target(
            "token_sar",
            methods.token_sar,
            {
                "greedy_logprobs": log_probs,
                "similarity_to_full_without_token": np.array([0.2, 0.9, 0.5]),
                "special": None,
                "zero_relevance": "uniform",
            },
            0,
            nan=True,
        ),
        Target(
            "token_sar_of_samples",
            methods.token_sar_of_samples,
            {"sample_logprobs": ROWS, "token_importance": importance, "zero_relevance": "uniform"},
            0,
            nan=True,
        ),
        Target("jaccard_affinity", methods.jaccard_affinity, {"texts": ["a b", "b c", "c"]}, 0, 1),
        Target("is_function_word_text", methods.is_function_word_text, {"text": " the"}),
        Target("token_text", methods.token_text, {"text": " the"}),
        Target("stc", methods.stc, {"log_confidence": -0.3}, 0, 1),
        Target("score", methods.score, {"name": "sar", **record}),
    ]


def of_metrics() -> list[Target]:
    """Metrics of scores against judgements."""
    pair = {"uncertainty": SCORES, "correct": CORRECT}
    two = {"uncertainty_a": SCORES, "uncertainty_b": SCORES[::-1].copy(), "correct": CORRECT, "seed": 0}
    booleans = ("correct", "quality")

    def estimate(**arguments: Any) -> list[float]:
        found = metrics.bootstrap(**arguments)
        return [found.value, found.low, found.high]

    def difference(**arguments: Any) -> list[float]:
        found = metrics.paired_difference(**arguments)
        return [found.value, found.low, found.high]

    def areas(**arguments: Any) -> list[float]:
        found = metrics.rejection_areas(**arguments)
        return [found.value] if hasattr(found, "value") else [0.0]

    def curve(**arguments: Any) -> bool:
        return bool(metrics.risk_coverage_curve(**arguments))

    def risk(**arguments: Any) -> bool:
        return bool(metrics.risk_coverage(**arguments))

    def resampled(**arguments: Any) -> list[float]:
        return [metrics.resample(**arguments).value]

    prr = {
        "uncertainty": SCORES,
        "quality": CORRECT,
        "max_rejection": 1.0,
        "ties": "average",
        "random": "expected",
        "non_finite": "worst",
    }
    return [
        Target("auroc", metrics.auroc, {**pair, "non_finite": "worst"}, 0, 1, nan=True, booleans=booleans),
        Target("aurc", metrics.aurc, {**pair, "non_finite": "worst"}, 0, 1, nan=True, booleans=booleans),
        Target("prr", metrics.prr, prr, -math.inf, 1, nan=True, booleans=booleans),
        Target("rejection_areas", areas, prr, nan=True, booleans=booleans),
        Target("risk_coverage", risk, {**pair, "non_finite": "worst"}, nan=True, booleans=booleans),
        Target("risk_coverage_curve", curve, {**pair, "non_finite": "worst"}, nan=True, booleans=booleans),
        Target(
            "expected_calibration_error",
            metrics.expected_calibration_error,
            {"confidence": SCORES, "correct": CORRECT, "n_bins": 15},
            0,
            1,
            nan=True,
        ),
        Target("holm", metrics.holm, {"p_values": np.array([0.01, 0.5, 0.03])}, 0, 1, nan=True),
        Target(
            "bootstrap",
            estimate,
            {"metric": "auroc", **pair, "n_resamples": 20, "confidence_level": 0.95, "seed": 0},
            0,
            1,
            nan=True,
            weight=0.5,
        ),
        Target(
            "paired_difference",
            difference,
            {"metric": "auroc", **two, "n_resamples": 20, "confidence_level": 0.95},
            -1,
            1,
            nan=True,
            weight=0.3,
        ),
        Target(
            "permutation_test",
            metrics.permutation_test,
            {"metric": "auroc", **two, "n_permutations": 20},
            0,
            1,
            nan=True,
            weight=0.3,
        ),
        Target(
            "resample", resampled, {"metric": "auroc", **pair, "n_resamples": 20, "seed": 0}, 0, 1, nan=True, weight=0.5
        ),
    ]


def of_results() -> list[Target]:
    """What a scored answer tells."""
    answer = scored()

    def parts(by: Any) -> list[float]:
        by = len if callable(by) else by  # what a finder of the user raises is the user's own
        return [part.confidence for part in answer.parts(by) if part.confidence is not None]

    def under(equality: Any) -> float:
        return float(answer.uncertainty_under(equality))

    def new_word(question: Any) -> bool:
        return answer.new_word_confidence(question) is None

    def frame(responses: Any) -> bool:
        return bool(len(semtoken.to_frame(responses)))

    return [
        Target("ScoredAnswer.parts", parts, {"by": "word"}, 0, 1),
        Target("uncertainty_under", under, {"equality": "surface"}, 0, 1),
        Target("new_word_confidence", new_word, {"question": "What is it?"}),
        Target("to_frame", frame, {"responses": [answer]}, weight=0.3),
    ]


def of_clusters() -> list[Target]:
    """Clusters and vocabularies."""
    vocabulary = CLUSTERS.vocabulary

    def clusters(**arguments: Any) -> int:
        return TokenClusters(**arguments).n_clusters

    def cluster(**arguments: Any) -> list[int]:
        found = semtoken.cluster_tokens(**arguments)
        return [len(np.asarray(found.labels if hasattr(found, "labels") else found).ravel())]

    labels = np.array(worked.LABELS, dtype=np.float64)
    table = {
        "table": TABLE,
        "n_clusters": 5,
        "algorithm": "agglomerative",
        "linkage": "complete",
        "metric": "cosine",
        "seed": 0,
        "memory_budget": None,
    }
    return [
        Target(
            "TokenClusters",
            clusters,
            {"labels": worked.LABELS, "vocabulary": vocabulary, "provenance": {}},
            1,
            len(labels),
        ),
        Target("cluster_tokens", cluster, table, weight=0.2),
        Target("cluster_tokens by k-means", cluster, {**table, "algorithm": "kmeans"}, weight=0.2),
        Target("decode", vocabulary.decode, {"token_ids": IDS}),
        Target("offsets", vocabulary.offsets, {"token_ids": IDS}, 0, 10**6),
        Target("check_ids", vocabulary.check_ids, {"token_ids": IDS}),
    ]


def of_calibration() -> list[Target]:
    """Probabilities and thresholds."""
    uncertainties = RANDOM.random(60)
    logs = np.log1p(-uncertainties)
    right = (RANDOM.random(60) > uncertainties).astype(np.float64)

    def calibrator(**arguments: Any) -> bool:
        return bool(semtoken.Calibrator.fit(**arguments).scores)

    def threshold(**arguments: Any) -> bool:
        return semtoken.Threshold.fit(**arguments).start is None

    fitted = {"scored": logs, "correct": right}
    levels = {"guarantee": "selective_risk", "alpha": 0.3, "delta": 0.1}
    chosen = {"labeled_answers": logs, "correct": right, "new": logs[:10].copy(), "alpha": 0.3}
    booleans = ("correct",)
    unlabeled = -RANDOM.random(200)
    pair = {"first": logs, "first_correct": right, "second": logs[::-1].copy(), "second_correct": right}
    cascade = CascadeThreshold.fit(**pair, unlabeled=(unlabeled, unlabeled), alpha=0.4, delta=0.2)

    def two_thresholds(**arguments: Any) -> bool:
        return CascadeThreshold.fit(**arguments).first is None

    def decided(**arguments: Any) -> bool:
        return cascade.decide(**arguments).action == "answer"

    both = {**pair, "unlabeled": (unlabeled, unlabeled), "alpha": 0.4, "delta": 0.2, "start": None}
    all_booleans = ("first_correct", "second_correct")
    return [
        Target("CascadeThreshold.fit", two_thresholds, both, weight=0.3, booleans=all_booleans),
        Target("CascadeThreshold.decide", decided, {"answer": scored(), "model": "first"}),
        Target("Calibrator.fit", calibrator, {**fitted, "curve": "blend"}, weight=0.1, booleans=booleans),
        Target("Threshold.fit", threshold, {**fitted, **levels, "start": None}, weight=0.3, booleans=booleans),
        Target("select", semtoken.select, chosen, 0, weight=0.3, booleans=booleans),
    ]


def of_records() -> list[Target]:
    """Records of answers, and folders of clusters."""
    record = scattered()
    lengths = {one.name: getattr(record, one.name) for one in fields(record)}
    plain = {name: value for name, value in lengths.items() if not isinstance(value, np.ndarray)}

    def generation(**arguments: Any) -> bool:
        return bool(semtoken.Generation(**arguments).recorded)

    def clusters(place: Any) -> int:
        return TokenClusters.from_pretrained(place).n_clusters

    return [
        Target("Generation", generation, plain),
        Target("TokenClusters.from_pretrained", clusters, {"place": "almanac"}, 1, weight=0.1),
    ]
