"""Calibrators: probabilities, bounds, refusals, measures and drift."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as some
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

import semtoken as st
from semtoken.choices import CurveName
from semtoken.core.results import ScoredAnswer, ScoredToken
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees import Fingerprint
from semtoken.guarantees.answer_records import AnswerRecord, answer_record
from semtoken.guarantees.cross_validation import cross_validated
from semtoken.guarantees.curves import clipped, fit_beta, fit_venn_abers, log_complement, smoothed_targets
from semtoken.guarantees.drift import drift
from semtoken.guarantees.exact import forecast
from semtoken.guarantees.labeling import label_order
from semtoken.guarantees.labels import labeled
from semtoken.guarantees.measures import report
from semtoken.stream import stream_generate
from semtoken.support.almanac import load_questions
from tests.guarantees.made_up import simulated
from tests.guarantees.worlds import WORLDS
from tests.rows import each

METHODS: tuple[CurveName, ...] = ("blend", "beta", "venn-abers", "platt", "temperature")


def drawn(n: int, world: str = "overconfident", seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return WORLDS[world].draw(np.random.default_rng(seed), n)


def response(log_confidence: float, text: str = "Paris", **changes: Any) -> ScoredAnswer:
    token = ScoredToken(
        id=1,
        text=text,
        start=0,
        end=len(text),
        log_probability=log_confidence,
        log_surface_probability=log_confidence,
        log_meaning_probability=log_confidence,
        log_agreeing_probability=log_confidence,
        neutral=False,
        cluster_probability=math.exp(log_confidence),
        prefix_probability=0.0,
        neutral_probability=0.0,
        alternatives=(),
    )
    answer = ScoredAnswer(
        text=text,
        tokens=(token,),
        log_confidence=log_confidence,
        preset="default",
        distribution="raw",
        neutral_only=False,
        signature="k:4|vocab:abc|preset:default|words:paper",
    )
    return replace(answer, **changes)


@each("method", METHODS)
@each("n", [30, 200])
def test_chances_lie_within_what_n_labels_can_show(method: CurveName, n: int) -> None:
    calibrator = st.Calibrator.fit(*drawn(n), curve=method)
    scores = -np.geomspace(1e-12, 1e4, 400)
    probabilities = calibrator.predict_proba(scores)
    assert (probabilities >= 1 / (n + 2) - 1e-12).all() and (probabilities <= (n + 1) / (n + 2) + 1e-12).all()
    bounds = calibrator.predict_proba_interval(scores)
    assert (bounds[:, 0] <= probabilities).all() and (probabilities <= bounds[:, 1]).all()
    assert (np.diff(probabilities) <= 1e-12).all(), "a lower score never has a higher probability"


def test_blend_is_the_mean_of_its_parts() -> None:
    scores, correct = drawn(100)
    new = -np.geomspace(1e-6, 20, 50)
    wanted = (fit_beta(scores, correct)(new) + fit_venn_abers(scores, correct)(new)) / 2
    found = st.Calibrator.fit(scores, correct).predict_proba(new)
    np.testing.assert_allclose(found, np.clip(wanted, 1 / 102, 101 / 102), atol=1e-12)


def test_one_answer_or_a_list() -> None:
    calibrator = st.Calibrator.fit(*drawn(100))
    assert (
        calibrator.predict_proba(-0.5)
        == calibrator.predict_proba([-0.5])[0]
        == calibrator.predict_proba(response(-0.5))
    )
    assert calibrator.predict_proba_interval(-0.5) == tuple(calibrator.predict_proba_interval([response(-0.5)])[0])


@each(
    "held",
    [
        tuple,
        lambda given: np.array(given, dtype=object),
        lambda given: pd.Series(given, index=range(7, 7 + len(given))),
        lambda given: dict(enumerate(given)).values(),
    ],
)
def test_answers_may_be_in_a_column_of_a_table(held: Callable[[list[Any]], Any]) -> None:
    """They were refused with 'not ScoredAnswer'; a signature that differs between them has to be found there, too."""
    scores, correct = drawn(60)
    given = [response(score, text=f"answer {i}") for i, score in enumerate(scores.tolist())]
    calibrator = st.Calibrator.fit(given, correct, alpha=0.5)
    found = st.Calibrator.fit(held(given), correct, alpha=0.5)
    assert replace(found, created=calibrator.created) == calibrator
    np.testing.assert_array_equal(calibrator.predict_proba(held(given)), calibrator.predict_proba(given))
    assert calibrator.report(held(given), correct) == calibrator.report(given, correct)
    assert st.select(held(given), correct, held(given[:9])) == st.select(given, correct, given[:9])
    others = [*given, response(-0.5, text="else", signature="k:9|preset:default")]
    with pytest.raises(InvalidInputError, match="scored in different ways"):
        st.Calibrator.fit(held(others), [*correct, 1])


def test_bytes_are_no_scores() -> None:
    """They are sequences of numbers, and two zeros were two answers that are sure."""
    with pytest.raises(InvalidInputError, match="Scores must be"):
        st.Calibrator.fit(*drawn(60)).predict_proba(b"\0\0")


def test_prompts_may_be_read_once_only() -> None:
    scores, correct = drawn(60)
    given = [response(score, text=f"answer {i}") for i, score in enumerate(scores.tolist())]
    prompts = [f"question {i}" for i in range(60)]
    read_once: Any = iter(prompts)
    once = st.Calibrator.fit(given, correct, prompts=read_once, alpha=0.5)
    assert once.labeled == st.Calibrator.fit(given, correct, prompts=prompts).labeled != ()


def test_a_blank_answer_has_no_probability() -> None:
    calibrator = st.Calibrator.fit(*drawn(100))
    assert math.isnan(calibrator.predict_proba(-math.inf))
    assert np.isnan(calibrator.predict_proba_interval([-math.inf, -1.0])[0]).all()


@given(data=some.lists(some.tuples(some.integers(0, 12), some.booleans()), min_size=2, max_size=25))
def test_venn_abers_is_two_isotonic_fits_for_every_place(data: list[tuple[int, bool]]) -> None:
    """Against min-max formulas of isotonic regression, computed for each new score by itself."""
    scores = -np.array([score for score, _ in data], dtype=float) - 0.5
    correct = np.array([float(right) for _, right in data])
    curve = fit_venn_abers(scores, correct)
    for new in (-20.0, -0.1, *scores[:4], *(scores[:4] + 0.25)):
        p0, p1 = curve.pair([new])
        assert p0[0] == pytest.approx(isotonic_at(np.append(scores, new), np.append(correct, 0.0)), abs=1e-12)
        assert p1[0] == pytest.approx(isotonic_at(np.append(scores, new), np.append(correct, 1.0)), abs=1e-12)


def isotonic_at(scores: np.ndarray, labels: np.ndarray) -> float:
    """The isotonic fit at the last answer: the largest over starts of the smallest over ends of the block means."""
    place = scores[-1]
    starts, ends = np.unique(scores[scores <= place]), np.unique(scores[scores >= place])
    return max(min(float(labels[(scores >= a) & (scores <= b)].mean()) for b in ends) for a in starts)


def test_venn_abers_of_many_labels_takes_one_walk() -> None:
    """Against scikit-learn at some places; one regression for every place took minutes for so many."""
    scores, correct = drawn(50_000)
    began = perf_counter()
    curve = fit_venn_abers(scores, correct)
    assert perf_counter() - began < 10
    for new in np.random.default_rng(0).choice(scores, 20):
        for label, found in enumerate(curve.pair([new])):
            fitted = IsotonicRegression().fit(np.append(scores, new), np.append(correct, label))
            assert found[0] == pytest.approx(fitted.predict([new])[0], abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_beta_is_logistic_regression_without_penalty(seed: int) -> None:
    scores, correct = drawn(300, "score is a probability", seed)
    found = fit_beta(scores, correct)
    logs = clipped(scores)
    features = np.stack([logs, -log_complement(logs)], axis=1)
    target = smoothed_targets(correct)
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000)
    model.fit(np.tile(features, (2, 1)), np.repeat([1, 0], 300), sample_weight=np.concatenate([target, 1 - target]))
    if found.a > 0 and found.b > 0:
        np.testing.assert_allclose([found.a, found.b, found.m], [*model.coef_[0], model.intercept_[0]], rtol=1e-3)
    else:
        assert model.coef_.min() < 1e-3, "a slope held at zero would be negative if it were free"


def test_twenty_labels_still_spread_over_the_range() -> None:
    """scikit-learn's default penalty flattens the slope; ours must not."""
    scores, correct = drawn(60, "score is a probability", 3)
    probabilities = st.Calibrator.fit(scores, correct, curve="platt").predict_proba([-8.0, -1e-3])
    confidence = np.exp(scores)[:, None]
    flat = LogisticRegression().fit(confidence, correct).predict_proba([[math.exp(-8)], [math.exp(-1e-3)]])[:, 1]
    assert probabilities[1] - probabilities[0] > flat[1] - flat[0]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_too_few_labels_says_how_many_are_missing() -> None:
    scores, correct = drawn(29)
    with pytest.raises(InvalidInputError, match="label 1 more"):
        st.Calibrator.fit(scores, correct)


@each(("right", "missing"), [(0, 5), (4, 1), (5, 0), (25, 0), (26, 1), (30, 5)])
def test_a_calibrator_needs_five_right_and_five_wrong_answers(right: int, missing: int) -> None:
    scores, correct = -np.arange(1, 31) / 10, [1] * right + [0] * (30 - right)
    with pytest.raises(InvalidInputError, match=f"{missing} more are missing") if missing else nullcontext():
        assert st.Calibrator.fit(scores, correct).n_correct == right


def test_blank_answers_are_no_labels() -> None:
    scores, correct = drawn(30)
    with pytest.raises(InvalidInputError, match="There are 29"):
        st.Calibrator.fit([*scores[:29], -math.inf], correct)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, c: (s, c[:-1]), "one label"),
        (lambda s, c: (s, [math.nan, *c[1:]]), "true or false"),
        (lambda s, c: (s, [0.5, *c[1:]]), "true or false"),
        (lambda s, c: ([math.nan, *s[1:]], c), "at most 0"),
        (lambda s, c: ([0.2, *s[1:]], c), "Give `log_confidence`"),
        (lambda s, c: (["one", *s[1:]], c), "Scores must be"),
    ],
    ids=["lengths", "NaN label", "half a label", "NaN score", "positive score", "text"],
)
def test_input_that_cannot_be_used(change: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        st.Calibrator.fit(*change(*drawn(50)))
    with pytest.raises(InvalidInputError, match=message):
        st.Threshold.fit(*change(*drawn(50)))


def test_repeated_answers_are_refused() -> None:
    scores, correct = drawn(50)
    answers = [response(score) for score in scores]
    st.Calibrator.fit(answers, correct)
    with pytest.raises(InvalidInputError, match="Answers 7 and 50 are the same"):
        st.Calibrator.fit([*answers, answers[7]], [*correct, 1])
    with pytest.raises(InvalidInputError, match="Answers 0 and 1 are the same"):
        st.Threshold.fit(answers, correct, prompts=["Capital of France?"] * 50)


def test_scores_of_another_kind_are_refused() -> None:
    scores, correct = drawn(50)
    calibrator = st.Calibrator.fit([response(score) for score in scores], correct)
    for changed, named in (
        ({"signature": "k:9"}, "k:9"),
        ({"distribution": "processed"}, "processed"),
        ({"log_confidence_interval": (-1.0, -0.5)}, "top-k"),
    ):
        with pytest.raises(CalibratorMismatchError, match=named):
            calibrator.predict_proba(response(-0.5, **changed))
        with pytest.raises(InvalidInputError, match="different ways"):
            st.Calibrator.fit([response(s) for s in scores] + [response(-0.5, **changed)], [*correct, 1])
    with pytest.raises(CalibratorMismatchError, match=r"20.*5"):
        Fingerprint(k=20).require_same(Fingerprint(k=5))


def test_two_of_several_ways_of_scoring_are_named() -> None:
    answers = [response(-0.5, signature=f"preset:{name}") for name in "abc"]
    with pytest.raises(InvalidInputError, match=r"different ways: \('preset:a\|.*\) and \('preset:b\|"):
        st.Calibrator.fit(answers * 20, [1, 0] * 30, prompts=range(60))


def test_other_precision_is_flagged_not_refused() -> None:
    known = Fingerprint(dtype="bfloat16", engine="vllm 0.9")
    scores, correct = drawn(50)
    calibrator = st.Calibrator.fit([response(s) for s in scores], correct, fingerprint=known)
    assert calibrator.flags(response(-0.5), known) == ()
    flags = calibrator.flags(response(-0.5), replace(known, dtype="float32"))
    assert [flag.code for flag in flags] == ["calibrated_elsewhere"]
    assert "bfloat16" in flags[0].message and "float32" in flags[0].message


# --- measures and drift ----------------------------------------------------------------------------------------------


def test_the_report_agrees_with_scikit_learn() -> None:
    calibrator = st.Calibrator.fit(*drawn(300))
    scores, correct = drawn(400, seed=9)
    report = calibrator.report(scores, correct)
    probabilities = calibrator.predict_proba(scores)
    assert not report.cross_validated
    assert report.brier.value == pytest.approx(brier_score_loss(correct, probabilities))
    assert report.log_loss.value == pytest.approx(log_loss(correct, probabilities))
    base = np.full(400, calibrator.n_correct / 300)
    assert report.brier_gain.value == pytest.approx(report.brier.value - brier_score_loss(correct, base))
    assert report.log_loss_gain.high < 0, "scores that tell right from wrong beat the base rate"
    assert sum(b.n for b in report.bins) == 400
    assert all(b.low <= b.right <= b.high for b in report.bins)


def test_on_its_own_answers_the_report_cross_validates() -> None:
    scores, correct = drawn(200)
    calibrator = st.Calibrator.fit(scores, correct)
    report = calibrator.report(scores, correct)
    probabilities, _ = cross_validated(labeled(scores, correct), "blend", folds=10)
    assert report.cross_validated
    assert report.brier.value == pytest.approx(brier_score_loss(correct, probabilities))
    assert report.brier.value > brier_score_loss(correct, calibrator.predict_proba(scores)), "seen answers look better"


@pytest.mark.parametrize("method", METHODS)
def test_cross_validated_chances_are_those_of_calibrators_of_the_other_folds(method: CurveName) -> None:
    scores, correct = drawn(120)
    probabilities, base = cross_validated(labeled(scores, correct), method, folds=4, seed=3)
    for held in np.array_split(np.random.default_rng(3).permutation(120), 4):
        rest = np.setdiff1d(np.arange(120), held)
        theirs = st.Calibrator.fit(scores[rest], correct[rest], method).predict_proba(scores[held])
        assert probabilities[held] == pytest.approx(theirs, abs=1e-12)
        assert base[held] == pytest.approx(correct[rest].mean())


def test_own_answers_are_known_when_they_are_scored_again() -> None:
    """Another batch size changes the digits of every score; the answers are the same."""
    scores, correct = drawn(100)
    generator = np.random.default_rng(5)

    def records(values: np.ndarray, first: int = 0) -> list[AnswerRecord]:
        return [
            answer_record(str(i), {"log_confidence": score, "question": f"q{i + first}", "response": "yes"})
            for i, score in enumerate(values.tolist())
        ]

    calibrator = st.Calibrator.fit(records(scores), correct)
    again = np.minimum(scores * (1 + generator.normal(0, 0.1, 100)), 0.0)
    assert calibrator.report(records(again), correct).cross_validated
    assert not calibrator.report(records(scores, first=1000), correct).cross_validated, "equal scores, other questions"
    assert calibrator.report(records(again)[:60], correct[:60]).cross_validated, "a part of them"
    with pytest.raises(InvalidInputError, match="too few to cross-validate"):
        calibrator.report(records(again)[:20], correct[:20])
    bare = st.Calibrator.fit(scores, correct)
    assert bare.report(np.minimum(scores + generator.normal(0, 1e-4, 100), 0.0), correct).cross_validated
    assert not bare.report(*drawn(100, seed=9)).cross_validated


def test_intervals_of_five_answers_to_a_question_are_those_of_the_questions() -> None:
    """Five equal answers to each question say no more than one; drawn singly they would seem to."""
    calibrator = st.Calibrator.fit(*drawn(300))
    scores, correct = drawn(100, seed=9)
    questions = np.repeat([f"q{i}" for i in range(100)], 5)
    one = calibrator.report(scores, correct)
    five = calibrator.report(np.repeat(scores, 5), np.repeat(correct, 5), prompts=questions.tolist())
    naive = calibrator.report(np.repeat(scores, 5), np.repeat(correct, 5))
    assert (five.brier.low, five.brier.high) == pytest.approx((one.brier.low, one.brier.high))
    assert naive.brier.high - naive.brier.low < 0.55 * (one.brier.high - one.brier.low)


@each("questions", [["q"] * 200, ["q"] * 199 + ["r"]], ids=["one question", "one and another"])
def test_questions_that_leave_nothing_to_fit_on_are_too_few(questions: list[str]) -> None:
    scores, correct = drawn(200)
    with pytest.raises(
        InvalidInputError, match=f"Too few different questions to cross-validate: {len(set(questions))}"
    ):
        st.Calibrator.fit(scores, correct).report(scores, correct, prompts=questions)


@each("prompts", [1, "x" * 200, ["q"] * 199, iter("q")], ids=["a number", "a text", "one less", "an iterator"])
def test_prompts_that_are_none_for_each_answer_are_refused(prompts: Any) -> None:
    scores, correct = drawn(200)
    for call in (st.Calibrator.fit, st.Threshold.fit, st.Calibrator.fit(scores, correct).report):
        with pytest.raises(InvalidInputError, match="prompts"):
            call(scores, correct, prompts=prompts)


def test_a_score_or_clusters_of_another_kind_are_refused_by_name() -> None:
    scores, correct = drawn(200)
    for fit in (st.Calibrator.fit, st.Threshold.fit):
        with pytest.raises(InvalidInputError, match="'score'"):
            fit(scores, correct, score=np.zeros(2))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'clusters'"):
        st.Calibrator.fit(scores, correct, clusters=[0, 1])  # type: ignore[arg-type]


def test_scores_that_know_nothing_do_not_beat_the_base_rate() -> None:
    generator = np.random.default_rng(4)
    scores, correct = -generator.exponential(1, 150), generator.integers(0, 2, 150).astype(float)
    report = st.Calibrator.fit(scores, correct).report(scores, correct)
    assert report.log_loss_gain.high > 0


def test_all_is_drawn_with_seed_0_unless_another_is_told() -> None:
    scores, correct = drawn(60, "good model")
    calibrator = st.Calibrator.fit(scores, correct)
    every: list[Callable[..., Any]] = [
        lambda **seed: drift(scores, scores[:40] - 0.1, **seed),
        lambda **seed: calibrator.drift(scores[:40], **seed),
        lambda **seed: calibrator.report(scores[1:], correct[1:], **seed).brier,
        lambda **seed: report(np.exp(scores), correct * 0 + 0.5, correct, cross_validated=False, **seed).brier,
        lambda **seed: label_order(scores.tolist(), **seed),
        lambda **seed: forecast(-scores[:12], correct[:12], 0.3, 0.2, **seed),
    ]
    for one in every:
        assert one() == one(seed=0) != one(seed=1)


@pytest.mark.slow
def test_the_interval_of_the_drift_holds_the_true_distance() -> None:
    """Normal scores shifted by 0.5: the true distance is 2 Phi(0.25) - 1 = 0.1974; and no shift at all: 0."""
    generator = np.random.default_rng(0)
    for shift, truth in ((0.5, 0.19741), (0.0, 0.0)):
        pairs = [(generator.normal(0, 1, 200), generator.normal(shift, 1, 150)) for _ in range(40)]
        intervals = [drift(a, b) for a, b in pairs]
        assert sum(d.low <= truth <= d.high for d in intervals) >= 35


# --- in STC ----------------------------------------------------------------------------------------------------------


def fitted_for(stc: st.ScoredModel, **origin: str) -> st.Calibrator:
    """A calibrator with a threshold for the answers of a model, from simulated labels."""
    known: dict[str, Any] = {"signature": stc.scorer.signature, "distribution": "raw", "scores": "exact"}
    made, threshold = simulated(**(known | origin))
    return replace(made, threshold=threshold)


def test_answers_of_a_model_with_a_calibrator_carry_chance_and_decision(
    almanac: st.ScoredModel, tmp_path: Path
) -> None:
    plain = almanac
    prompts = [question.prompt() for question in load_questions("dev")[:6]]
    before = plain.generate(prompts, 8, stop_at_newline=True)
    assert all(one.probability_correct is None and one.decision is None for one in before)
    calibrator = fitted_for(plain)
    assert calibrator.threshold is not None
    middle = float(np.median([one.log_confidence for one in before]))
    calibrator = replace(calibrator, threshold=replace(calibrator.threshold, min_log_score=middle))
    calibrator.save(tmp_path)
    stc = st.ScoredModel.from_pretrained("almanac", calibrator=tmp_path)
    seen: list[Any] = []
    found = stc.generate(prompts, 8, stop_at_newline=True, on_result=lambda _, one: seen.append(one))
    assert seen == found
    for one in found:
        assert one.probability_correct == calibrator.predict_proba(
            one
        ) and one.probability_correct_interval == calibrator.predict_proba_interval(one)
        assert one.decision == calibrator.decide(one)
        assert one.to_dict()["decision"]["action"] in ("answer", "abstain")
        assert f"decision={one.decision.action!r}" in repr(one)
    assert {one.decision.action for one in found if one.decision} == {"answer", "abstain"}
    blank = stc.score(prompts[:1], [""])[0]
    assert blank.probability_correct is None and blank.decision is not None and blank.decision.reason == "empty"
    stream = stream_generate(stc, prompts[0], 8, stop_at_newline=True)
    assert [token.id for token in stream] == found[0].token_ids
    decided = stream.result.decision
    assert decided is not None and found[0].decision is not None
    assert (decided.action, decided.reason) == (found[0].decision.action, found[0].decision.reason)
    assert decided.probability_correct == pytest.approx(
        found[0].probability_correct, rel=1e-4
    )  # one row at a time: other last bits


def test_a_threshold_alone_decides_without_a_probability(almanac: st.ScoredModel) -> None:
    plain = almanac
    threshold = fitted_for(plain).threshold
    [found] = st.ScoredModel.from_pretrained("almanac", threshold=threshold).generate("Question:\nWho?\nAnswer:\n", 4)
    assert (
        found.probability_correct is None and found.decision is not None and found.decision.probability_correct is None
    )
    strict = replace(threshold, min_log_score=0.0)  # type: ignore[type-var]
    stc = st.ScoredModel.from_pretrained("almanac", calibrator=fitted_for(plain), threshold=strict)
    [rejected] = stc.generate("Question:\nWho?\nAnswer:\n", 4)
    assert (
        rejected.decision is not None
        and rejected.decision.action == "abstain"
        and rejected.probability_correct is not None
    )


@pytest.mark.parametrize(
    ("preset", "word"),
    [("paper", "k:9"), ("default", "preset:paper")],
)
def test_a_model_refuses_a_calibrator_of_another(almanac: st.ScoredModel, preset: Any, word: str) -> None:
    """The other one has other clusters under the preset that reads them, or other rules."""
    origin = {"signature": "k:9|preset:paper|words:paper"}
    calibrator = fitted_for(almanac, **origin)
    with pytest.raises(CalibratorMismatchError, match=word):
        st.ScoredModel.from_pretrained("almanac", preset=preset, calibrator=calibrator)
    with pytest.raises(CalibratorMismatchError, match=word):
        st.ScoredModel.from_pretrained("almanac", preset=preset, threshold=calibrator.threshold)


def test_another_precision_is_flagged_in_the_answer(almanac: st.ScoredModel) -> None:
    calibrator = fitted_for(almanac, dtype="int4", model="almanac")
    [found] = st.ScoredModel.from_pretrained("almanac", calibrator=calibrator).generate("Question:\nWho?\nAnswer:\n", 4)
    assert [flag.code for flag in found.flags if "int4" in flag.message] == ["calibrated_elsewhere"]
