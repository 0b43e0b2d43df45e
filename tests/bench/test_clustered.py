"""STC scores of stored answers: those of the generation, by any number of clusterings from one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.bench.statistics import AnswerSettings, Timings, record_greedy
from semtoken.bench.statistics.decoding import NORMALIZERS, READING, clustered_scores
from semtoken.bench.statistics.steps import STC_STEPS
from semtoken.core import Scorer, scorer_for
from semtoken.core.rules import ScoringRules
from semtoken.support.almanac import load_questions
from tests.bench import statistics_models as models

STEP_OF_SCORE = {field: step for step in STC_STEPS for field in step.fills if field.endswith("_log_score")}
FIELDS = set(STEP_OF_SCORE)


def scorers(stc: Any) -> dict[str, Scorer]:
    return {
        field: scorer_for(stc.clusters, replace(stc.rules, **(step.rules or {})))
        for field, step in STEP_OF_SCORE.items()
    }


def log_confidences(found: dict[str, list[st.ScoredAnswer]]) -> dict[str, list[float]]:
    return {name: [one.log_confidence for one in answers] for name, answers in found.items()}


@pytest.mark.parametrize("preset", ["paper", pytest.param("default", marks=pytest.mark.slow)])
def test_the_almanacs_scores_are_those_of_its_generation(preset: Any) -> None:
    stc = st.ScoredModel.from_pretrained("almanac", device="cpu", preset=preset)
    prompts = [stc.tokenizer(question.prompt())["input_ids"] for question in load_questions("dev")[:5]]
    generations = record_greedy(stc, prompts, FIELDS, AnswerSettings(batch_size=16), Timings())
    answers = [generation.token_ids for generation in generations]
    found = log_confidences(clustered_scores(stc, prompts, answers, scorers(stc), Timings(), batch_size=3))
    for name in FIELDS:
        expected = [getattr(generation, name) for generation in generations]
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
    scored = stc.generate([question.prompt() for question in load_questions("dev")[:5]], stop_at_newline=True)
    np.testing.assert_allclose(found["stc_log_score"], [one.log_confidence for one in scored], rtol=1e-4, atol=1e-5)


def test_many_clusterings_share_one_pass_and_each_has_its_own_seconds() -> None:
    stc = models.answering()
    vocabulary = stc.clusters.vocabulary
    generator = np.random.default_rng(1)
    others = {
        f"variant {count}": scorer_for(
            st.TokenClusters(generator.integers(0, count, vocabulary.size), vocabulary), ScoringRules("paper")
        )
        for count in (2, 30, 300)
    }
    prompts = [stc.tokenizer(question)["input_ids"] for question in models.QUESTIONS]
    answers = [[5, 300, 17, 40][: 1 + i % 4] for i in range(len(prompts))]
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    handle = stc.model.register_forward_hook(count)
    clustered_scores(stc, prompts, answers, {}, Timings(), batch_size=3)  # a hook may change a model: it is tried again
    passes = 0
    clustered_scores(stc, prompts, answers, {}, Timings(), batch_size=3)
    alone, passes = passes, 0
    timings = Timings()
    found = log_confidences(clustered_scores(stc, prompts, answers, others, timings, batch_size=3))
    handle.remove()
    assert passes == alone
    assert timings.seconds.keys() == {READING, NORMALIZERS, *others}
    for name, scorer in others.items():
        single = st.ScoredModel(stc.model, stc.tokenizer, scorer.clusters, preset="paper")
        expected = [one.log_confidence for one in single.score(list(models.QUESTIONS), answers)]
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
    assert len({tuple(np.round(values, 6)) for values in found.values()}) == len(others)


def test_no_answers_give_no_scores() -> None:
    stc = models.answering()
    assert clustered_scores(stc, [], [], scorers(stc), Timings()) == {name: [] for name in FIELDS}
