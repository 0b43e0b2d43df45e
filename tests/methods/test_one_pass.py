"""`ScoredModel(..., methods=[...])`: scores of further methods, the same whichever way an answer comes, and their
intervals."""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy, gmean

import semtoken
from semtoken import methods
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.results import ScoredAnswer
from semtoken.core.results.confidence import confidence_of
from semtoken.core.scored_token import TokenMark
from semtoken.errors import BackendError, CalibratorMismatchError, InvalidInputError
from semtoken.methods.observers.method_scores import one_pass_methods, scores_of_steps
from semtoken.methods.observers.steps import Completion, Observer, Step
from semtoken.methods.observers.table import TokenNumbers
from semtoken.support.almanac import load_questions
from semtoken.support.arrays import entropy_bounds, row_divergences, row_entropies
from tests.core.shown import answer
from tests.known import known
from tests.replies.made import chat_reply
from tests.rows import each

CASES = json.loads((Path(__file__).parents[1] / "methods" / "data" / "one_pass_cases.json").read_text("utf-8"))


def numbers_of(rows: np.ndarray, chosen: Sequence[int], first_content_step: int = 0) -> dict[str, float]:
    """The scores by methods that read the rows of an answer alone, from their formulas."""
    normalizers, size = np.zeros(len(chosen)), rows.shape[1]
    entropies, divergences = row_entropies(rows, normalizers, size), row_divergences(rows, normalizers, size)
    logs = rows[np.arange(len(chosen)), chosen]
    return {
        "mean_token_entropy": methods.mean_token_entropy(entropies),
        "max_token_entropy": methods.max_token_entropy(entropies),
        "window_entropy": methods.window_entropy(entropies),
        "trace": methods.trace(entropies, logs),
        "surprise_and_peak": methods.surprise_and_peak(entropies, logs),
        "self_certainty": methods.self_certainty(divergences),
        "first_content_entropy": methods.first_content_entropy(list(rows), first_content_step),
        "lowest_group_confidence": methods.lowest_group_confidence(list(rows)),
        "epr": methods.epr(list(rows)),
    }


@each("case", CASES["cases"], ids=lambda case: case["name"])
def test_worked_cases(case: dict[str, Any]) -> None:
    """The names of the cases end in the settings that are the default ones."""
    rows, chosen = np.array(case["log_probs"]), case["chosen"]
    found = numbers_of(rows, chosen, case["first_content_step"])
    found["rauq"] = methods.rauq(rows[np.arange(len(chosen)), chosen], case["attention_to_previous"])
    expected = {re.sub(r"(_\d+)+$", "", name): value for name, value in case["expected"].items()}
    assert found == pytest.approx(expected, rel=CASES["tolerance"], abs=CASES["tolerance"])


@pytest.fixture(scope="module")
def stc() -> Any:
    return semtoken.ScoredModel.from_pretrained("almanac", device="cpu", methods=one_pass_methods())


PROMPTS = [question.prompt() for question in load_questions("dev")[:2]]


def test_generated_and_read_answers_have_the_same_scores(stc: Any) -> None:
    made = stc.generate(PROMPTS, 8)
    read = stc.score(PROMPTS, [answer.token_ids for answer in made])
    for one, other in zip(made, read, strict=True):
        assert set(one.scores) == set(one_pass_methods()) and not one.score_bounds
        assert other.scores == pytest.approx(one.scores, rel=1e-4, abs=1e-4)
        assert one.scores["stc"] == pytest.approx(one.sequence_uncertainty)
        assert one.scores["perplexity"] == pytest.approx(-one.log_probability / one.n_tokens)
        typical = gmean([token.agreeing_probability for token in one.tokens])
        assert one.scores["length_normalized"] == pytest.approx(1 - typical)
        new_word = one.new_word_confidence(PROMPTS[made.index(one)])
        assert new_word is None or math.exp(-one.scores["mean_new_word"]) == pytest.approx(new_word)
        weakest = min(part.confidence for part in one.parts("phrase"))
        assert math.exp(-one.scores["weakest_phrase"]) == pytest.approx(weakest)
        assert json.loads(one.to_json())["scores"] == pytest.approx(one.scores)


def test_scores_are_those_of_the_rows(stc: Any) -> None:
    """Against a pass of the model itself and the formulas by hand."""
    torch = pytest.importorskip("torch")
    [answer] = stc.generate(PROMPTS[:1], 6)
    prompt = stc.tokenizer(PROMPTS[0])["input_ids"]
    with torch.no_grad():
        logits = stc.model(torch.tensor([prompt + answer.token_ids])).logits[0, len(prompt) - 1 : -1]
    logs = logits[:, : stc.clusters.vocabulary.size].double().log_softmax(-1).numpy()
    entropies = -(np.exp(logs) * logs).sum(axis=1)
    uniform = (logs.mean(axis=1) + np.log(logs.shape[1])).mean()
    top = np.sort(logs, axis=1)[:, :-16:-1]
    of_best = -(np.exp(top) * top).sum(axis=1).mean()
    assert answer.scores["mean_token_entropy"] == pytest.approx(entropies.mean(), rel=1e-3, abs=1e-5)
    assert answer.scores["self_certainty"] == pytest.approx(uniform, rel=1e-4)
    assert answer.scores["epr"] == pytest.approx(of_best, rel=1e-3, abs=1e-5)


def test_an_answer_without_tokens_has_the_worst_score_of_every_method(stc: Any) -> None:
    [answer] = stc.score(PROMPTS[:1], [""])
    assert answer.scores == {name: methods.METHODS[name].range[1] for name in one_pass_methods()}
    assert answer.to_dict()["scores"]["perplexity"] is None


def test_other_methods_are_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(InvalidInputError, match=r"semantic_entropy needs nli_logits.*`semtoken bench run` records it"):
        semtoken.ScoredModel.from_pretrained("/no/such/model", methods=["semantic_entropy"])
    with pytest.raises(InvalidInputError, match="There is no method 'sar2'; of one pass there are stc, "):
        semtoken.ScoredModel.from_pretrained("/no/such/model", methods=["sar2"])


def test_what_the_backend_does_not_give_is_refused_before_the_first_step(stc: Any) -> None:
    class OnlyRows:
        name = "rows"
        gives = frozenset({"log_probability", "entropy", "best", "row", "logits"})

        def __getattr__(self, name: str) -> Any:
            return getattr(stc.backend, name)

    with pytest.raises(BackendError, match="rows backend does not give attention weights"):
        semtoken.ScoredModel(OnlyRows(), clusters=stc.clusters, methods=["rauq"])


# --- intervals from the best tokens ------------------------------------------------------------------------------


@st.composite
def distributions(draw: Any) -> Any:
    size = draw(st.integers(2, 60))
    steps = draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = random.dirichlet(np.full(size, draw(st.sampled_from([0.02, 0.2, 1.0]))), size=steps)
    rows = np.maximum(rows, 1e-12)
    return np.log(rows / rows.sum(axis=1, keepdims=True)), random.integers(0, size, size=steps)


@given(distributions(), st.integers(1, 60), st.booleans())
def test_the_exact_entropy_lies_between_the_bounds(drawn: Any, k: int, sized: bool) -> None:
    rows, _ = drawn
    size = rows.shape[1]
    for row in rows:
        best = np.sort(row)[::-1][: min(k, size)]
        low, high = entropy_bounds(best, size if sized else None)
        exact = -(np.exp(row) * row).sum()
        assert low - 1e-9 <= exact <= high + 1e-9
        if len(best) == size and sized:
            assert high - low <= 1e-9


@each("best, packed", [([0.5, 0.3], [0.2]), ([0.5, 0.15], [0.15, 0.15, 0.05]), ([0.4, 0.2], [0.2, 0.2])])
def test_distributions_that_a_list_allows_reach_both_ends_of_the_entropy(
    best: list[float], packed: list[float]
) -> None:
    """The rest of the mass is on as few tokens as can be, or spread over all others."""
    even = [sum(packed) / 8] * 8
    assert entropy_bounds(np.log(best), 10) == pytest.approx((entropy([*best, *packed]), entropy([*best, *even])))


def listed(row: np.ndarray, token: int, k: int) -> TopStep:
    def entry(i: int) -> TopToken:
        return TopToken(log_prob=float(row[i]), id=int(i))

    return TopStep(chosen=entry(token), top=tuple(entry(i) for i in np.argsort(-row)[:k]))


BOUNDED = ["mean_token_entropy", "max_token_entropy", "window_entropy", "trace", "surprise_and_peak"]
EXACT = ["epr", "lowest_group_confidence", "first_content_entropy"]


def scored(names: Sequence[str], steps: Sequence[TopStep], size: int) -> ScoredAnswer:
    """An answer of such tokens, with the scores by some methods."""
    return scores_of_steps(names, answer(*((" x7", math.exp(step.log_probs[0])) for step in steps)), steps, size)


@given(distributions(), st.integers(21, 30))  # a chosen token that is listed last may not be the next best
def test_exact_values_lie_in_the_intervals_of_lists(drawn: Any, k: int) -> None:
    rows, chosen = drawn
    exact = numbers_of(rows, chosen)
    steps = [listed(row, int(token), k) for row, token in zip(rows, chosen, strict=True)]
    found = scored([*BOUNDED, *EXACT], steps, rows.shape[1])
    for name, value in found.scores.items():
        low, high = found.score_bounds.get(name, (value, value))
        assert low - 1e-6 <= exact[name] <= high + 1e-6, name
        assert name in BOUNDED or low == high, name


def test_a_chosen_token_behind_the_listed_ones_is_none_of_the_best() -> None:
    logs = np.log(np.array([0.3, 0.2, *[0.05] * 8, *[0.002] * 50]))
    step = listed(logs, 40, 14)
    assert step.names[0] not in step.names[1:]
    with pytest.raises(InvalidInputError, match="and of step 0 only 14"):
        scored(["epr"], [step], 60)
    last = TopStep(step.chosen, (*step.top, step.chosen))
    with pytest.raises(InvalidInputError, match="and of step 0 only 14"):
        scored(["epr"], [last], 60)


def test_a_sure_step_of_few_tokens_is_no_whole_distribution() -> None:
    """Rounding makes its probabilities sum to 1, and yet what is not listed decides a mean of log-probabilities."""
    sure = [np.array([0.0, -20.0, -22.0])]
    for method in (methods.lowest_group_confidence, partial(methods.first_content_entropy, step=0)):
        with pytest.raises(InvalidInputError, match="20 best log-probabilities of every step are read"):
            method(sure)
    assert methods.first_content_entropy(sure, 0, best=1) == 0.0
    assert methods.epr([np.array([0.0, -20.0]), np.array([0.0, -21.0, -22.0])]) == pytest.approx(
        (20 * np.exp(-20) + 21 * np.exp(-21) + 22 * np.exp(-22)) / 2
    )


def test_fewer_tokens_than_a_method_reads_are_refused_in_words() -> None:
    rows = np.log(np.full((1, 60), 1 / 60))
    step = listed(rows[0], 0, 5)
    with pytest.raises(InvalidInputError, match="15 best log-probabilities of every step are read, and of step 0 only"):
        scored(["epr"], [step], 60)
    with pytest.raises(InvalidInputError, match="self_certainty cannot be known from the best tokens"):
        scored(["self_certainty"], [step], 60)


# --- everywhere --------------------------------------------------------------------------------------------------


SENTENCE = "The capital of the country that you ask about is the old town of Paris on the river Seine"


def middle(parts: list[Any]) -> float:
    """The geometric mean of the least confidence and the geometric mean of all."""
    confidences = [part.confidence for part in parts]
    return math.sqrt(min(confidences) * math.prod(confidences) ** (1 / len(confidences)))


def test_a_short_answer_is_headed_by_the_product_and_a_sentence_by_its_new_phrases(stc: Any) -> None:
    short, long, blank = stc.score(["Where is the tower?", "What is it?", "What?"], ["Paris", SENTENCE, "\n" * 15])
    assert (short.confidence_method, short.confidence) == ("stc", pytest.approx(1 - short.sequence_uncertainty))
    parts = long.parts("phrase")
    weakest = min(parts, key=lambda part: part.confidence)
    assert long.confidence_method == "new_phrases"
    assert long.explanation.startswith(f"Its least sure part is “{weakest.text}” (")
    assert long.confidence == pytest.approx(middle(parts))
    [asked] = stc.score([f"Is {weakest.text} the capital of a country?"], [SENTENCE])
    new = [part for part in parts if part.text not in (weakest.text, "capital", "country")]
    again = [part for part in asked.parts("phrase") if part.text in {one.text for one in new}]
    assert asked.confidence == pytest.approx(middle(again))
    assert (blank.confidence, blank.scores["confidence"]) == (0.0, math.inf)
    for one in (short, long):
        assert math.exp(-one.scores["confidence"]) == pytest.approx(one.confidence)
    assert math.exp(-long.scores["new_phrases"]) == pytest.approx(long.confidence)
    assert json.loads(long.to_json())["explanation"] == long.explanation


def test_numbers_of_words_are_those_that_the_experiment_scored(stc: Any) -> None:
    """The experiment on the first number has definitions of its own."""
    from research.experiments.headline import candidates

    for question, text in [
        ("What is it?", SENTENCE),
        (f"Is this so: {SENTENCE}?", SENTENCE),
        ("Who is it?", "It is I"),
    ]:
        [answer] = stc.score([question], [text])
        read: Any = types.SimpleNamespace(
            text=answer.text,
            question=question,
            offsets=[(token.start, token.end) for token in answer.tokens],
            log_probs=np.array([token.log_probability for token in answer.tokens]),
            agreeing=np.array([token.log_agreeing_probability for token in answer.tokens]),
        )
        read.surprises = partial(candidates.Answer.surprises, read)
        found = candidates.of_words(read) | {"mean_log_prob": -read.log_probs.mean(), "weakest_token": 0.0}
        found |= candidates.sums(found)
        for name in ("mean_new_word", "weakest_phrase", "phrase_and_mean"):
            assert answer.scores[name] == pytest.approx(found[name]), (name, text)
        assert found["no_new_word"] == (answer.new_word_confidence(question) is None)


@given(
    st.floats(-50, 0),
    st.lists(st.floats(-30, 0), min_size=1, max_size=5),
    st.lists(st.floats(-9, 0), min_size=1, max_size=30),
    st.sampled_from(["Oslo", "Oslo.", "It is Oslo!", "Is it?", '"Oslo."', "奥斯陆。", "a.b"]),
)
def test_the_confidence_is_one_formula_for_short_answers_and_one_for_sentences(
    log_confidence: float, phrases: list[float], logs: list[float], text: str
) -> None:
    found = methods.confidence(log_confidence, phrases, logs, text)
    short = len(logs) < 12 and text in ("Oslo", "a.b")
    assert found == pytest.approx(-log_confidence if short else -(min(phrases) + sum(phrases) / len(phrases)) / 2)


def test_bounds_of_phrases_become_bounds_of_the_confidence() -> None:
    """A sentence of which only the best tokens are known."""
    text = "Paris lies on the river Seine in the north of the country France"
    words = text.split(" ")
    starts = np.cumsum([0] + [len(word) + 1 for word in words[:-1]])
    spans = [(max(int(start) - 1, 0), int(start) + len(word)) for start, word in zip(starts, words, strict=True)]
    marks = [TokenMark(start, end, -0.5, -0.4, (-0.4, -0.1)) for start, end in spans]
    found = confidence_of(text, lambda: marks, len(marks), -5.2, (-5.2, -1.3), "Where is it?")
    # Paris lies, river Seine, north, country France: seven tokens in four phrases
    typical, least = 7 / 4, 2
    assert found.value == pytest.approx(math.exp(-0.4 * (typical + least) / 2))
    assert found.interval == pytest.approx(
        (math.exp(-0.4 * (typical + least) / 2), math.exp(-0.1 * (typical + least) / 2))
    )
    assert found.explanation == "Its least sure part is “Paris lies” (45%)."
    found = confidence_of(text, lambda: marks, len(marks), -5.2, (-5.2, -1.3), "Paris lies on which river up north?")
    assert found.value == pytest.approx(math.exp(-0.4 * 2))  # river Seine, country France
    found = confidence_of(
        text, lambda: marks, len(marks), -5.2, (-5.2, -1.3), "Paris lies on which river Seine up north?"
    )
    assert (
        found.explanation == "Its least sure part is “country France”."
    )  # the only one, whose share is the confidence


def by_method(name: str, value: float) -> ScoredAnswer:
    """An answer with a score by one method."""
    return answer((f"x{value}", 0.9), scores={name: value})


def test_a_calibrator_of_one_method_refuses_another(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    risks = random.normal(0.0, 2.0, 300)  # self-certainty and others go below 0
    right = random.random(300) < 1 / (1 + np.exp(risks))
    answers = [by_method("trace", risk) for risk in risks]
    fitted = semtoken.Calibrator.fit(answers, right, score="trace")
    threshold = semtoken.Threshold.fit(answers, right, score="trace", alpha=0.4)
    fitted.save(tmp_path, threshold)
    found = semtoken.Calibrator.load(tmp_path)
    kept = known(found.threshold)
    assert found.fingerprint.method == kept.fingerprint.method == "trace"
    probabilities = [found.predict_proba(by_method("trace", risk)) for risk in (-3.0, 0.0, 3.0)]
    assert probabilities == sorted(probabilities, reverse=True) and probabilities[0] - probabilities[2] > 0.4
    accepted = [found.decide(by_method("trace", risk)).action for risk in (-4.0, 4.0)]
    assert accepted == ["answer", "abstain"]
    for refuse in (found.predict_proba, kept.decide, lambda one: found.drift([one])):
        with pytest.raises(
            CalibratorMismatchError, match=r"scores by the method trace.* has those by rauq.*--methods trace"
        ):
            refuse(by_method("rauq", 1.0))
    product = semtoken.Calibrator.fit(-np.logaddexp(0.0, risks), right)
    assert product.fingerprint.method is None
    with pytest.raises(CalibratorMismatchError, match="with the method 'trace'; these have 'rauq'"):
        found.fingerprint.require_same(replace(product.fingerprint, method="rauq"))


def headed(surprise: float, *, short: bool) -> ScoredAnswer:
    """An answer of this confidence: a short one, or a sentence with a single phrase, whose product is near 0."""
    others = [(word, math.exp(-5)) for word in (" is", " what", " it", " was", " for", " the")] * 2
    return answer(("Oslo", math.exp(-surprise)), *([] if short else others))


def test_calibrators_thresholds_and_choices_go_by_the_confidence_unless_another_is_named(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    surprises = random.exponential(1.0, 400)
    right = random.random(400) < np.exp(-surprises)
    answers = [headed(one, short=bool(i % 2)) for i, one in enumerate(surprises)]
    fitted = semtoken.Calibrator.fit(answers, right)
    threshold = semtoken.Threshold.fit(answers, right, alpha=0.4)
    assert fitted.fingerprint.method == threshold.fingerprint.method == "confidence"
    least = known(threshold.min_log_score)  # of the confidence, which of a sentence is not the product over its tokens
    assert threshold.accepts(answers).tolist() == [math.log(one.confidence) >= least for one in answers]
    assert threshold.accepts(answers).tolist() != [one.log_confidence >= least for one in answers]
    fitted.save(tmp_path, threshold)
    found = semtoken.Calibrator.load(tmp_path)
    bare = semtoken.Calibrator.fit(-surprises, right)  # numbers have no method
    assert bare.fingerprint.method is None
    for short in (True, False):  # a sentence counts by its confidence, not by its product, which is near 0
        assert found.predict_proba(headed(0.5, short=short)) == pytest.approx(bare.predict_proba(-0.5))
        assert found.decide(headed(0.01, short=short)).action == "answer"
        assert found.decide(headed(30.0, short=short)).action == "abstain"
    chosen = semtoken.select(answers, right, answers, alpha=0.4)
    assert {bool(i % 2) for i in chosen} == {True, False} and max(surprises[chosen]) < np.median(surprises) * 3
    assert semtoken.Calibrator.fit(answers, right, score="stc").fingerprint.method is None


def test_a_payload_has_the_scores_of_its_lists(stc: Any) -> None:
    """Twenty listed tokens of a real answer: exact where the method reads no more, else around the exact value."""
    [exact] = stc.generate(PROMPTS[:1], 6)
    rows = StepRowsKept()
    stc.backend.read(PROMPTS[:1], [exact.token_ids], [rows])
    texts = stc.clusters.vocabulary.texts

    def item(row: np.ndarray, token: int) -> dict[str, Any]:
        return {
            "token": texts[token],
            "logprob": float(row[token]),
            "bytes": list(stc.clusters.vocabulary.pieces[token]),
        }

    content = [
        item(row, token) | {"top_logprobs": [item(row, int(i)) for i in np.argsort(-row)[:20]]}
        for row, token in zip(rows.logs, exact.token_ids, strict=True)
    ]
    reply = chat_reply(exact.text, content)
    names = [name for name in one_pass_methods() if name not in ("rauq", "self_certainty")]
    [found] = semtoken.score_reply(reply, stc.clusters, methods=names, question=PROMPTS[0].rpartition("\n\n")[2])
    assert set(found.scores) == set(names)
    for name in names:
        low, high = found.score_bounds.get(name, (found.scores[name],) * 2)
        assert low - 1e-4 <= exact.scores[name] <= high + 1e-4, name
    typical = (1 - np.array(found.sequence_uncertainty_interval)) ** (1 / found.n_tokens)
    assert found.score_bounds["length_normalized"] == pytest.approx(tuple(1 - typical))
    with pytest.raises(InvalidInputError, match="rauq cannot be known from the best tokens"):
        semtoken.score_reply(reply, stc.clusters, methods=["rauq"])


class StepRowsKept(Observer):
    """Keeps the log-probabilities of every step."""

    def __init__(self) -> None:
        self.logs: list[np.ndarray] = []

    def observe(self, step: Step) -> None:
        row = np.asarray(step.logits, dtype=np.float64)[0, : step.size]
        self.logs.append(row - step.log_normalizers[0])


def test_the_score_of_a_sure_answer_has_no_minus() -> None:
    """-0.0 would be written as "-0.0"."""
    others = [{"token": f" other{i}", "logprob": -60.5 - i} for i in range(20)]
    oslo = {"token": " Oslo", "logprob": 0.0}
    names = [name for name in one_pass_methods() if name not in ("rauq", "self_certainty")]
    [found] = semtoken.score_reply(chat_reply("Oslo", [oslo | {"top_logprobs": [oslo, *others]}]), methods=names)
    scores = found.scores
    assert [name for name, score in scores.items() if score == 0 and math.copysign(1, score) < 0] == []
    assert "weakest_phrase" in scores


def test_wepr_is_the_logistic_function_of_weighted_contributions() -> None:
    chances = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    contributions = -chances * np.log(chances)
    features = [*contributions.mean(axis=0), *contributions.max(axis=0)]
    weights, rows = [0.5, -1.0, 2.0, 1.5, 0.25, -0.75], list(np.log(chances))
    for intercept in (0.0, 0.3, -2.0):
        logit = sum(weight * one for weight, one in zip(weights, features, strict=True)) + intercept
        found = methods.wepr(rows, weights, intercept, best=3)
        assert found == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-12)
    assert methods.wepr(rows, weights, best=3) == methods.wepr(rows, weights, 0.0, best=3)
    assert [methods.wepr(rows, [size] * 6, best=3) for size in (1e5, -1e5)] == [1.0, 0.0]


@each(
    ("texts", "step"),
    [
        ([" the", " sea"], 1),
        (["Oslo", " sea"], 0),
        (["!", " the", "7"], 2),
        (["", "\n", " Paris", "Rome"], 2),
        (["the", " a", "!"], 0),
        (["The"], 0),
    ],
)
def test_the_first_token_with_content_is_found(texts: list[str], step: int) -> None:
    assert methods.first_content_step(texts) == step


def test_numbers_between_bounds_are_given_as_their_middle() -> None:
    class Both(TokenNumbers):
        def numbers(self, step: Step) -> Any:
            return np.array([1.0]), np.array([1.0 if step.tokens[0] == 0 else 4.0])

    watch = Both()
    for token in (0, 1):
        watch.observe(Step([0], [token], 2, np.zeros((1, 2)), [0]))
    watch.finish(0, Completion([0, 1], truncated=False))
    assert watch.of(0).tolist() == [1.0, 2.5]
    low, high = watch.bounds(0) or ([], [])
    assert (list(low), list(high)) == ([1.0, 1.0], [1.0, 4.0])


def test_a_sure_group_of_one_token_has_no_minus() -> None:
    assert math.copysign(1, methods.lowest_group_confidence([[0.0]])) == 1


def test_a_token_of_no_probability_leaves_no_confidence_by_attention() -> None:
    """Where nothing is taken over from the token before it, either."""
    assert methods.rauq([-0.1, -math.inf], np.zeros((1, 1, 1))) == math.inf
    assert math.isfinite(methods.rauq([-0.1, -math.inf], np.ones((1, 1, 1))))
