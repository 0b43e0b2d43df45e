"""Parts of an answer and their tokens: aggregates, equality, ends, flags."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from semtoken.core.parts import Part, ToolCall, parts_of
from semtoken.core.parts.answers import CONSTRAINED, marked_tokens
from semtoken.core.parts.fields import allowed_values
from semtoken.core.parts.json_values import find_json
from semtoken.core.parts.part import level_of
from semtoken.core.scored_token import TokenMark
from tests.core.answers import answer_of, letters

SCHEMA = {
    "type": "object",
    "properties": {
        "total": {"type": "number"},
        "unit": {"enum": ["kg", "lb"]},
        "due": {"type": "string", "format": "date"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {"line": {"type": "object", "properties": {"price": {"type": "number"}, "paid": {"type": "boolean"}}}},
}


def by_path(parts: list[Part]) -> dict[str | None, Part]:
    return {part.path: part for part in parts}


def test_equality_by_type() -> None:
    text = (
        b'{"total": 1, "unit": "kg", "due": "2024-05-01", "note": null, "city": "New York", "when": "3 May 2024", '
        b'"url": "https://a.org", "why": "it was far too late", "ok": true}'
    )
    parts = by_path(parts_of(letters(text), "field", schema=SCHEMA))
    assert {path: part.equality for path, part in parts.items() if part.present} == {
        "/total": "exact",
        "/unit": "surface",
        "/due": "exact",
        "/note": "exact",
        "/city": "surface",
        "/when": "mixed",
        "/url": "exact",
        "/why": "meaning",
        "/ok": "exact",
    }


def test_a_missing_field_is_not_null() -> None:
    text = b'{"total": 1, "note": null, "lines": [{"price": 2}, {"paid": false, "price": 3}]}'
    parts = by_path(parts_of(letters(text), "field", schema=SCHEMA))
    assert parts["/note"].present and parts["/note"].value is None and parts["/note"].confidence is not None
    missing = {path for path, part in parts.items() if not part.present}
    assert missing == {"/unit", "/due", "/lines/0/paid"}
    assert all(parts[path].confidence is None and parts[path].tokens == () for path in missing)
    assert parts["/lines/0/paid"].kind == "boolean"


def test_nothing_is_missing_where_the_text_was_cut_off() -> None:
    parts = parts_of(answer_of([b'{"total": ', b"1", b', "uni'], [-0.1] * 3), "field", schema=SCHEMA)
    assert [(part.path, part.complete, part.has("cut_off")) for part in parts] == [("/total", False, True)]


def test_the_end_of_a_number_counts() -> None:
    pieces = [b'{"a": ', b"1", b"5", b', "b": "', b"x", b'"}']
    answer = answer_of(
        pieces,
        [-0.1, -0.2, -0.3, -0.4, -0.5, -0.6],
        endings={"number": {3: (0.75, 0.75, 0.8)}, "quote": {5: (0.5, 0.5, 0.5)}},
    )
    number, string = parts_of(answer, "field")
    assert (number.closing, number.closing_token) == (0.75, 3)
    assert number.product == pytest.approx(math.exp(-0.5))
    assert number.confidence == pytest.approx(0.75 * math.exp(-0.5))
    assert number.bounds == pytest.approx((0.75 * math.exp(-0.5), 0.8 * math.exp(-0.5)))
    assert (string.closing, string.confidence) == (0.5, pytest.approx(math.exp(-0.5)))  # told beside


def test_an_empty_string_is_as_sure_as_its_end() -> None:
    answer = answer_of([b'{"a": "', b'"', b"}"], [-0.1] * 3, endings={"quote": {1: (0.25, 0.25, 0.25)}})
    [part] = parts_of(answer, "field")
    assert (part.confidence, part.closing, part.tokens) == (0.25, 0.25, ())
    assert part.has("no_tokens")


def test_a_special_token_ends_a_bare_number() -> None:
    answer = answer_of([b"4", b"2", b""], [-0.1, -0.2, -0.3], endings={"number": {2: (0.5, 0.5, 0.5)}})
    [part] = parts_of(answer, "field")
    assert (part.closing_token, part.closing) == (2, 0.5)
    assert part.confidence == pytest.approx(0.5 * math.exp(-0.3))


def test_an_end_inside_the_value_is_not_counted_twice() -> None:
    answer = answer_of([b'{"a": ', b"7}"], [-0.1, -0.2], endings={"number": {1: (0.5, 0.5, 0.5)}})
    [part] = parts_of(answer, "field")
    assert part.closing is None and part.has("closing_in_value")
    assert part.confidence == pytest.approx(math.exp(-0.2))


def test_function_words_alone_are_scored_by_their_spelling() -> None:
    answer = answer_of(
        [b"Not", b" now", b", Oslo"],
        [-2.0, -1.0, -0.5],
        meaning=[0.0, 0.0, -0.25],
        surface=[-1.5, -0.75, -0.5],
        neutral=[True, True, False],
    )
    not_now, oslo = parts_of(answer, lambda _: [(0, 7), (9, 13)], equality="meaning")
    assert not_now.has("neutral_only") and not_now.equality == "surface"
    assert not_now.product == pytest.approx(math.exp(-2.25))
    assert oslo.product == pytest.approx(math.exp(-0.25)) and not oslo.flags


def test_a_sentence_shows_its_weakest_token_and_what_turns_it_round() -> None:
    answer = answer_of(
        [b"It", b" is", b" not", b" in", b" Oslo", b"."],
        [-0.1, -0.2, -1.5, -0.3, -0.4, -0.1],
        meaning=[0.0, 0.0, 0.0, 0.0, -0.4, -0.1],
        neutral=[True, True, True, True, False, False],
    )
    [part] = parts_of(answer, "sentence")
    assert part.confidence == part.weakest == pytest.approx(math.exp(-0.4))
    assert (part.weakest_token, part.aggregate) == (4, "weakest")
    [(word, share)] = part.negation
    assert word == "not" and share == pytest.approx(math.exp(-1.5))
    assert part.neutral_share == pytest.approx(4 / 6)


def test_mixed_equality_takes_digits_exactly() -> None:
    answer = answer_of([b"3", b" May", b" 2024"], [-1.0, -2.0, -3.0], surface=[-0.5, -0.25, -0.125])
    [part] = parts_of(answer, "number")
    assert part.product == pytest.approx(math.exp(-1.0 - 0.25 - 3.0))


def test_forced_tokens_are_left_out_and_counted() -> None:
    answer = answer_of([b'{"a": "', b"Os", b"lo", b'"}'], [0.0, -0.7, 0.0, 0.0], forced=[True, False, True, True])
    [part] = parts_of(answer, "field")
    assert (part.forced, part.tokens) == (1, (1, 2))
    assert part.mean == part.product == pytest.approx(math.exp(-0.7))


def test_objects_and_arrays_over_their_values_alone() -> None:
    pieces = [b'{"a": [', b"1", b", ", b"2", b"]", b', "b": "', b"x", b'"}']
    masses = [-9.0, -0.1, -9.0, -0.2, -9.0, -9.0, -0.4, -9.0]
    answer = answer_of(pieces, masses, endings={"array": {4: (0.6, 0.6, 0.6)}})
    parts = {(part.path, part.kind): part for part in parts_of(answer, "field", containers=True, equality="exact")}
    assert parts["/a", "array"].confidence == pytest.approx(math.exp(-0.3))
    assert parts["", "object"].confidence == pytest.approx(math.exp(-0.7))
    assert parts["/a", "length"].confidence == pytest.approx(0.6)
    [empty] = [part for part in parts_of(letters('{"a": []}'), "field", containers=True) if part.kind == "length"]
    assert (empty.start, empty.end) == (7, 7)  # behind the bracket that opens it


def test_the_uncertainty_of_a_part_is_what_its_confidence_lacks_and_half_characters_become_question_marks() -> None:
    part = Part(0, 1, "3", "number", "/\ud800", confidence=0.25, value="\ud800")
    assert (part.uncertainty, replace(part, confidence=None).uncertainty) == (0.75, None)
    assert (part.to_dict()["path"], part.to_dict()["value"]) == ("/?", "?")


def test_keys_on_demand() -> None:
    answer = answer_of([b'{"', b"a", b'": ', b"1", b"}"], [-0.1] * 5)
    assert [(p.kind, p.text, p.tokens) for p in parts_of(answer, "field", keys=True)] == [
        ("key", "a", (1,)),
        ("number", "1", (3,)),
    ]


def test_the_ends_of_keys_and_names_are_told_beside_their_confidence() -> None:
    answer = answer_of(
        [b'{"', b"name", b'": "', b"f", b'"}'],
        [-0.1] * 5,
        endings={"quote": {2: (0.5, 0.5, 0.5), 4: (0.25, 0.25, 0.25)}},
    )
    key, value = parts_of(answer, "field", keys=True)
    name = parts_of(answer, "tool_call", calls=[("f", "{}")])[0]
    assert (key.closing, value.closing, name.closing) == (0.5, 0.25, 0.25)
    assert [part.confidence for part in (key, value, name)] == pytest.approx([math.exp(-0.1)] * 3)


def test_text_that_is_not_in_the_tokens_has_no_confidence() -> None:
    answer = answer_of([b"<think>ok</think>", b'{"a": ', b"12", b"}"], [-0.1, -0.2, -0.3, -0.4])
    [part] = parts_of(answer, "field", text='{"a": 12}')
    assert part.text == "12" and part.confidence == pytest.approx(math.exp(-0.3))
    [part] = parts_of(answer, "field", text='{"a": 13}')
    assert part.confidence is None and part.has("unaligned") and part.value == 13


CALLS = (
    b'<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}</tool_call>'
    b'<tool_call>{"name": "get_time", "arguments": {"zone": "CET"}}</tool_call>'
)


def test_tool_calls_in_the_model_s_own_markup() -> None:
    answer = letters(CALLS)
    assert [(p.call, p.path, p.text) for p in parts_of(answer, "tool_call")] == [
        (0, "/name", "get_weather"),
        (0, "/arguments/city", "Oslo"),
        (0, "/arguments/days", "3"),
        (1, "/name", "get_time"),
        (1, "/arguments/zone", "CET"),
    ]
    assert [p.path for p in parts_of(answer_of([b'{"name": "x"}'], [-0.1]), "tool_call")] == []


def test_tool_calls_as_a_server_gives_them() -> None:
    answer = letters(CALLS)
    spelled: list[ToolCall | tuple[str, str]] = [
        ("get_weather", '{"city": "Oslo", "days": 3}'),
        ToolCall("get_time", '{"zone":"CET"}'),
    ]
    parts = parts_of(answer, "tool_call", calls=spelled)
    own = parts_of(answer, "tool_call")
    assert [(p.call, p.path, p.start, p.end) for p in parts] == [(p.call, p.path, p.start, p.end) for p in own]
    assert [p.has("respelled") for p in parts] == [False, False, False, False, True]
    assert [p.confidence for p in parts] == [p.confidence for p in own]


def test_tool_calls_that_the_tokens_do_not_spell() -> None:
    answer = letters(CALLS)
    parts = parts_of(answer, "tool_call", calls=[("get_weather", '{"city":"Bergen","days":3}')])
    assert [(p.path, p.confidence is None, p.has("unaligned")) for p in parts] == [
        ("/name", False, False),
        ("/arguments/city", True, True),
        ("/arguments/days", False, False),
    ]


def test_levels_of_doubt_begin_at_a_half_and_at_85_percent() -> None:
    cases = {
        0.0: "weak",
        0.4999: "weak",
        0.5: "some doubt",
        0.82: "some doubt",
        0.8499: "some doubt",
        0.85: "",
        1.0: "",
    }
    assert {confidence: level_of(confidence) for confidence in cases} == cases
    assert level_of(None) == ""


@pytest.mark.parametrize(("text", "equality"), [("of three words", "surface"), ("of four words now", "meaning")])
def test_a_string_of_three_words_is_a_name_and_one_of_four_a_text(text: str, equality: str) -> None:
    [part] = parts_of(letters(f'{{"why": "{text}"}}'), "field")
    assert part.equality == equality


@pytest.mark.parametrize(("log_prob", "forced"), [(-0.9e-7, True), (-1.1e-7, False)])
def test_a_token_was_the_only_one_allowed_within_rounding(log_prob: float, forced: bool) -> None:
    flags = [SimpleNamespace(code=CONSTRAINED)]
    answer: Any = SimpleNamespace(text="ja", flags=flags, signature="preset:default|words:paper")
    mark = TokenMark(0, 2, log_prob, log_prob, None)
    assert marked_tokens(answer, [mark]).forced == [forced]
    answer.flags = []
    assert marked_tokens(answer, [mark]).forced == [False]


def test_json_behind_a_fence_is_preferred_to_brackets_before_it() -> None:
    text = 'As [1] says:\n```json\n{"a": 7}\n```\n'
    found = find_json(text)
    assert (found.begin, [scalar.value for scalar in found.scalars]) == (text.index("{"), [7])
    bare = find_json(text.replace("```json", "").replace("```", ""))
    assert [scalar.value for scalar in bare.scalars] == [1]


def test_empty_containers_end_behind_their_brackets() -> None:
    text = '{"a": [ ], "b": {}, "c": [[]]}'
    found = {value.pointer: text[value.start : value.end] for value in find_json(text).values if value.kind != "key"}
    assert found == {"": text, "/a": "[ ]", "/b": "{}", "/c": "[[]]", "/c/0": "[]"}


def test_a_schema_names_the_values_that_it_allows() -> None:
    assert allowed_values({"type": "boolean"}) == (True, False)
    assert allowed_values({"enum": ["kg", None], "type": "boolean"}) == ("kg", None)
    assert allowed_values({"const": 3}) == (3,)
    assert allowed_values({"type": "string"}) == ()
