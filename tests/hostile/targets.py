"""The public functions, each with arguments that work and the range of its numbers."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial, wraps
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

import semtoken
from semtoken.core import LogitsStream, LogprobsStream
from semtoken.core.engine_tokens import as_top_steps
from semtoken.core.parts import parts_of
from semtoken.core.results import ScoredAnswer
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import scorer_for
from semtoken.models.probing import competing_in_record, doubtful_steps
from semtoken.replies import ReplyStream, read_reply
from semtoken.replies.checking import doubt_of, rank_replies
from semtoken.replies.formats import shape_at
from tests import worked
from tests.hostile.functions import Target
from tests.hostile.targets_of_guarantees import of_calibrators, of_decisions, of_judgments, of_thresholds
from tests.hostile.targets_of_methods import of_formulas, of_methods, of_metrics
from tests.hostile.targets_of_models import (
    of_clusters,
    of_models,
    of_passes,
    of_questions,
    of_vocabularies,
    uncertainty,
)
from tests.methods.method_records import scattered

CLUSTERS = worked.clusters()
IDS = worked.ids(*worked.ANSWER)
LOGITS = np.random.default_rng(0).normal(0, 3, (len(IDS), len(worked.TOKENS)))
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
        *(*of_scores(), *of_streams(), *of_replies(), *of_answers(answer), *of_parts(answer), *of_records()),
        *(*of_methods(), *of_formulas(), *of_metrics()),
        *(*of_calibrators(answer), *of_thresholds(answer), *of_judgments(), *of_decisions()),
        *(*of_clusters(CLUSTERS), *of_vocabularies(CLUSTERS.vocabulary)),
        *(*of_models(), *of_passes(), *of_questions()),
    ]


def of_scores() -> list[Target]:
    """Scoring."""
    logits = {"logits": LOGITS, "token_ids": IDS, "vocabulary": CLUSTERS}
    steps = {"steps": STEPS, "vocabulary": CLUSTERS, "distribution": "raw"}
    return [
        Target(semtoken.score_logits, logits, 0, 1, weight=4, read=uncertainty),
        Target(semtoken.score_logprobs, steps, 0, 1, read=uncertainty),
        Target(semtoken.score_reply, {"reply": REPLY, "tokenizer": CLUSTERS}, 0, 1, read=uncertainty),
        Target(ScoringRules, {}, read=attrgetter("signature")),
        Target(as_top_steps, {"steps": STEPS[:1]}, read=len),
    ]


def of_streams() -> list[Target]:
    """Scoring step by step; the settings and a step of each stream."""

    def of_logits(logits: Any, token: Any, **settings: Any) -> ScoredAnswer:
        stream = LogitsStream(**settings)
        stream.add(logits, token)
        return stream.finish()

    def of_steps(step: Any, **settings: Any) -> ScoredAnswer:
        stream = LogprobsStream(**settings)
        stream.add(step)
        return stream.finish()

    def of_chunks(chunk: Any, **settings: Any) -> int:
        stream = ReplyStream(**settings)
        stream.feed(chunk)
        return len(stream.finish().choices)

    event = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop", "logprobs": None}]}
    rules = {"vocabulary": CLUSTERS, "preset": "default", "equality": None}
    reading = {"format": None, "temperature": None, "request": None}
    row = rules | {"logits": LOGITS[0], "token": 1}
    return [
        Target(of_logits, row, 0, 1, read=uncertainty, named="LogitsStream"),
        Target(of_steps, rules | {"step": STEPS[0]}, 0, 1, read=uncertainty, named="LogprobsStream"),
        Target(of_chunks, reading | {"chunk": event}, named="ReplyStream"),
    ]


@cache
def _replies() -> Path:
    """A folder with one saved reply."""
    folder = Path(tempfile.mkdtemp(prefix="replies-"))
    (folder / "one.json").write_text(json.dumps(REPLY), "utf-8")
    return folder


def of_replies() -> list[Target]:
    """Replies of engines, and saved ones."""
    return [
        Target(rank_replies, {"sources": [str(_replies())]}, weight=0.3, read=lambda found: len(found.answers)),
        Target(read_reply, {"reply": REPLY}, read=lambda found: len(found.choices)),
        Target(shape_at, {"path": "/v1/chat/completions"}),
    ]


def _with_quiet_finders(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """A function of parts: what a finder of the user raises is the user's own, so `len` stands for all of them."""

    @wraps(function)
    def found(by: Any, **options: Any) -> Any:
        return function(*first, len if callable(by) else by, **options)

    return found


def of_answers(answer: ScoredAnswer) -> list[Target]:
    """Questions to a scored answer and its tokens."""
    return [
        Target(_with_quiet_finders(answer.parts), {"by": "word"}, 0, 1, read=_confidences),
        Target(answer.uncertainty_under, {"equality": "surface"}, 0, 1),
        Target(answer.new_word_confidence, {"question": "What is it?"}, 0, 1),
        Target(answer.span_uncertainty, {"start": 0, "end": 9}, 0, 1),
        Target(answer.to_json, {"indent": 2}),
        Target(answer.tokens[1].log_probability_under, {"equality": "surface"}, -np.inf, 0),
        Target(semtoken.to_frame, {"responses": [answer]}, weight=0.3, read=len),
        Target(doubt_of, {"response": answer}),
    ]


def of_parts(answer: ScoredAnswer) -> list[Target]:
    """Parts of an answer and what stands beside them."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    scorer = scorer_for(CLUSTERS.vocabulary, ScoringRules())
    rivals = partial(competing_in_record, answer, scorer=scorer)
    return [
        Target(_with_quiet_finders(parts_of, answer), {"by": "field", "schema": schema}, 0, 1, read=_confidences),
        Target(partial(doubtful_steps, answer), {}, 0),
        Target(rivals, {"step": 0}, 0, 1, read=lambda found: [one.probability for one in found]),
    ]


def _confidences(parts: Any) -> list[float]:
    return [part.confidence for part in parts if part.confidence is not None]


def of_records() -> list[Target]:
    """Records of answers."""
    whole = scattered()
    plain = {one.name: getattr(whole, one.name) for one in fields(whole)}
    plain = {name: value for name, value in plain.items() if not isinstance(value, np.ndarray)}
    return [
        Target(semtoken.Generation, plain, read=attrgetter("recorded")),
        Target(whole.with_fields, {"recorded": {"greedy_logprobs": [-0.5]}}, read=bool),
    ]
