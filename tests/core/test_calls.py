"""Tool calls: where the values that a server gives apart stand in the text, and one number for each call."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.core.parts import call_confidences, parts_of
from semtoken.core.parts.fields import ToolCall, find_given_calls
from semtoken.core.parts.part import FoundPart
from tests.core.answers import answer_of, letters
from tests.rows import each


def places(text: str, *calls: tuple[str, str]) -> list[tuple[str | None, int, int, list[str]]]:
    """Path, range and flags of everything that the calls hold."""
    found = find_given_calls(text, [ToolCall(*call) for call in calls])
    return [(part.path, part.start, part.end, codes(part)) for part in found]


def codes(part: FoundPart) -> list[str]:
    return [flag.code for flag in part.flags]


@given(st.text(alphabet="3a.- 1", max_size=12))
def test_a_number_is_found_where_it_is_no_piece_of_a_longer_one(text: str) -> None:
    first = re.search(r"(?<![\w.-])3(?![\w.])", text)
    expected = (0, 0, ["unaligned"]) if first is None else (first.start(), first.end(), ["respelled"])
    assert places(text, ("", '{"n":3}')) == [("/name", 0, 0, ["unaligned"]), ("/arguments/n", *expected)]


@given(st.lists(st.sampled_from(["3", "13", "3.5", "x3"]), max_size=8))
def test_equal_values_are_found_one_after_the_other(pieces: list[str]) -> None:
    text = " ".join(pieces)
    alone = [match.span() for match in re.finditer(r"(?<![\w.-])3(?![\w.])", text)]
    _, *found = places(text, ("", "[3,3]"))
    assert [(start, end) for _, start, end, flags in found if flags == ["respelled"]] == alone[:2]
    assert all((start, end) == (0, 0) for _, start, end, flags in found if flags == ["unaligned"])


@each("ascii_only", [True, False])
@each("value", ["Zürich", 'a "b" é', "line\nö", "plain", ""])
def test_a_string_is_found_with_whichever_escapes_the_model_wrote(value: str, ascii_only: bool) -> None:
    spelled = json.dumps(value, ensure_ascii=ascii_only)
    given_by_server = '{"city":"' + "".join(f"\\u{ord(letter):04x}" for letter in value) + '"}'
    text = f"weather( {spelled} )"
    name, city = places(text, ("weather", given_by_server))
    assert name == ("/name", 0, 7, [])
    assert city == ("/arguments/city", 10, 10 + len(spelled) - 2, ["respelled"])


def test_calls_begin_where_the_text_does_and_follow_one_another() -> None:
    text = '{"a": 1} {"a": 1}'
    unnamed = ("/name", 0, 0, ["unaligned"])
    twice = places(text, ("", '{"a": 1}'), ("", '{"a": 1}'))
    assert twice == [unnamed, ("/arguments/a", 6, 7, []), unnamed, ("/arguments/a", 15, 16, [])]
    assert places(text, ("", " "), ("", '{"a": 1}'))[-1] == ("/arguments/a", 6, 7, [])
    assert places('f f{"a": 1}', ("f", '{"a": 1}'), ("f", ""))[-1] == ("/name", 0, 0, ["unaligned"])


def test_arguments_that_are_not_found_as_written_move_nothing() -> None:
    wide = '{"a":' + " " * 20 + "1}"
    found = places("f(1) g(2)", ("f", wide), ("g", '{"a":2}'))
    assert [place[:3] for place in found] == [
        ("/name", 0, 1),
        ("/arguments/a", 2, 3),
        ("/name", 5, 6),
        ("/arguments/a", 7, 8),
    ]


def test_a_call_without_a_confidence_shows_the_argument_that_has_none() -> None:
    text = b'send {"to": "Ada"}'
    [call] = call_confidences(parts_of(letters(text), "tool_call", calls=[("send", '{"to":"Bob"}')]))
    assert (call.name, call.confidence, call.weakest.path) == ("send", None, "/arguments/to")


def test_the_arguments_of_a_call_that_was_cut_off_are_found_as_far_as_they_go() -> None:
    text = b'{"name": "f", "arguments": {"a": 1, "b": 2'
    parts = parts_of(letters(text), "tool_call")
    assert [(part.path, part.text) for part in parts] == [("/name", "f"), ("/arguments/a", "1"), ("/arguments/b", "2")]


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
