"""What is read of a scored answer: methods of one pass, parts, disputes, checked replies, typed decisions, labels."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import semtoken
from semtoken import methods
from semtoken.clustering import partition
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.token_clusters import ClusterSettings
from semtoken.core.parts import parts_of
from semtoken.decisions import Choice, Option, Predicate, ReadingOptions, Score, decide_about
from semtoken.decisions.answers import Answer, DecisionRecord
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.models.probing import competing_in_record, doubtful_steps, p_true_prompt
from semtoken.replies import read_reply
from semtoken.replies.checking import doubt_of, rank_replies
from tests.hostile.functions import Target

RANDOM = np.random.default_rng(1)
BEST = np.sort(-RANDOM.exponential(3.0, (6, 20)), axis=1)[:, ::-1].copy() - 2.0
LOGS = -RANDOM.exponential(0.7, 6)
ENTROPIES = RANDOM.exponential(0.7, 6)
ATTENTION = RANDOM.random((3, 2, 5)) / 2
STATE = "My parcel is late."


def of_one_pass() -> list[Target]:
    """Methods that read the one generation."""
    greedy, entropies, best = {"greedy_logprobs": LOGS}, {"token_entropies": ENTROPIES}, {"best_log_probs": [*BEST]}
    phrases = {"phrase_log_probs": LOGS[:3].copy(), **greedy}
    weights = RANDOM.normal(size=30)
    return [
        Target("epr", methods.epr, {**best, "best": 15}, 0),
        Target("wepr", methods.wepr, {**best, "weights": weights, "intercept": 0.1, "best": 15}),
        Target("self_certainty", methods.self_certainty, {"uniform_divergences": ENTROPIES}),
        Target("first_content_entropy", methods.first_content_entropy, {**best, "step": 1, "best": 20}, 0),
        Target("first_content_step", methods.first_content_step, {"token_texts": [" the", " sea"]}, 0, 1),
        Target("lowest_group_confidence", methods.lowest_group_confidence, {**best, "width": 2, "best": 20}),
        Target("max_token_entropy", methods.max_token_entropy, entropies, 0),
        Target("mean_token_entropy", methods.mean_token_entropy, entropies, 0),
        Target("window_entropy", methods.window_entropy, {**entropies, "width": 4}, 0),
        Target("surprise_and_peak", methods.surprise_and_peak, {**entropies, **greedy}, 0),
        Target("trace", methods.trace, {**entropies, **greedy}, 0),
        Target("rauq", methods.rauq, {**greedy, "attention_to_previous": ATTENTION, "alpha": 0.2, "layers": None}, 0),
        Target("weakest_token", methods.weakest_token, greedy, 0),
        Target("weakest_phrase", methods.weakest_phrase, phrases, 0),
        Target("phrase_and_mean", methods.phrase_and_mean, phrases, 0),
        Target("new_phrases", methods.new_phrases, {"new_phrase_log_probs": LOGS[:3].copy(), **greedy}, 0),
        Target("mean_new_word", methods.mean_new_word, {"new_word_log_probs": LOGS[:3].copy(), **greedy}, 0),
        Target(
            "confidence",
            methods.confidence,
            {"log_confidence": -0.3, "new_phrase_log_probs": LOGS[:3].copy(), **greedy, "text": "Paris."},
            0,
        ),
    ]


def of_parts(answer: semtoken.ScoredAnswer, scorer: Any) -> list[Target]:
    """Parts of an answer and what stands beside them."""

    def parts(by: Any, schema: Any, equality: Any, keys: Any, containers: Any, language: Any) -> list[float]:
        by = len if callable(by) else by  # what a finder of the user raises is the user's own
        found = parts_of(
            answer, by, schema=schema, equality=equality, keys=keys, containers=containers, language=language
        )
        return [part.confidence for part in found if part.confidence is not None]

    def steps(**arguments: Any) -> list[float]:
        return [float(step) for step in doubtful_steps(answer, **arguments)]

    def rivals(**arguments: Any) -> list[float]:
        return [one.probability for one in competing_in_record(answer, scorer=scorer, **arguments)]

    def doubted(response: Any) -> bool:
        return doubt_of(response) is None

    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    wanted = {"by": "field", "schema": schema, "equality": None, "keys": False, "containers": False, "language": None}
    return [
        Target("parts_of", parts, wanted, 0, 1),
        Target("doubtful_steps", steps, {"most": 8, "doubtful": 0.9}, 0),
        Target("competing_in_record", rivals, {"step": 0, "n": 4}, 0, 1),
        Target("doubt_of", doubted, {"response": answer}),
    ]


@cache
def _replies() -> Path:
    """A folder with one saved reply."""
    from tests.hostile.targets import REPLY

    folder = Path(tempfile.mkdtemp(prefix="replies-"))
    (folder / "one.json").write_text(json.dumps(REPLY), "utf-8")
    return folder


def of_replies(reply: Any) -> list[Target]:
    """Saved replies."""

    def checked(sources: Any, **arguments: Any) -> int:
        return len(rank_replies(sources, **arguments).answers)

    def read(**arguments: Any) -> int:
        return len(read_reply(**arguments).choices)

    given = {"sources": [str(_replies())], "questions": None, "format": None, "calibrator": None, "schema": None}
    return [
        Target("rank_replies", checked, given, 0, weight=0.3),
        Target("read_reply", read, {"reply": reply, "format": None, "temperature": None}, 0),
    ]


def of_decisions() -> list[Target]:
    """Typed questions, their answers and their calibrator."""
    from tests.decisions.models import tiny

    backend = tiny()
    choice, predicate = Choice("Which tone?", ["calm", "angry"]), Predicate("Is it late?")

    def asked(**arguments: Any) -> list[float]:
        found = decide_about(backend, **arguments)
        answers = found.values() if isinstance(found, dict) else found
        return [p for one in answers for p in one.probabilities]

    def calibrated(records: Any, **arguments: Any) -> bool:
        return bool(DecisionCalibrator.fit(records, **arguments).sides)

    records = [
        DecisionRecord(Answer(Predicate("Is it late?", name="late"), (p, 1 - p)), label=int(i % 4 == 0), state=str(i))
        for i, p in enumerate(0.5 + RANDOM.random(60) / 2)
    ]
    options = ReadingOptions()
    fitted = DecisionCalibrator.fit(records, alpha=0.3)
    return [
        Target("without_guarantee", fitted.without_guarantee, {"required": ["late"]}),
        Target("unknown", fitted.unknown, {"required": ["late", "early"]}),
        Target("Predicate", Predicate, {"instructions": "Is it?", "when_true": "", "when_false": "", "name": None}),
        Target("Choice", Choice, {"instructions": "Which?", "choices": ["a", "b"], "name": None}),
        Target("Score", Score, {"instructions": "How much?", "levels": ["low", "high"], "name": None}),
        Target("Option", Option, {"value": "a", "name": "a", "description": ""}),
        Target("ReadingOptions", ReadingOptions, {"reading": "labels", "orders": 1}),
        Target(
            "decide_about",
            asked,
            {"state": STATE, "questions": {"tone": choice, "late": predicate}, "options": options},
            0,
            1,
            weight=0.2,
        ),
        Target(
            "DecisionCalibrator.fit",
            calibrated,
            {"records": records, "guarantee": "selective_risk", "alpha": 0.3, "delta": 0.1},
            weight=0.1,
        ),
    ]


def of_tables() -> list[Target]:
    """Clusterings of a table and how they are set."""
    table = RANDOM.normal(size=(24, 4))

    def clustered(**arguments: Any) -> list[float]:
        found = partition.cluster_table(**arguments)
        return [float(labels.size) for labels in found.labels.values()]

    how = {"algorithm": "agglomerative", "linkage": "complete", "metric": "cosine", "seed": 0}
    return [
        Target("cluster_table", clustered, {"table": table, "n_clusters": 5, **how, "memory_budget": None}, weight=0.2),
        Target("ClusterSettings", ClusterSettings, {"n_clusters": 5, **how, "embedding": "input"}),
        Target("vocabulary_of", vocabulary_of, {"model_or_path": "almanac", "tokenizer": None}, weight=0.05),
        Target("p_true_prompt", p_true_prompt, {"question": "Who?", "answer": "Ada"}),
    ]
