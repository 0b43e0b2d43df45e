"""The confidence of a sentence by hand: the geometric mean of its least sure new phrase and of a typical one."""

from __future__ import annotations

import math

import pytest

import semtoken as st
from semtoken.core.parts.part import Part
from semtoken.core.parts.prose import is_sentence
from semtoken.core.results.confidence import confidence_of, confidence_of_field
from tests.replies.made import chat_reply

WORDS = [
    *[("Oslo", 0.6), (" has", 0.9), (" snow", 0.4), (" and", 0.95), (" Bergen", 0.8)],
    *[(" has", 0.97), (" rain", 0.7), (".", 0.99)],
]


def scored(open_mass: float) -> st.ScoredAnswer:
    """Each word with a rival that has the rest of its step, but for this share of the rest, which stays open."""
    items = []
    for word, p in WORDS:
        own, rival = (
            {"token": word, "logprob": math.log(p)},
            {"token": "@", "logprob": math.log((1 - p) * (1 - open_mass))},
        )
        items.append({**own, "top_logprobs": [own, rival]})
    return st.score_reply(chat_reply("".join(word for word, _ in WORDS), items))[0]


def by_hand(*phrases: float) -> float:
    return math.sqrt(min(phrases) * math.prod(phrases) ** (1 / len(phrases)))


def test_a_sentence_by_hand() -> None:
    found = scored(0.5)
    assert found.confidence_method == "new_phrases"
    assert "snow" in found.explanation and "40%" in found.explanation
    assert found.confidence == pytest.approx(by_hand(0.6, 0.4, 0.8, 0.7))
    low, high = found.confidence_interval
    assert low == pytest.approx(found.confidence, rel=1e-4)
    assert high == pytest.approx(by_hand(0.8, 0.7, 0.9, 0.85), rel=1e-4)  # half of what else there is may agree


def test_phrases_of_the_question_do_not_count() -> None:
    answer = scored(0.5)
    found = confidence_of(answer.text, lambda: answer.marks, 8, answer.log_confidence, None, "Is there snow in Oslo?")
    assert found.value == pytest.approx(by_hand(0.8, 0.7)) and "rain" in found.explanation


def test_a_text_is_a_sentence_from_twelve_tokens_on_or_with_its_stop() -> None:
    assert [is_sentence("snow and rain", n) for n in (1, 11, 12)] == [False, False, True]
    assert is_sentence("Oslo has snow.", 4)


def json_reply(pieces: list[tuple[str, float]], ends: str = "5") -> st.ScoredAnswer:
    """An answer of tokens with their probabilities; each has one rival, which has the rest of its step."""
    items = []
    for text, p in pieces:
        own = {"token": text, "logprob": math.log(p)}
        items.append({**own, "top_logprobs": [own, {"token": ends, "logprob": math.log1p(-p)}]})
    asked = {"messages": [{"role": "user", "content": "Which total has Ann? 3?"}]}
    reply = chat_reply("".join(text for text, _ in pieces), items)
    return st.score_reply(reply, request=asked, methods=["confidence"])[0]


SHORT_JSON = [('{"', 0.99), ("total", 0.3), ('":', 0.9), ("3", 0.2), ("}", 0.8)]
LONG_JSON = [*SHORT_JSON[:-1], (',"', 0.9), ("name", 0.5), ('":"', 0.9), ("Ann", 0.7), ('"}', 0.8)]


@pytest.mark.parametrize("thinking", [[], [("<think>", 0.9), ('{"total":1}', 0.1), ("</think>", 0.9), ("\n", 0.9)]])
@pytest.mark.parametrize(("pieces", "ends"), [(SHORT_JSON, 0.8), (LONG_JSON, 0.9)])
def test_of_json_the_least_sure_field_leads(
    pieces: list[tuple[str, float]], ends: float, thinking: list[tuple[str, float]]
) -> None:
    """A number's confidence is p("3") times the probability that it ends there; keys and the question play no part."""
    answer = json_reply([*thinking, *pieces])
    assert answer.confidence == pytest.approx(0.2 * ends) and answer.confidence_method == "new_phrases"
    assert answer.explanation == "Its least sure field is /total, “3”."
    assert math.exp(-answer.scores["confidence"]) == pytest.approx(answer.confidence)
    held = answer.without_quotes()
    assert "3" not in held.explanation and held.confidence == answer.confidence
    if not thinking:
        assert answer.confidence == min(part.confidence or 0.0 for part in answer.parts("field"))


def test_a_field_that_cannot_be_has_the_confidence_0() -> None:
    found = confidence_of_field(Part(0, 1, "3", "number", "/a", confidence=0.0))
    assert (found.value, found.interval) == (0.0, (0.0, 0.0))


def test_json_without_a_field_is_an_answer_like_others() -> None:
    answer = json_reply([("[", 0.9), ("]", 0.8)])
    assert answer.confidence_method == "stc" and answer.confidence == pytest.approx(0.72)


@pytest.mark.parametrize("log_confidence", [0.0, -0.0])
def test_an_answer_that_is_certain_has_the_confidence_1(log_confidence: float) -> None:
    found = confidence_of("Oslo", list, 1, log_confidence)
    assert (found.value, found.interval) == (1.0, (1.0, 1.0))
