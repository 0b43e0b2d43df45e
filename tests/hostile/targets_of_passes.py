"""Further passes of a model about its answers, the settings of such passes, and what other people's judgements give."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from semtoken import Calibrator, Recorder, ScoredModel, Threshold, TokenClusters
from semtoken.bench.judges import agreement, correctness, tally
from semtoken.bench.score_file import read_items, score_items
from semtoken.bench.statistics import AnswerSettings, record
from semtoken.clustering.packed_vocabulary import neutral_hash
from semtoken.guarantees import Fingerprint
from semtoken.methods.metrics import resample
from semtoken.models.probing import competing, only_in_form, p_true_log_probs, with_choices
from semtoken.replies.formats import shape_at
from tests.hostile.functions import Target
from tests.hostile.targets_of_objects import LOGS, RIGHT, small_stc

JUDGED = np.array([1.0, 0, 0, 1, 1, 0])


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="hostile-"))


def of_passes() -> list[Target]:
    """Questions to a model about an answer that it gave."""
    stc = small_stc()
    answer = stc.generate(["The capital of"], 4)[0]
    part = answer.parts("word")[0]

    def generated(**options: Any) -> list[float]:
        return [one.sequence_uncertainty for one in stc.generate(["The capital of"], 2, **options)]

    def disputed(**arguments: Any) -> int:
        return len(stc.disputed(**arguments))

    def rivals(**arguments: Any) -> list[float]:
        return [one.probability for one in competing(stc, **arguments)]

    def in_form(**arguments: Any) -> bool:
        return only_in_form(**arguments) in (True, False)

    def recorded(**arguments: Any) -> int:
        return len(record(stc, **arguments))

    def typed(**arguments: Any) -> int:
        return len(stc.decide(**arguments))

    asked = {"prompt": "The capital of", "answer": answer, "n": 4}
    more = {"max_steps": 2, "doubtful": 0.9, "branch_tokens": 2, "with_agreed": False}
    needs = {"prompts": None, "needs": ["log_probs"], "decoding": None, "p_true_spelling": "bare"}
    question = {"late": {"type": "predicate", "instructions": "Is it late?"}}
    sampled = {"num_return_sequences": 2, "do_sample": True, "logits_processor": [], "eos_token_id": 3}
    return [
        Target("ScoredModel.generate with options", generated, sampled, 0, 1, weight=0.1),
        Target(
            "ScoredModel.decide by names", typed, {"state": "s", "questions": question, "reading": "labels"}, weight=0.1
        ),
        Target("ScoredModel.disputed", disputed, asked | more, 0, weight=0.1),
        Target("competing", rivals, asked | {"step": 0}, 0, 1, weight=0.1),
        Target("with_choices", lambda **given: len(with_choices(stc, **given)), _choices(answer), 0, weight=0.1),
        Target("only_in_form", in_form, {"part": part, "answer": answer, "found": []}),
        Target(
            "p_true_log_probs",
            lambda **given: p_true_log_probs(stc, **given),
            {"questions": ["Who?"], "answers": ["Ada"], "spelling": "bare", "batch_size": 2},
            high=0,
            weight=0.1,
        ),
        Target("record", recorded, {"questions": ["Who?"]} | needs, 0, weight=0.1),
        Target("AnswerSettings", AnswerSettings, {"max_new_tokens": 4, "temperature": 0.5, "seed": 0}),
        Target("score_items", lambda **given: len(score_items(stc, **given)), {"items": [], "max_new_tokens": 4}, 0),
        Target("Recorder", Recorder, {"vocabulary": stc.tokenizer, "eos_token_id": [3], "methods": []}, weight=0.1),
        Target("running", lambda sequences: Recorder(stc.tokenizer).running(sequences), {"sequences": None}),
        Target("to_json", lambda indent: len(answer.to_json(indent=indent)), {"indent": 2}),
    ]


def _choices(answer: Any) -> dict[str, Any]:
    return {"prompt": "The", "answer": answer, "parts": [], "schema": None, "batch_size": 16}


def of_judgements(clusters: TokenClusters) -> list[Target]:
    """Judges' verdicts, calibrators that hold a threshold, resamples, and places of files."""
    threshold = Threshold.fit(LOGS, RIGHT, alpha=0.4)
    calibrator, known = replace(Calibrator.fit(LOGS, RIGHT), threshold=threshold), Fingerprint(model="m")
    resampled = resample("auroc", LOGS, RIGHT, n_resamples=20, seed=0)

    def decided(answer: Any) -> bool:
        return calibrator.decide(answer).action == "answer"

    def saved(threshold: Any) -> bool:
        return calibrator.save(_folder() / "calibrator", threshold).exists()

    def required(other: Any) -> bool:
        known.require_same(other)
        return True

    def minus(**arguments: Any) -> list[float]:
        return [resampled.minus(**arguments).value]

    def counted(judgements: Any) -> list[float]:
        return [tally(judgements).accuracy]

    return [
        Target("Calibrator.decide", decided, {"answer": LOGS[0]}),
        Target("Calibrator.save", saved, {"threshold": None}),
        Target("Fingerprint.require_same", required, {"other": known}),
        Target("Resampled.minus", minus, {"other": resampled, "confidence_level": 0.95}, -1, 1, nan=True),
        Target("tally", counted, {"judgements": JUDGED}, 0, 1, nan=True, booleans=("judgements",)),
        Target("agreement", lambda **given: len(agreement(**given)), {"judgements": {"a": JUDGED, "b": JUDGED}}, 0),
        Target("correctness", correctness, {"verdicts": []}, 0, 1, nan=True),
        Target("read_items", lambda path: len(list(read_items(path))), {"path": "nowhere.jsonl"}, refuses=True),
        Target("neutral_hash", neutral_hash, {"vocabulary": clusters.vocabulary}),
        Target("save_pretrained", clusters.save_pretrained, {"directory": _folder() / "clusters"}, weight=0.05),
        Target("shape_at", shape_at, {"path": "/v1/chat/completions"}),
    ]


def of_loading() -> list[Target]:
    """How a model is loaded."""

    def loaded(**arguments: Any) -> bool:
        return bool(ScoredModel.from_pretrained(**arguments).methods is not None)

    how = {"backend": "transformers", "device": None, "dtype": "auto", "clusters": None, "revision": None}
    more = {"preset": "default", "methods": (), "calibrator": None, "threshold": None, "states": False}
    return [Target("ScoredModel.from_pretrained", loaded, {"model_or_path": "almanac"} | how | more, weight=0.02)]
