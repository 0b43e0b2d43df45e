"""Blocks of the proxy in saved replies: what was scored comes back from its block; a damaged one gives no number."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import scorer_for
from semtoken.errors import InvalidInputError
from semtoken.replies import read_reply, score_reply
from semtoken.replies.checking.saved_blocks import ROUNDED, answer_of_block, doubts_of_block
from semtoken.web.block import BlockOptions, score_block
from tests.replies.test_check import reply
from tests.rows import each

steps = st.lists(
    st.tuples(st.sampled_from(["Lima", " is", " nice", "."]), st.floats(-3, -0.01)), min_size=1, max_size=4
)


def scored(tokens: list[tuple[str, float]], *, listed: bool) -> tuple[Any, Any, dict[str, Any]]:
    """An answer, its choice, and its block as JSON: of lists whose rest may agree (an interval), or of tokens alone."""
    half = [math.log(-math.expm1(log_prob) / 2) for _, log_prob in tokens]  # of what is left of each step
    others = {i: [(f" other{i}", log_prob)] for i, log_prob in enumerate(half)} if listed else {}
    parsed_reply = reply(tokens, others=others)
    (answer,) = score_reply(parsed_reply, question="")
    block = score_block(answer, scorer_for(None, ScoringRules()), BlockOptions(parts="word"))
    return answer, read_reply(parsed_reply).choices[0], json.loads(json.dumps(block))


@given(steps, st.booleans())
def test_a_saved_block_is_the_answer_that_was_scored(tokens: list[tuple[str, float]], listed: bool) -> None:
    answer, choice, block = scored(tokens, listed=listed)
    back = answer_of_block(choice, block)
    assert back.uncertainty == pytest.approx(answer.uncertainty, abs=1e-12)
    assert back.sequence_uncertainty_interval == pytest.approx(answer.sequence_uncertainty_interval, abs=1e-12)
    if answer.log_confidence_interval is None:
        assert back.log_confidence_interval is None
    else:
        assert back.log_confidence_interval is not None
        ends = [math.exp(end) for end in back.log_confidence_interval]
        assert ends == pytest.approx([math.exp(end) for end in answer.log_confidence_interval], abs=1e-9)
        assert ends[0] <= ends[1] + ROUNDED
    assert back.headline.confidence == answer.headline.confidence
    assert back.headline.confidence_interval == answer.headline.confidence_interval
    assert back.headline.name == answer.headline.name and back.headline.sentence == answer.headline.sentence
    assert (back.signature, back.distribution, back.truncated) == (
        answer.signature,
        answer.distribution,
        answer.truncated,
    )
    assert [flag.code for flag in back.flags] == [flag.code for flag in answer.flags]


def damaged(change: dict[str, Any], headline: dict[str, Any]) -> dict[str, Any]:
    block = copy.deepcopy(scored([("Lima", -0.3), (".", -0.2)], listed=True)[2])
    return block | change | {"headline": block["headline"] | headline}


@each(
    ("change", "headline", "words"),
    [
        ({"uncertainty": 0.99, "lower": 0.2, "upper": 0.3}, {}, "lies outside its bounds"),
        ({"uncertainty": 0.01, "lower": 0.2, "upper": 0.3}, {}, "lies outside its bounds"),
        ({"lower": -0.1}, {}, "lower"),
        ({"upper": 1.1}, {}, "upper"),
        ({"uncertainty": None}, {}, "uncertainty"),
        ({"method": "guessed"}, {}, "method"),
        ({"distribution": "guessed"}, {}, "distribution"),
        ({"n_tokens": -1}, {}, "n_tokens"),
        ({"version": 999}, {}, "version"),
        ({"flags": [1]}, {}, "list of mappings"),
        ({}, {"confidence": 1.5}, "confidence"),
        ({}, {"confidence_interval": [0.1, 0.2, 0.3]}, "must be two numbers, got 3"),
        ({}, {"confidence_interval": [0.1]}, "must be two numbers, got 1"),
        ({}, {"confidence_interval": [-0.1, 0.5]}, "confidence_interval"),
        ({}, {"name": "stc", "confidence": 0.001}, "does not belong to the uncertainty"),
    ],
)
def test_a_damaged_block_gives_no_number(change: dict[str, Any], headline: dict[str, Any], words: str) -> None:
    choice = scored([("Lima", -0.3), (".", -0.2)], listed=True)[1]
    with pytest.raises(InvalidInputError, match=words):
        answer_of_block(choice, damaged(change, headline))


def test_the_doubts_of_a_block_are_its_parts_the_least_confident_first() -> None:
    block = scored([("Lima", -0.3), (" is", -0.1), (" nice", -2.0)], listed=False)[2]
    doubts = doubts_of_block(block)
    assert [doubt.text for doubt in doubts] == ["nice", "Lima", "is"]
    assert [doubt.confidence for doubt in doubts] == pytest.approx([math.exp(-2.0), math.exp(-0.3), math.exp(-0.1)])
    for broken in ({"start": -1}, {"confidence": 2.0}, {"text": 5}):
        with pytest.raises(InvalidInputError, match="damaged"):
            doubts_of_block({"parts": [block["parts"][0] | broken]})
    del block["parts"][0]["end"]
    with pytest.raises(InvalidInputError, match="a part has no 'end'"):
        doubts_of_block(block)
