"""Places where clients put the block, and blocks that are never taken for a final score."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken.core.results.blocks import block_of, blocks_of, final_block, risk_of
from semtoken.replies.checking.saved_blocks import blocks_of_reply
from tests.replies.made import events

BLOCK = {"version": 1, "sequence_uncertainty": 0.25}


class Dumped:
    """An object of a client."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self) -> dict[str, Any]:
        return self.fields


@pytest.mark.parametrize(
    "choice",
    [
        {"semtoken": BLOCK},
        {"provider_specific_fields": {"semtoken": BLOCK}},
        {"message": {"provider_specific_fields": {"semtoken": BLOCK}}},
        {"delta": {"semtoken": BLOCK}},
        Dumped(semtoken=BLOCK),
        Dumped(message=Dumped(provider_specific_fields={"semtoken": BLOCK})),
    ],
)
def test_the_block_is_found(choice: Any) -> None:
    assert block_of(choice) == BLOCK


@pytest.mark.parametrize("choice", [{}, {"semtoken": None}, {"semtoken": "0.2"}, {"message": None}, None, 7])
def test_nothing_else_is_taken_for_one(choice: Any) -> None:
    assert block_of(choice) is None


def test_a_running_block_is_no_final_one() -> None:
    running, final = {**BLOCK, "final": False}, {"version": 1, "sequence_uncertainty": 0.5, "final": True}
    stream = [{"choices": [{"index": 0, "delta": {}, "semtoken": running}]}]
    assert final_block(stream) is None
    stream += [{"choices": [{"index": 1, "delta": {}, "semtoken": final}]}, {"choices": []}]
    assert final_block(stream) is None
    assert final_block(stream, index=1) == final
    assert blocks_of({"choices": [{"semtoken": BLOCK}, {}]}) == [BLOCK, None]


def test_an_answer_is_as_risky_as_its_confidence_says() -> None:
    assert risk_of({"sequence_uncertainty": 1.0, "confidence": 0.25}) == 0.75
    assert math.isnan(risk_of({"reason": "no score"}))


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": 2}])
def test_the_block_of_a_saved_stream_is_that_of_its_choice(index: dict[str, int]) -> None:
    """A choice without an index is the first."""
    final = {"version": 1, "sequence_uncertainty": 0.5, "final": True}
    chunks: list[Any] = [
        {"choices": [{**index, "delta": {"content": "Oslo"}}]},
        {"choices": [{**index, "semtoken": final}]},
    ]
    stream = events(*chunks, done=True)
    assert blocks_of_reply(stream) == {index.get("index", 0): final}
