"""The headline of a sentence by hand: the geometric mean of its least sure new phrase and of a typical one."""

from __future__ import annotations

import math

import pytest

import semtoken as st
from semtoken.parts.prose import is_sentence
from semtoken.results.headlines import headline_of

WORDS = [
    *[("Oslo", 0.6), (" has", 0.9), (" snow", 0.4), (" and", 0.95), (" Bergen", 0.8)],
    *[(" has", 0.97), (" rain", 0.7), (".", 0.99)],
]


def scored(open_mass: float) -> st.ScoredResponse:
    """Each word with a rival that has the rest of its step, but for this share of the rest, which stays open."""
    items = []
    for word, p in WORDS:
        own, rival = (
            {"token": word, "logprob": math.log(p)},
            {"token": "@", "logprob": math.log((1 - p) * (1 - open_mass))},
        )
        items.append({**own, "top_logprobs": [own, rival]})
    message = {"role": "assistant", "content": "".join(word for word, _ in WORDS)}
    choice = {"message": message, "logprobs": {"content": items}, "finish_reason": "stop"}
    return st.score_payload({"object": "chat.completion", "choices": [choice]})[0]


def by_hand(*phrases: float) -> float:
    return math.sqrt(min(phrases) * math.prod(phrases) ** (1 / len(phrases)))


def test_a_sentence_by_hand() -> None:
    found = scored(0.5).headline
    assert found.name == "new_phrases" and "snow" in found.sentence and "40 %" in found.sentence
    assert found.confidence == pytest.approx(by_hand(0.6, 0.4, 0.8, 0.7))
    assert found.value == pytest.approx(-math.log(found.confidence))
    low, high = found.confidence_bounds or (0.0, 0.0)
    assert low == pytest.approx(found.confidence, rel=1e-4)
    assert high == pytest.approx(by_hand(0.8, 0.7, 0.9, 0.85), rel=1e-4)  # half of what else there is may agree


def test_phrases_of_the_question_do_not_count() -> None:
    answer = scored(0.5)
    found = headline_of(answer.text, lambda: answer.marks, 8, answer.log_score, None, "Is there snow in Oslo?")
    assert found.confidence == pytest.approx(by_hand(0.8, 0.7)) and "rain" in found.sentence


def test_a_text_is_a_sentence_from_twelve_tokens_on_or_with_its_stop() -> None:
    assert [is_sentence("snow and rain", n) for n in (1, 11, 12)] == [False, False, True]
    assert is_sentence("Oslo has snow.", 4)
