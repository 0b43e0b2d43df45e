"""Methods of public objects: calibrators, thresholds, answers, clusters, vocabularies, models and streams."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

import semtoken
from semtoken import Calibrator, Recorder, ScoredModel, Threshold, TokenClusters, Vocabulary
from semtoken.core import LogitsStream, LogprobsStream
from semtoken.core.engine_tokens import as_top_steps
from semtoken.guarantees import Fingerprint
from semtoken.models import load_backend
from semtoken.replies import ReplyStream
from semtoken.support.almanac import is_correct, load_questions, normalize_answer
from semtoken.support.checkpoints import resolve
from tests import tiny, worked
from tests.hostile.functions import Target
from tests.methods.method_records import scattered

RANDOM = np.random.default_rng(2)
LOGS = -RANDOM.exponential(0.7, 60)
RIGHT = (RANDOM.random(60) < np.exp(LOGS)).astype(np.float64)


def of_calibrators(answer: semtoken.ScoredAnswer) -> list[Target]:
    """What a calibrator and a threshold say of answers."""
    calibrator, threshold = Calibrator.fit(LOGS, RIGHT), Threshold.fit(LOGS, RIGHT, alpha=0.4)

    def report(**arguments: Any) -> bool:
        return bool(calibrator.report(**arguments))

    def drift(**arguments: Any) -> list[float]:
        return [calibrator.drift(**arguments).distance]

    def decide(**arguments: Any) -> bool:
        return threshold.decide(**arguments).action == "answer"

    def fingerprint(**arguments: Any) -> bool:
        return bool(Fingerprint(**arguments).flags(Fingerprint(model="other")))

    new = LOGS[:8].copy()
    return [
        Target("Calibrator.predict_proba", calibrator.predict_proba, {"answer": new}, 0, 1, nan=True),
        Target(
            "Calibrator.predict_proba_interval",
            calibrator.predict_proba_interval,
            {"answer": new},
            0,
            1,
            nan=True,
        ),
        Target("Calibrator.flags", calibrator.flags, {"answer": answer, "known": None}),
        Target("Calibrator.report", report, {"scored": LOGS, "correct": RIGHT, "seed": 0}, weight=0.1),
        Target("Calibrator.drift", drift, {"scores": LOGS, "seed": 0}, 0, 1, nan=True, weight=0.2),
        Target("Calibrator.load", Calibrator.load, {"directory": "nowhere", "clusters": None}, refuses=True),
        Target("Threshold.accepts", threshold.accepts, {"scored": new}),
        Target("Threshold.decide", decide, {"answer": answer, "probability_correct": None}),
        Target("Fingerprint", fingerprint, {one.name: None for one in fields(Fingerprint)} | {"model": "m"}),
    ]


def of_answers(answer: semtoken.ScoredAnswer) -> list[Target]:
    """What a scored answer and its tokens tell."""

    def under(**arguments: Any) -> float:
        return float(answer.tokens[1].log_probability_under(**arguments))

    def with_fields(recorded: Any) -> bool:
        return bool(scattered().with_fields(recorded))

    return [
        Target("span_uncertainty", answer.span_uncertainty, {"start": 0, "end": 9}, 0, 1),
        Target("log_probability_under", under, {"equality": "surface"}, -np.inf, 0),
        Target("Generation.with_fields", with_fields, {"recorded": {"greedy_logprobs": [-0.5]}}),
    ]


def of_vocabularies(clusters: TokenClusters) -> list[Target]:
    """What clusters, vocabularies and streams take."""
    vocabulary, ids = clusters.vocabulary, worked.ids(*worked.ANSWER)
    rows = RANDOM.normal(0, 3, (len(ids), vocabulary.size))

    def read(**arguments: Any) -> int:
        return Vocabulary.from_tokenizer(**arguments).size

    def stream(vocabulary: Any, preset: Any, logits: Any, token: Any) -> bool:
        made = LogitsStream(vocabulary, preset)
        made.add(logits, token)
        return bool(made.finish())

    def listed(vocabulary: Any, preset: Any, step: Any) -> bool:
        made = LogprobsStream(vocabulary, preset)
        made.add(step)
        return bool(made.finish())

    def parsed_reply(format: Any, temperature: Any, chunk: Any) -> bool:
        made = ReplyStream(format, temperature=temperature)
        made.feed(chunk)
        return bool(made.finish().choices)

    event = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop", "logprobs": None}]}
    step = {"token": " the", "logprob": -0.5, "top_logprobs": [{"token": " the", "logprob": -0.5}]}
    tokenizer = tiny.byte_level_bpe()
    return [
        Target("cluster_ids", clusters.cluster_ids, {"token_id": 1}, 0, vocabulary.size),
        Target("members", clusters.members, {"token": " the"}),
        Target("find", clusters.find, {"text": "the"}, 0, vocabulary.size),
        Target("TokenClusters.check", clusters.check, {"tokenizer": vocabulary}),
        Target("from_tokenizer", read, {"tokenizer": tokenizer, "stopwords": ["the"]}, weight=0.05),
        Target("tokens_of", vocabulary.tokens_of, {"norm": "the"}, 0, vocabulary.size),
        Target("checked_ids", vocabulary.checked_ids, {"token_ids": ids}, 0, vocabulary.size),
        Target("first", lambda size: vocabulary.first(size).size, {"size": 7}, 1, vocabulary.size),
        Target("require_same", vocabulary.require_same, {"other": vocabulary, "mine": "a", "theirs": "b"}),
        Target("LogitsStream", stream, {"vocabulary": clusters, "preset": "default", "logits": rows[0], "token": 1}),
        Target("LogprobsStream", listed, {"vocabulary": clusters, "preset": "default", "step": step}),
        Target("ReplyStream", parsed_reply, {"format": None, "temperature": None, "chunk": event}),
        Target("as_top_steps", lambda **given: len(as_top_steps(**given)), {"steps": [step], "token_ids": None}, 0),
    ]


@cache
def small_stc() -> ScoredModel:
    """A random model of six hundred tokens."""
    from semtoken.models.transformers.model import TransformersBackend

    tokenizer = tiny.byte_level_bpe()
    return ScoredModel(TransformersBackend(tiny.llama(len(tokenizer)), tokenizer))


def of_models() -> list[Target]:
    """What a model is asked, and the recorder in a `generate` of one's own."""
    stc = small_stc()
    sequences = np.array([[5, 6, 7]])

    def generated(**arguments: Any) -> list[float]:
        return [one.sequence_uncertainty for one in stc.generate(**arguments)]

    def scored(**arguments: Any) -> list[float]:
        return [one.sequence_uncertainty for one in stc.score(**arguments)]

    def decided(**arguments: Any) -> int:
        return len(stc.decide(**arguments))

    def recorded(sequences: Any, lengths: Any, questions: Any) -> int:
        return len(Recorder(stc.tokenizer).answers(sequences, lengths=lengths, questions=questions))

    how = {"batch_size": 2, "stop_at_newline": False, "stop_strings": (), "stop_above_product": None}
    asked = {"prompts": ["The capital of"], "max_new_tokens": 2, **how}
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 5, "top_p": 0.9}
    return [
        Target("ScoredModel.generate", generated, asked, 0, 1, weight=0.1),
        Target("ScoredModel.generate by chance", generated, {**asked, **sampling}, 0, 1, weight=0.1),
        Target(
            "ScoredModel.score", scored, {"prompts": ["The"], "responses": ["TV"], "batch_size": 2}, 0, 1, weight=0.1
        ),
        Target(
            "ScoredModel.decide",
            stc.decide,
            {"state": "s", "questions": [], "reading": "labels", "orders": 1},
            weight=0.1,
        ),
        Target("Recorder.answers", recorded, {"sequences": sequences, "lengths": None, "questions": ()}, refuses=True),
        Target("resolve", lambda model: bool(resolve(model)), {"model": "almanac"}),
        Target("load_backend", lambda name: bool(load_backend(name)), {"name": "nobody"}, refuses=True, weight=0.1),
    ]


def of_questions() -> list[Target]:
    """The embedded questions."""
    question = load_questions("dev")[0]

    def right(answer_text: Any) -> bool:
        return is_correct(answer_text, question)

    def questions(split: Any) -> int:
        return len(load_questions(split))

    return [
        Target("is_correct", right, {"answer_text": "Lima"}),
        Target("normalize_answer", normalize_answer, {"text": "The Lima"}),
        Target("load_questions", questions, {"split": "dev"}, 0, weight=0.1),
    ]
