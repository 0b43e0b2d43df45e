"""Every number of an entry, worked out by hand: of an answer, of a decision, and of the random sample."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import pytest

import semtoken as st
from semtoken.guarantees.journal.entries import AnswerOrigin, Recording, SamplingRule
from semtoken.guarantees.journal.kept_texts import TextRule
from tests.known import known

PROBABILITIES = 0.3, 0.45, 0.1, 0.5, 0.2, 0.49, 0.4, 0.9


def scored(*, open_mass: float = 0.0) -> st.ScoredAnswer:
    """Eight tokens of these probabilities, each with one rival that has the rest but for `open_mass` of it."""
    items: list[dict[str, Any]] = []
    for place, p in enumerate(PROBABILITIES):
        rival = {"token": "@", "logprob": math.log((1 - p) * (1 - open_mass))}
        own = {"token": f" {place}{place}", "logprob": math.log(p)}
        items.append({**own, "top_logprobs": [rival, own]})
    content = "".join(item["token"] for item in items)
    choice = {"message": {"role": "assistant", "content": content}, "logprobs": {"content": items}}
    return st.score_reply({"object": "chat.completion", "choices": [choice | {"finish_reason": "stop"}]})[0]


def recording(origin: AnswerOrigin, *, keep: bool = False) -> Recording:
    return Recording(origin, SamplingRule("seed", 1.0), b"salt", TextRule(keep))


def test_the_five_least_sure_tokens_below_one_half_are_kept_in_the_order_of_the_answer() -> None:
    answer = scored()
    with_text = recording(AnswerOrigin("proxy"), keep=True).entry(answer, {}).doubts
    assert [one["text"].strip() for one in with_text] == ["00", "11", "22", "44", "66"]  # .49 is the sixth
    for one, p in zip(with_text, (0.3, 0.45, 0.1, 0.2, 0.4), strict=True):
        assert one["confidence"] == pytest.approx(p, rel=1e-9)
        assert answer.text[one["start"] : one["end"]] == one["text"]
    without = recording(AnswerOrigin("proxy")).entry(answer, {}).doubts
    assert without == tuple({name: value for name, value in one.items() if name != "text"} for one in with_text)
    sure = replace(
        answer, tokens=tuple(replace(token, log_agreeing_probability=math.log(0.5)) for token in answer.tokens)
    )
    assert recording(AnswerOrigin("proxy")).entry(sure, {}).doubts == ()


def test_the_numbers_of_an_answer_stand_each_under_its_name() -> None:
    origin = AnswerOrigin("proxy", "model of the command", "engine", k=2)
    block = {
        "probability_correct": 0.7,
        "probability_correct_interval": [0.6, 0.8],
        "decision": "answer",
        "reason": "r",
    }
    exact = replace(scored(), log_confidence_interval=None)
    found = recording(origin).entry(exact, block, model="m" * 201)
    product = sum(map(math.log, PROBABILITIES))
    assert (found.log_confidence, found.log_confidence_lower, found.log_confidence_upper) == pytest.approx(
        (product,) * 3
    )
    one_minus = 1 - math.exp(product)
    assert (
        found.sequence_uncertainty,
        found.sequence_uncertainty_lower,
        found.sequence_uncertainty_upper,
    ) == pytest.approx((one_minus,) * 3)
    assert (found.method, found.k, found.n_tokens, found.model) == ("exact", None, 8, "m" * 200)
    assert (found.probability_correct, found.probability_correct_lower, found.probability_correct_upper) == (
        0.7,
        0.6,
        0.8,
    )
    assert (found.decision, found.reason, found.calibrator) == ("answer", "r", None)  # nobody says which one decided
    wide = scored(open_mass=0.5)
    bounded = recording(origin).entry(wide, {})
    assert (bounded.method, bounded.k, bounded.model) == ("top-k", 2, "model of the command")
    assert (bounded.log_confidence_lower, bounded.log_confidence_upper) == wide.log_confidence_interval
    low, high = known(wide.log_confidence_interval)
    assert low < high
    assert (bounded.sequence_uncertainty_lower, bounded.sequence_uncertainty_upper) == pytest.approx(
        (1 - math.exp(high), 1 - math.exp(low))
    )


def test_a_reason_is_kept_to_500_characters() -> None:
    assert recording(AnswerOrigin("check")).unscored("x" * 501).unscored == "x" * 500


def test_the_sample_is_the_first_eight_bytes_of_a_hash_as_a_share() -> None:
    for number in range(300):
        rule, name = SamplingRule("a seed", 0.37), f"entry {number}"
        place, twice = (
            int(hashlib.sha256(f"{use}:a seed:{name}".encode()).hexdigest()[:16], 16) / 16**16
            for use in ("sample", "twice")
        )
        assert rule.takes(name) == (place < 0.37) and rule.takes_twice(name) == (twice < 0.2)
        assert not SamplingRule("a seed", place).takes(name)
        made = Recording(AnswerOrigin("score"), rule, b"salt").unscored("none")
        assert not made.sampled and not made.seen_twice


def test_a_token_without_text_is_no_part_in_doubt() -> None:
    answer = scored()
    first = replace(answer.tokens[2], end=answer.tokens[2].start)
    kept = recording(AnswerOrigin("proxy")).entry(replace(answer, tokens=(*answer.tokens[:2], first)), {}).doubts
    assert [one["confidence"] for one in kept] == [pytest.approx(0.3), pytest.approx(0.45)]
