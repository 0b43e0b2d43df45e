"""Requests to a model, its tokens and their clusters, and the recorder in a `generate` of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any

import numpy as np

import semtoken
from semtoken import Recorder, ScoredModel, TokenClusters, Vocabulary
from semtoken.bench.score_file import read_items, score_items
from semtoken.bench.statistics import AnswerSettings, record
from semtoken.clustering import partition
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.packed_vocabulary import neutral_hash
from semtoken.clustering.token_clusters import ClusterSettings
from semtoken.models import load_backend
from semtoken.models.probing import competing, only_in_form, p_true_log_probs, p_true_prompt, with_choices
from semtoken.support.almanac import is_correct, load_questions, normalize_answer
from semtoken.support.checkpoints import resolve
from tests import tiny, worked
from tests.hostile.functions import Target
from tests.hostile.targets_of_guarantees import folder

PROMPT = "The capital of"


def uncertainty(result: semtoken.ScoredAnswer | Sequence[semtoken.ScoredAnswer]) -> list[float]:
    """The numbers of scored answers, which are between 0 and 1 and in order."""
    found = []
    for one in [result] if isinstance(result, semtoken.ScoredAnswer) else result:
        low, high = one.sequence_uncertainty_interval
        if not low - 1e-12 <= one.sequence_uncertainty <= high + 1e-12:
            raise AssertionError(f"{one.sequence_uncertainty} is outside [{low}, {high}]")
        found += [one.sequence_uncertainty, low, high, *(token.agreeing_probability for token in one.tokens)]
    return found


def of_clusters(clusters: TokenClusters) -> list[Target]:
    """Clusters, and how they are made."""
    vocabulary = clusters.vocabulary
    table = {"table": np.random.default_rng(0).normal(size=(24, 4)), "n_clusters": 5}
    kmeans = table | {"algorithm": "kmeans"}
    made = attrgetter("n_clusters")
    return [
        Target(TokenClusters, {"labels": worked.LABELS, "vocabulary": vocabulary}, 1, len(worked.LABELS), read=made),
        Target(TokenClusters.from_pretrained, {"directory_or_hub_id": "almanac"}, 1, weight=0.1, read=made),
        Target(clusters.cluster_ids, {"token_id": 1}, 0, vocabulary.size),
        Target(clusters.members, {"token": " the"}),
        Target(clusters.find, {"text": "the"}, 0, vocabulary.size),
        Target(clusters.check, {"tokenizer": vocabulary}),
        Target(clusters.save_pretrained, {"directory": folder() / "clusters"}, weight=0.05),
        Target(semtoken.cluster_tokens, table, weight=0.2),
        Target(semtoken.cluster_tokens, kmeans, weight=0.2, named="cluster_tokens by k-means"),
        Target(partition.cluster_table, table, weight=0.2, read=lambda found: [*found.labels.values()]),
        Target(ClusterSettings, {"n_clusters": 5}),
    ]


def of_vocabularies(vocabulary: Vocabulary) -> list[Target]:
    """The tokens of a model and their texts."""
    ids, size = {"token_ids": worked.ids(*worked.ANSWER)}, attrgetter("size")
    return [
        Target(Vocabulary.from_tokenizer, {"tokenizer": tiny.byte_level_bpe()}, weight=0.05, read=size),
        Target(vocabulary_of, {"model_or_path": "almanac", "tokenizer": None}, weight=0.05, read=size),
        Target(vocabulary.decode, ids),
        Target(vocabulary.offsets, ids, 0, 10**6),
        Target(vocabulary.check_ids, ids),
        Target(vocabulary.checked_ids, ids, 0, vocabulary.size),
        Target(vocabulary.tokens_of, {"norm": "the"}, 0, vocabulary.size),
        Target(vocabulary.first, {"size": 7}, 1, vocabulary.size, read=size),
        Target(vocabulary.require_same, {"other": vocabulary}),
        Target(neutral_hash, {"vocabulary": vocabulary}),
    ]


@cache
def small_model() -> ScoredModel:
    """A random model of six hundred tokens."""
    from semtoken.models.transformers.model import TransformersBackend

    tokenizer = tiny.byte_level_bpe()
    return ScoredModel(TransformersBackend(tiny.llama(len(tokenizer)), tokenizer))


def of_models() -> list[Target]:
    """Requests to a model."""
    stc = small_model()
    few = {"prompts": [PROMPT], "max_new_tokens": 2}
    sampling = few | {"do_sample": True, "temperature": 1.0, "top_k": 5, "top_p": 0.9}
    further = few | {"num_return_sequences": 2, "do_sample": True, "logits_processor": [], "eos_token_id": 3}
    by_names = {"state": "s", "questions": {"late": {"type": "predicate", "instructions": "Is it late?"}}}
    given = {"prompts": ["The"], "responses": ["TV"]}
    model = {"model_or_path": "almanac"}

    def read(function: Any, arguments: dict[str, Any], named: str = "") -> Target:
        return Target(function, arguments, 0, 1, weight=0.1, read=uncertainty, named=named)

    return [
        read(stc.generate, few),
        read(stc.generate, sampling, "ScoredModel.generate by chance"),
        read(stc.generate, further, "ScoredModel.generate with options"),
        read(stc.score, given),
        Target(stc.decide, {"state": "s", "questions": []}, weight=0.1),
        Target(stc.decide, by_names, weight=0.1, read=len, named="ScoredModel.decide by names"),
        Target(Recorder, {"vocabulary": stc.tokenizer, "eos_token_id": [3]}, weight=0.1, read=bool),
        Target(Recorder(stc.tokenizer).answers, {"sequences": np.array([[5, 6, 7]])}, refuses=True),
        Target(Recorder(stc.tokenizer).running, {}),
        Target(resolve, {"model": "almanac"}, read=bool),
        Target(load_backend, {"name": "nobody"}, refuses=True, weight=0.1),
        Target(ScoredModel.from_pretrained, model, weight=0.02, read=lambda made: made.methods is not None),
    ]


def of_passes() -> list[Target]:
    """Further questions to a model about an answer that it gave, and how it is asked many."""
    stc = small_model()
    [answer] = stc.generate([PROMPT], 4)
    asked = {"prompt": PROMPT, "answer": answer}
    more = {"n": 4, "max_steps": 2, "doubtful": 0.9, "branch_tokens": 2, "with_agreed": False}
    likely = attrgetter("probability")
    who = {"questions": ["Who?"]}
    return [
        Target(stc.disputed, asked | more, weight=0.1, read=len),
        Target(partial(competing, stc), asked | {"step": 0}, 0, 1, weight=0.1, read=lambda all: [*map(likely, all)]),
        Target(partial(with_choices, stc), asked | {"parts": []}, weight=0.1, read=len),
        Target(only_in_form, {"part": answer.parts("word")[0], "answer": answer, "found": []}, read=bool),
        Target(partial(p_true_log_probs, stc), who | {"answers": ["Ada"]}, high=0, weight=0.1),
        Target(p_true_prompt, {"question": "Who?", "answer": "Ada"}),
        Target(partial(record, stc), who | {"needs": ["log_probs"]}, weight=0.1, read=len),
        Target(AnswerSettings, {"max_new_tokens": 4}),
        Target(partial(score_items, stc), {"items": [], "max_new_tokens": 4}, read=len),
        Target(read_items, {"path": "nowhere.jsonl"}, refuses=True, read=list),
    ]


def of_questions() -> list[Target]:
    """The embedded questions."""
    question = load_questions("dev")[0]
    return [
        Target(is_correct, {"answer_text": "Lima", "question": question}),
        Target(normalize_answer, {"text": "The Lima"}),
        Target(load_questions, {}, weight=0.1, read=len),
    ]
