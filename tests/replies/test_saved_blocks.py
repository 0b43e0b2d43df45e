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
    assert back.sequence_uncertainty == pytest.approx(answer.sequence_uncertainty, abs=1e-12)
    assert back.sequence_uncertainty_interval == pytest.approx(answer.sequence_uncertainty_interval, abs=1e-12)
    if answer.log_confidence_interval is None:
        assert back.log_confidence_interval is None
    else:
        assert back.log_confidence_interval is not None
        ends = [math.exp(end) for end in back.log_confidence_interval]
        assert ends == pytest.approx([math.exp(end) for end in answer.log_confidence_interval], abs=1e-9)
        assert ends[0] <= ends[1] + ROUNDED
    assert back.confidence == answer.confidence
    assert back.confidence_interval == answer.confidence_interval
    assert back.confidence_method == answer.confidence_method and back.explanation == answer.explanation
    assert (back.signature, back.distribution, back.truncated) == (
        answer.signature,
        answer.distribution,
        answer.truncated,
    )
    assert [flag.code for flag in back.flags] == [flag.code for flag in answer.flags]


@each(
    ("change", "words"),
    [
        ({"sequence_uncertainty": 0.99, "sequence_uncertainty_interval": [0.2, 0.3]}, "lies outside its interval"),
        ({"sequence_uncertainty": 0.01, "sequence_uncertainty_interval": [0.2, 0.3]}, "lies outside its interval"),
        ({"sequence_uncertainty_interval": [-0.1, 0.3]}, "sequence_uncertainty_interval"),
        ({"sequence_uncertainty_interval": [0.1, 1.1]}, "sequence_uncertainty_interval"),
        ({"sequence_uncertainty": None}, "sequence_uncertainty"),
        ({"method": "guessed"}, "method"),
        ({"distribution": "guessed"}, "distribution"),
        ({"n_tokens": -1}, "n_tokens"),
        ({"version": 999}, "version"),
        ({"flags": [1]}, "list of mappings"),
        ({"confidence": 1.5}, "confidence"),
        ({"confidence": 0.0, "interval": [0.1, 0.5]}, "lies outside its interval"),
        ({"interval": [0.1, 0.2, 0.3]}, "must be two numbers, got 3"),
        ({"interval": [0.1]}, "must be two numbers, got 1"),
        ({"interval": [-0.1, 0.5]}, "interval"),
        ({"interval": 0.5}, "interval"),
        ({"confidence_method": "stc", "confidence": 0.001, "interval": [0, 1]}, "belong to the sequence uncertainty"),
    ],
)
def test_a_damaged_block_gives_no_number(change: dict[str, Any], words: str) -> None:
    _, choice, block = scored([("Lima", -0.3), (".", -0.2)], listed=True)
    with pytest.raises(InvalidInputError, match=words):
        answer_of_block(choice, copy.deepcopy(block) | change)


def test_the_doubts_of_a_block_are_its_parts_the_least_confident_first() -> None:
    block = scored([("Lima", -0.3), (" is", -0.1), (" nice", -2.0)], listed=False)[2]
    doubts = doubts_of_block(block)
    assert [doubt.text for doubt in doubts] == ["nice", "Lima", "is"]
    assert [doubt.confidence for doubt in doubts] == pytest.approx([math.exp(-2.0), math.exp(-0.3), math.exp(-0.1)])
    empty = block["parts"][0] | {"end": block["parts"][0]["start"]}
    assert doubts_of_block({"parts": [*block["parts"], empty]}) == doubts
    for broken in ({"start": -1}, {"confidence": 2.0}, {"text": 5}):
        with pytest.raises(InvalidInputError, match="damaged"):
            doubts_of_block({"parts": [block["parts"][0] | broken]})
    del block["parts"][0]["end"]
    with pytest.raises(InvalidInputError, match="a part has no 'end'"):
        doubts_of_block(block)
