"""One number for a tool call: the product over its name and argument values, whatever the syntax around them cost."""

from __future__ import annotations

import math

import pytest

from semtoken.core.parts import call_confidences, parts_of
from tests.core.test_parts import answer_of

PIECES = [
    b'{"',
    b"name",
    b'": "',
    b"send",
    b'", "',
    b"arguments",
    b'": {"',
    b"to",
    b'": "',
    b"Ada",
    b'", "',
    b"n",
    b'": ',
    b"3",
    b"}}",
]
VALUES = {b"send": -0.1, b"Ada": -0.7, b"3": -0.3}


def test_the_product_over_name_and_values_alone() -> None:
    logs = [VALUES.get(piece, -0.05) for piece in PIECES]
    parts = list(parts_of(answer_of(PIECES, logs), "tool_call"))
    [found] = call_confidences(parts)
    closing = next(part.closing for part in parts if part.path == "/arguments/n")
    ends = 1.0 if closing is None else closing  # how sure it was that the figure ends is part of a figure's confidence
    assert found.confidence == pytest.approx(math.exp(sum(VALUES.values())) * ends, rel=1e-6)
    assert (found.name, found.call, found.weakest.path) == ("send", 0, "/arguments/to")
    dearer = [VALUES.get(piece, -2.0) for piece in PIECES[:-1]] + [-0.05]
    again = call_confidences(parts_of(answer_of(PIECES, dearer), "tool_call"))[0]
    assert again.confidence == pytest.approx(found.confidence, rel=1e-6)


def test_several_calls_and_one_that_the_tokens_do_not_spell() -> None:
    answer = answer_of(PIECES, [VALUES.get(piece, -0.05) for piece in PIECES])
    found = call_confidences(parts_of(answer, "tool_call", calls=[("send", '{"to":"Ada","n":3}'), ("gone", "{}")]))
    assert [one.call for one in found] == [0, 1]
    assert found[1].confidence is None and found[1].weakest.path == "/name"
    assert call_confidences([]) == []
