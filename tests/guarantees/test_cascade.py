"""Pairs of models: the guarantee, who is asked what, and generations that end early."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples.cascade import Cascade, CascadeThreshold, stop_when_rejected

import semtoken as st
from semtoken.choices import Preset
from semtoken.core.results import ScoredAnswer
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.fingerprint import Fingerprint
from semtoken.guarantees.threshold import Threshold
from semtoken.stream import stream_generate
from semtoken.support.almanac import almanac_clusters_path, almanac_path, load_questions
from tests.guarantees.test_calibrator import response

Draw = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def drawn(generator: np.random.Generator, n: int) -> Draw:
    """Questions of some difficulty; the second model finds them easier. Scores know the difficulty in part."""
    difficulty = generator.normal(0, 1.5, n)
    models = []
    for skill in (0.8, 2.0):
        truth = skill - difficulty
        score = -np.logaddexp(0, -(truth + generator.normal(0, 0.7, n)))
        models += [score, (generator.random(n) < 1 / (1 + np.exp(-2 * truth))).astype(float)]
    return models[0], models[1], models[2], models[3]


def risk(threshold: CascadeThreshold, draw: Draw) -> tuple[float, float, float]:
    """Share of wrong answers among the given ones, coverage, and that of the second model alone at its threshold."""
    first, first_correct, second, second_correct = draw
    if threshold.first is None or threshold.second is None:
        return 0.0, 0.0, 0.0
    own = -first <= threshold.first
    passed_on = ~own & (-second <= threshold.second)
    right = np.where(own, first_correct, second_correct)
    given = own | passed_on
    return 1 - right[given].mean(), given.mean(), passed_on.mean()


def test_the_tests_are_counts_of_the_pair() -> None:
    generator = np.random.default_rng(0)
    labeled, more = drawn(generator, 400), drawn(generator, 300)
    found = CascadeThreshold.fit(*labeled, unlabeled=(more[0], more[2]), alpha=0.15)
    assert found.first is not None and len(found.tests) > 2
    first, first_correct, second, second_correct = labeled
    wrong = accepted = 0
    for i in range(400):
        if -first[i] <= found.first:
            accepted, wrong = accepted + 1, wrong + (first_correct[i] == 0)
        elif -second[i] <= found.second:
            accepted, wrong = accepted + 1, wrong + (second_correct[i] == 0)
    last = [test for test in found.tests if test.p_value <= 0.1][-1]
    assert (last.accepted, last.wrong) == (accepted, wrong)
    assert f"{accepted} answered, {wrong} of them wrong" in found.statement


@pytest.mark.slow
def test_the_guarantee_of_the_pair_is_kept() -> None:
    generator = np.random.default_rng(1)
    truth = drawn(np.random.default_rng(99), 40_000)
    broken, covered = 0, []
    for _ in range(300):
        more = drawn(generator, 250)
        found = CascadeThreshold.fit(*drawn(generator, 300), unlabeled=(more[0], more[2]), alpha=0.15)
        error, coverage, _ = risk(found, truth)
        broken += error > 0.15
        covered.append(coverage)
    assert broken <= 44  # P(Bin(300, 0.1) > 44) = 0.004
    assert np.mean(covered) > 0.3


def test_nothing_to_guarantee() -> None:
    draw = drawn(np.random.default_rng(0), 21)
    more = drawn(np.random.default_rng(1), 200)
    few = CascadeThreshold.fit(*draw, unlabeled=(more[0], more[2]))
    assert few.first is None and "1 are missing" in few.statement
    wrong = CascadeThreshold.fit(more[0], np.zeros(200), more[2], np.zeros(200), unlabeled=(more[0], more[2]))
    assert wrong.first is None and "Nothing can be guaranteed" in wrong.statement
    assert "a larger alpha" in wrong.statement
    assert wrong.decide(response(-0.001), "first").reason == "no_threshold"
    surer = (more[0] / 1e4, more[2] / 1e4)
    none = CascadeThreshold.fit(more[0] - 1, np.ones(200), more[2] - 1, np.ones(200), unlabeled=surer)
    assert none.first is None and "surer than all labeled answers" in none.statement and "alpha" not in none.statement
    with pytest.raises(InvalidInputError, match="150 are missing"):
        CascadeThreshold.fit(*drawn(np.random.default_rng(0), 100), unlabeled=(more[0][:50], more[2]))
    with pytest.raises(InvalidInputError, match="same questions"):
        CascadeThreshold.fit(more[0], more[1], more[2][:9], more[3][:9], unlabeled=(more[0], more[2]))


def saved(whole: list[ScoredAnswer], stopped: list[ScoredAnswer], limit: float) -> int:
    """Tokens saved by ending answers above a limit, after checks that nothing else has changed."""
    for one, other in zip(whole, stopped, strict=True):
        flagged = any(flag.code == "stopped_early" for flag in other.flags)
        assert other.token_ids == one.token_ids[: len(other.token_ids)]
        assert (-one.log_confidence <= limit) == (-other.log_confidence <= limit), (
            "the decision is that of the whole answer"
        )
        assert flagged or other == one
        assert not flagged or -other.log_confidence > limit
    return sum(len(one.tokens) for one in whole) - sum(len(one.tokens) for one in stopped)


@pytest.mark.parametrize(("preset", "batch_size"), [("default", 4), pytest.param("paper", 8, marks=pytest.mark.slow)])
def test_answers_that_can_only_be_rejected_end_early(preset: Preset, batch_size: int) -> None:
    stc = st.ScoredModel.from_pretrained("almanac", preset=preset)
    prompts = [question.prompt() for question in load_questions("dev")[:8]]
    whole = stc.generate(prompts, 12, batch_size=batch_size, min_new_tokens=12)
    limit = float(np.quantile([-one.log_confidence for one in whole], 0.3))
    stopped = stc.generate(prompts, 12, batch_size=batch_size, min_new_tokens=12, stop_above_product=limit)
    assert saved(whole, stopped, limit) > len(prompts)
    few = stc.generate(prompts[:batch_size], 12, batch_size=batch_size, min_new_tokens=12, stop_above_product=1e9)
    assert few == whole[:batch_size]


def test_a_stream_that_can_only_be_rejected_ends_early(almanac: st.ScoredModel) -> None:
    stc = almanac
    prompts = [question.prompt() for question in load_questions("dev")[:3]]
    whole = stc.generate(prompts, 12, min_new_tokens=12, batch_size=1)
    limit = min(-one.log_confidence for one in whole)
    stopped = []
    for prompt in prompts:
        stream = stream_generate(stc, prompt, 12, min_new_tokens=12, stop_above_product=limit)
        tokens = [token.id for token in stream]
        assert tokens == stream.result.token_ids
        stopped.append(stream.result)
    assert saved(whole, stopped, limit) > len(prompts)


def test_only_a_threshold_of_the_product_ends_a_generation(almanac: st.ScoredModel) -> None:
    stc = almanac
    [prompt] = [question.prompt() for question in load_questions("dev")[:1]]
    [whole] = stc.generate([prompt], 12, min_new_tokens=12)
    product = Threshold(whole.log_confidence / 2, "selective_risk", 0.1, 0.1, "", 100, 5)
    [stopped] = stc.generate([prompt], 12, min_new_tokens=12, stop_above_product=product)
    assert len(stopped.tokens) < 12 and stopped.flags[-1].code == "stopped_early"
    for method in ("confidence", "mean_new_word"):
        other = replace(product, fingerprint=Fingerprint(method=method))
        for end in (
            lambda limit: stc.generate([prompt], 12, stop_above_product=limit),
            lambda limit: stream_generate(stc, prompt, 12, stop_above_product=limit),
            lambda limit: stop_when_rejected(st.Recorder(stc.clusters), limit),
        ):
            with pytest.raises(InvalidInputError, match=f'method {method}.*score="stc"'):
                end(other)
    for bad in (-0.1, float("nan"), True):
        with pytest.raises(InvalidInputError, match="stop_above_product"):
            stc.generate([prompt], 12, stop_above_product=bad)


@pytest.mark.slow
def test_a_pair_decides_by_the_confidence_unless_told_otherwise() -> None:
    """Long answers: their confidence is another number than the product, and orders them otherwise."""
    stc = st.ScoredModel.from_pretrained("almanac")
    made = stc.generate([question.prompt() for question in load_questions("dev")[:220]], 14, min_new_tokens=14)
    correct = [i % 9 != 0 for i in range(len(made))]
    for by, numbers in (
        (None, [-math.log(one.confidence) for one in made]),
        ("stc", [-one.log_confidence for one in made]),
    ):
        found = CascadeThreshold.fit(made, correct, made, correct, unlabeled=(made, made), alpha=0.3, score=by)
        assert found.method == (None if by else "confidence") and found.first is not None
        accepted = [found.decide(one, "first").action == "answer" for one in made]
        assert accepted == [number <= found.first for number in numbers] and sum(accepted) > 0
    pair = Cascade(stc, stc, CascadeThreshold.fit(made, correct, made, correct, unlabeled=(made, made), alpha=0.3))
    with pytest.raises(InvalidInputError, match=r"method confidence.*score=\"stc\".*stop_early"):
        pair.answer(["What?"], stop_early=True)


class Counting:
    """A model that counts the tokens that it writes."""

    def __init__(self, stc: st.ScoredModel) -> None:
        self.stc, self.tokens = stc, 0

    def generate(self, prompts: Any, max_new_tokens: int = 256, **options: Any) -> list[ScoredAnswer]:
        found = self.stc.generate(prompts, max_new_tokens, **options)
        self.tokens += sum(len(one.tokens) for one in found)
        return found


def test_a_pair_that_stops_early_decides_alike(almanac: st.ScoredModel) -> None:
    stc = almanac
    prompts = [question.prompt() for question in load_questions("dev")[:8]]
    scores = sorted(-one.log_confidence for one in stc.generate(prompts, 8, min_new_tokens=8))
    models = Counting(stc), Counting(stc)
    pair = Cascade(*models, CascadeThreshold(scores[2], scores[5], 0.1, 0.1, "guarantee", 100))
    whole = pair.answer(prompts, 8, min_new_tokens=8)
    written = [one.tokens for one in models]
    early = pair.answer(prompts, 8, min_new_tokens=8, stop_early=True)
    assert [(one.model, one.decision) for one in early] == [(one.model, one.decision) for one in whole]
    assert {one.model for one in whole if one.decision.action == "answer"} == {"first", "second"}
    for one, other in zip(whole, early, strict=True):
        if one.decision.action == "answer":
            assert other == one
    assert models[0].tokens - written[0] < written[0] == 8 * 8
    assert models[1].tokens - written[1] <= written[1]


class StepRecords:
    """Answers that were made before; remembers what it was asked."""

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores
        self.asked: list[str] = []

    def generate(self, prompts: Any, max_new_tokens: int = 256, **options: Any) -> list[ScoredAnswer]:
        self.asked += list(prompts)
        return [response(self.scores[prompt], text=f"answer to {prompt}") for prompt in prompts]


def test_only_doubtful_prompts_reach_the_second_model() -> None:
    small, large = StepRecords({"a": -0.1, "b": -2.0, "c": -3.0}), StepRecords({"b": -0.1, "c": -5.0})
    found = Cascade(small, large, CascadeThreshold(0.5, 1.0, 0.1, 0.1, "guarantee", 100)).answer(["a", "b", "c"])
    assert small.asked == ["a", "b", "c"] and large.asked == ["b", "c"]
    assert [(one.model, one.decision.action) for one in found] == [
        ("first", "answer"),
        ("second", "answer"),
        ("second", "abstain"),
    ]
    assert found[1].response.text == "answer to b"
    nobody = StepRecords({})
    Cascade(StepRecords({"a": -0.1}), nobody, CascadeThreshold(0.5, 1.0, 0.1, 0.1, "guarantee", 100)).answer(["a"])
    assert nobody.asked == []


def test_answers_of_another_kind_are_refused() -> None:
    more = drawn(np.random.default_rng(1), 200)
    first = [response(score, text=str(i)) for i, score in enumerate(more[0])]
    found = CascadeThreshold.fit(first, more[1], more[2], more[3], unlabeled=(more[0], more[2]), alpha=0.3)
    with pytest.raises(CalibratorMismatchError):
        found.decide(response(-0.1, signature="k:9"), "first")
    found.decide(response(-0.1, signature="k:9"), "second")


def test_a_generation_ends_once_it_can_only_be_rejected() -> None:
    """With the real embedded model: accepted answers are untouched, rejected ones become shorter or stay."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(almanac_path(), padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(almanac_path())
    clusters = st.TokenClusters.from_pretrained(almanac_clusters_path(), tokenizer=tokenizer)
    prompts = [question.prompt() for question in load_questions("dev")[:6]]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)

    def answers(threshold: Threshold | None) -> list[ScoredAnswer]:
        recorder = st.Recorder(clusters)
        criteria = [] if threshold is None else [stop_when_rejected(recorder, threshold)]
        settings = {"min_new_tokens": 8, "max_new_tokens": 8, "do_sample": False, "stopping_criteria": criteria}
        return recorder.answers(model.generate(**inputs, logits_processor=[recorder], **settings))

    whole = answers(None)
    least = float(np.quantile([one.log_confidence for one in whole], 0.8))
    threshold = Threshold(least, "selective_risk", 0.1, 0.1, "", 100, 5)
    stopped = answers(threshold)
    accepted = threshold.accepts(whole)
    assert 0 < accepted.sum() < len(prompts)
    for keep, one, other in zip(accepted, whole, stopped, strict=True):
        if keep:
            assert other.log_confidence == one.log_confidence and other.token_ids == one.token_ids
        else:
            assert len(other.tokens) <= len(one.tokens)
    assert not threshold.accepts([one for one, keep in zip(stopped, accepted, strict=True) if not keep]).any()
    assert sum(len(one.tokens) for one in stopped) < sum(len(one.tokens) for one in whole)
