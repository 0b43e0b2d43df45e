"""Parts of answers that were scored from logits: what counts as the same value, where values end, bounds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

import semtoken as st
from semtoken.core.parts import Part
from semtoken.core.parts.answers import answer_tokens
from semtoken.core.rules import ScoringRules
from semtoken.core.scored_token import Flag
from tests.known import known

WORDS = (
    *("<end>", "January", "July", "july", "Jul", "J", "no", "yes", "No", "the", "not", "month", "\n", "ok", "rest"),
    *('"', '{"', '":', ' "', '"}', "}", ",", '",', "]", '"]', " [", " ", "1", "2", "5", "0", "15", ".", "e"),
)


@pytest.fixture(scope="module")
def clusters() -> Any:
    """Months in one cluster, yes and no apart, as embedding clusters have them."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<end>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<end>"])
    vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
    months = {WORDS.index(word) for word in ("January", "July", "july", "Jul")}
    labels = np.array([1000 if i in months else i for i in range(len(WORDS))], dtype=np.int32)
    return st.TokenClusters(labels, vocabulary)


def scored(clusters: Any, spelled: list[str], given: dict[int, dict[str, float]], rules: Any = "default") -> Any:
    """An answer in which step i has the probabilities `given[i]`, the rest of it on "rest"; other steps are random."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(len(spelled), len(WORDS)))
    for step, probabilities in given.items():
        row = np.full(len(WORDS), 1e-300)
        row[WORDS.index("rest")] = max(1 - sum(probabilities.values()), 1e-300)
        for word, probability in probabilities.items():
            row[WORDS.index(word)] = probability
        rows[step] = np.log(row)
    return st.score_logits(rows, [WORDS.index(word) for word in spelled], clusters, preset=rules)


def only(parts: list[Part]) -> Part:
    [part] = parts
    return part


def test_equal_answers_and_parts_are_one_key_of_a_set(clusters: Any) -> None:
    """Also with scores and values, which are dicts and lists."""
    spelled = ['{"', "month", '":', " [", "1", "]", "}", "<end>"]
    answers = [scored(clusters, spelled, {}).with_fields(scores={"trace": 0.5}) for _ in range(2)]
    assert len({*answers}) == 1 and len({*answers, answers[0].with_fields(text="other")}) == 2
    parts = [answer.parts("field") for answer in answers]
    assert parts[0] and len({*parts[0], *parts[1]}) == len(parts[0])


FIELD = ['{"', "month", '":', ' "', "July", '"}', "<end>"]
JULY = {4: {"July": 0.03, "January": 0.45, "july": 0.02, "Jul": 0.1, "J": 0.2, "the": 0.1}}


def test_january_does_not_count_for_july(clusters: Any) -> None:
    answer = scored(clusters, FIELD, JULY)
    field = only(answer.parts(by="field"))
    assert (field.text, field.equality) == ("July", "surface")
    assert field.product == pytest.approx(0.03 + 0.02)  # July, july; not January, not a beginning
    assert only(answer.parts(by="field", equality="exact")).product == pytest.approx(0.03)
    meaning = only(answer.parts(by="field", equality="meaning"))
    assert meaning.product == pytest.approx(0.03 + 0.02 + 0.1 + 0.45 + 0.2 + 0.1)  # what the paper's rules count


def test_a_function_word_as_a_value_is_not_certain(clusters: Any) -> None:
    spelled = ['{"', "ok", '":', ' "', "no", '"}']
    answer = scored(clusters, spelled, {4: {"no": 0.08, "No": 0.02, "yes": 0.9}}, rules="paper")
    assert answer.tokens[4].agreeing_probability == pytest.approx(1.0)
    assert only(answer.parts(by="field")).product == pytest.approx(0.1)
    no = only(answer.parts(by=lambda text: [(text.index("no"), text.index("no") + 2)], equality="meaning"))
    assert no.has("neutral_only") and no.product == pytest.approx(0.1)


@pytest.mark.parametrize("equality", ["meaning", "surface", "exact"])
def test_prose_is_scored_as_the_answer_is(clusters: Any, equality: Any) -> None:
    answer = scored(clusters, ["July", "<end>"], {0: JULY[4]}, rules=ScoringRules(equality=equality))
    part = only(answer.parts(by="word"))
    assert part.equality == equality
    assert part.product == pytest.approx(answer.tokens[0].agreeing_probability)


def going_on(first: str) -> float:
    """Mass of the tokens at a step that begin so, for the probabilities of `ENDS`."""
    return sum(p for word, p in ENDS.items() if word[:1] in first)


ENDS = {"0": 0.3, "5": 0.05, ".": 0.1, "e": 0.15, ",": 0.2, "}": 0.12, " ": 0.03}


def test_the_end_of_a_number_in_json_and_in_prose(clusters: Any) -> None:
    spelled = ['{"', "ok", '":', "1", "5", "}", "<end>"]
    answer = scored(clusters, spelled, {3: {"1": 0.9}, 4: {"5": 0.8}, 5: ENDS})
    field = only(answer.parts(by="field"))
    assert field.closing == pytest.approx(1 - going_on("0123456789.eE+-"))
    assert field.confidence == pytest.approx(0.9 * 0.8 * known(field.closing))
    number = only(answer.parts(by="number"))
    assert number.closing == pytest.approx(1 - going_on("0123456789"))
    assert number.confidence == pytest.approx(0.72 * known(number.closing))


def test_the_end_of_a_string(clusters: Any) -> None:
    ends = {'"': 0.2, '"}': 0.4, '",': 0.1, "yes": 0.25}
    answer = scored(clusters, FIELD, {**JULY, 5: ends})
    field = only(answer.parts(by="field"))
    assert field.closing == pytest.approx(0.7) and field.closing_token == 5
    assert field.confidence == pytest.approx(field.product)  # a string's end is told beside its confidence


def test_the_end_of_an_array(clusters: Any) -> None:
    spelled = ['{"', "ok", '":', " [", "1", "]", "}"]
    answer = scored(clusters, spelled, {5: {"]": 0.6, ",": 0.2, "5": 0.1}})
    [length] = [part for part in answer.parts(by="field", containers=True) if part.kind == "length"]
    assert length.confidence == pytest.approx(0.6 / 0.8) and length.path == "/ok"


def test_the_best_tokens_alone_give_bounds_around_the_exact_values(clusters: Any) -> None:
    random = np.random.default_rng(1)
    spelled = [*FIELD[:5], '",', ' "', "ok", '":', "1", "5", ",", ' "', "no", '":', " [", "2", "]", "}"]
    rows = random.normal(scale=2.0, size=(len(spelled), len(WORDS)))
    ids = [WORDS.index(word) for word in spelled]
    log_probs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    exact = st.score_logits(rows, ids, clusters)
    steps = [
        (token, {int(i): float(row[i]) for i in {*np.argsort(-row)[:8].tolist(), token}})
        for token, row in zip(ids, log_probs, strict=True)
    ]
    listed = st.score_logprobs(steps, clusters)
    for options in ({"by": "field", "containers": True}, {"by": "word", "equality": "meaning"}, {"by": "number"}):
        ours, theirs = exact.parts(**options), listed.parts(**options)
        assert [part.text for part in ours] == [part.text for part in theirs]
        for part, bounded in zip(ours, theirs, strict=True):
            low, high = known(bounded.bounds)
            assert low - 1e-9 <= known(part.confidence) <= high + 1e-9
            assert low - 1e-9 <= known(bounded.confidence) <= high + 1e-9
            assert part.bounds == (part.confidence, part.confidence)
    assert any(high - low > 1e-3 for low, high in (known(part.bounds) for part in listed.parts("field")))


def test_parts_of_a_constrained_answer(clusters: Any) -> None:
    answer = scored(clusters, FIELD, {4: {"July": 1.0}, 5: {'"}': 1.0}})
    assert only(answer.parts(by="field")).forced == 0
    field = only(answer.parts(by="field", constrained=True))
    assert field.forced == 1 and field.tokens == (4,) and field.confidence == 1.0


@pytest.mark.parametrize(("log_probability", "forced"), [(0.0, True), (-0.9e-7, True), (-1.1e-7, False)])
def test_a_token_is_forced_where_a_grammar_left_no_other(clusters: Any, log_probability: float, forced: bool) -> None:
    answer = scored(clusters, FIELD, {4: {"July": 1.0}, 5: {'"}': 1.0}})
    tokens = [replace(token, log_probability=log_probability) for token in answer.tokens]
    constrained = answer.with_fields(tokens=tokens, flags=(Flag("constrained", "A grammar."),))
    assert set(answer_tokens(constrained).forced) == {forced}
    assert not any(answer_tokens(constrained, constrained=False).forced)


def test_an_empty_answer_has_no_parts(clusters: Any) -> None:
    answer = scored(clusters, ["<end>"], {})
    assert all(answer.parts(by=kind) == [] for kind in ("word", "phrase", "sentence", "number", "field", "tool_call"))


def test_words_add_up_to_the_answer(clusters: Any) -> None:
    answer = scored(clusters, ["July", " ", "yes", " ", "January"], {})
    product = math.prod(part.product for part in answer.parts(by="word", equality="surface"))
    spaces = math.exp(answer.tokens[1].log_surface_probability + answer.tokens[3].log_surface_probability)
    assert product * spaces == pytest.approx(1 - answer.uncertainty_under("surface"))


def test_results_with_value_ends_still_turn_into_json(clusters: Any) -> None:
    answer = scored(clusters, ['{"', "ok", '":', "1", "}"], {})
    ends = json.loads(answer.to_json())["tokens"][4]["value_ends"]
    assert ends["number"][0] == pytest.approx(answer.tokens[4].value_ends.number[0])
