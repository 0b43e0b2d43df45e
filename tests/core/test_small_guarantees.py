"""Guarantees of the options and fields of parts, at the places where one more or one less would show."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from semtoken.core.parts import Part, parts_of
from semtoken.core.parts.budget import Budget
from semtoken.core.parts.fields import subschema
from semtoken.core.parts.json_values import all_json, find_json, is_json
from semtoken.core.parts.newness import new_phrases
from semtoken.core.parts.part import Parts
from semtoken.core.parts.prose import phrases
from semtoken.core.scored_token import Flag
from semtoken.errors import BudgetExceededError, InvalidInputError
from tests.core.answers import answer_of, letters
from tests.rows import each


def texts(text: str, by: str) -> list[str]:
    return [part.text for part in parts_of(letters(text), by)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "steps"), [("", 1_000_000), ("ab", 1_000_100)])
def test_a_million_steps_and_fifty_for_each_character(text: str, steps: int) -> None:
    budget = Budget(text)
    budget.spend(steps - 1)
    budget.spend()
    with pytest.raises(BudgetExceededError, match="too many"):
        budget.spend()


def test_the_least_limits_are_nothing_at_all() -> None:
    Budget("", max_characters=0, max_seconds=0)
    assert parts_of(letters("x"), "number", max_parts=0) == []
    with pytest.raises(BudgetExceededError, match="more than 0 parts"):
        parts_of(letters("1"), "number", max_parts=0)
    for limits in ({"max_characters": -1}, {"max_seconds": -0.05}):
        with pytest.raises(InvalidInputError, match="'max_"):
            Budget("", **limits)


def test_what_a_part_says_where_nothing_else_is_known() -> None:
    part = Part(0, 1, "a", "word", None, 0.7)
    assert part.uncertainty == pytest.approx(0.3)
    assert (part.neutral_share, part.present, part.complete, part.forced) == (0.0, True, True, 0)


def test_plain_values_of_a_part_are_json_whatever_it_holds() -> None:
    flag = Flag("one", "Once.")
    part = Part(0, 1, "a", "string", "/half\ud83d", 0.7, value="so\ude00", flags=(flag,), choices={"a": 0.5})
    told = json.loads(json.dumps(part.to_dict(), ensure_ascii=False).encode())
    assert (told["path"], told["value"], told["choices"]) == ("/half?", "so?", {"a": 0.5})
    assert told["flags"] == [{"code": "one", "message": "Once."}] and told["confidence"] == 0.7
    assert Part(0, 1, "3", "number", None, 0.7, value=3).to_dict()["value"] == 3


def test_a_table_of_parts_sets_its_numbers_and_nothing_else_to_the_right() -> None:
    page = Parts([Part(0, 1, "a", "word", None, 0.7, closing=0.25)])._repr_html_()
    cells = re.findall(r"<td([^>]*)>(?:<b>)?([^<]*)", page)
    right = {text for style, text in cells if "right" in style}
    assert right == {"0.700", "0.250"} and {"a", "word"} <= {text for _, text in cells}


@pytest.mark.parametrize("by", ["word", "phrase", "sentence", "number", "reference", "identifier", "tool_call"])
def test_only_the_fields_of_an_object_can_be_cut_off(by: Any) -> None:
    parts = parts_of(letters('See /a/b: {"name": "f1", "arguments": {"a": 1}}. It is 3'), by)
    assert parts and all(part.complete and not part.has("cut_off") for part in parts)
    assert all(part.neutral_share == 0.0 for part in parts)


def test_objects_and_arrays_stand_where_their_brackets_do_in_any_text() -> None:
    text = '{"a": [], "b": [1, 2]}'
    own = parts_of(letters(text), "field", containers=True)
    assert [(part.path, part.kind, part.text) for part in own] == [
        ("/a", "array", "[]"),
        ("/a", "length", ""),
        ("/b/0", "number", "1"),
        ("/b/1", "number", "2"),
        ("/b", "array", "[1, 2]"),
        ("/b", "length", ""),
        ("", "object", text),
    ]
    assert [part.start for part in own if part.kind == "length"] == [text.index("]"), text.rindex("]")]
    behind = parts_of(letters(f"<x>1 2 3</x>{text}"), "field", containers=True, text=text)
    before = parts_of(letters(f"{text}<x>1 2 3</x>"), "field", containers=True, text=text)
    assert [part.confidence for part in behind] == [part.confidence for part in own]
    assert [part.confidence for part in before] == [part.confidence for part in own]
    assert [part.start - len("<x>1 2 3</x>") for part in behind] == [part.start for part in own]


@pytest.mark.parametrize(
    ("pieces", "counts"),
    [
        (["it", " is ", "$", "5", "."], [True]),
        (["it", " is ", "5", " kg", "."], [False]),
        (["it", " is ", "5", "."], [True]),
    ],
)
def test_a_figure_is_as_sure_as_that_its_last_digit_ends_it(pieces: list[str], counts: list[bool]) -> None:
    end = len(pieces) - 1
    answer = answer_of(
        [piece.encode() for piece in pieces], [0.0] * len(pieces), endings={"digits": {end: (0.5, 0.5, 0.5)}}
    )
    assert parts_of(answer, "number")[0].confidence == (0.5 if counts == [True] else 1.0)


def test_the_number_in_an_amount_is_as_sure_as_that_it_ends_there() -> None:
    answer = answer_of(
        [b"12", b".50", b" EUR", b"."], [0.0] * 4, endings={"digits": {2: (0.25, 0.25, 0.25), 3: (0.5, 0.5, 0.5)}}
    )
    amount, inner = parts_of(answer, "number")
    assert (amount.text, amount.closing, amount.confidence) == ("12.50 EUR", None, 1.0)
    assert (inner.text, inner.closing, inner.confidence) == ("12.50", 0.25, 0.25)


@pytest.mark.parametrize(("value", "confidence"), [("2024-05-01", 0.5), ("Oslo", 1.0)])
def test_the_end_of_a_string_counts_where_the_string_is_a_figure(value: str, confidence: float) -> None:
    answer = answer_of([b'{"a": "', value.encode(), b'"', b"}"], [0.0] * 4, endings={"quote": {2: (0.5, 0.5, 0.5)}})
    assert parts_of(answer, "field")[0].confidence == confidence


@each(
    ("schema", "pointer", "expected"),
    [
        ({"properties": {"a/b": {"type": "null"}}}, "/a~1b", {"type": "null"}),
        ({"properties": {"c~d": {"type": "null"}}}, "/c~0d", {"type": "null"}),
        ({"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": {"type": "number"}}}, "", {"type": "number"}),
        ({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}}, "/1", {"const": 2}),
        ({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}}, "/2", {"const": 3}),
        ({"prefixItems": [{"const": 1}], "items": {"const": 3}}, "/1", {"const": 3}),
        ({"oneOf": [{"type": "null"}, {"const": 1}]}, "", {"const": 1, "nullable": True}),
        ({"anyOf": [{"const": 1}, {"type": "null"}]}, "", {"const": 1, "nullable": True}),
        ({"anyOf": [{"const": 1}, {"const": 2}]}, "", {"anyOf": [{"const": 1}, {"const": 2}]}),
        ({"additionalProperties": {"const": 1}}, "/x", {"const": 1}),
    ],
)
def test_the_part_of_a_schema_that_is_meant(schema: Any, pointer: str, expected: Any) -> None:
    assert subschema(schema, pointer) == expected


@pytest.mark.parametrize("references", [15, 16])
def test_a_schema_is_followed_over_fifteen_references(references: int) -> None:
    chain: dict[str, Any] = {f"s{k}": {"$ref": f"#/$defs/s{k + 1}"} for k in range(references - 1)}
    schema = {"$ref": "#/$defs/s0", "$defs": chain | {f"s{references - 1}": {"const": 1}}}
    if references == 15:
        assert subschema(schema, "") == {"const": 1}
    else:
        with pytest.raises(InvalidInputError, match="in a circle"):
            subschema(schema, "")


def test_a_text_is_json_if_it_is_an_object_or_an_array() -> None:
    assert is_json('{"a": 1}') and is_json("[1]") and is_json('{"a": 1,000}')
    assert not any(map(is_json, ["3", '"a"', "a", "", '{"a": 1} so']))
    assert not is_json("{" + "x" * 500_001)


@pytest.mark.parametrize(
    ("written", "kind"),
    [("1,0", "number"), ("EUR 5", "number"), ("b5", "number"), ("5b", "string"), ("5 USD", "string")],
)
def test_what_is_nearly_a_number_ends_in_a_digit(written: str, kind: str) -> None:
    [value] = find_json('{"v": ' + written + ', "w": "x"}').scalars[:1]
    assert (value.kind, value.value, value.nearly) == (kind, written, True)


def test_what_is_nothing_like_a_value_ends_an_object() -> None:
    assert list(all_json('{"a"::')) == [] and [one.complete for one in all_json('{"a":')] == [False]


def test_line_ends_and_quotation_marks_in_a_string_belong_to_it() -> None:
    [line, said] = find_json('{"a": "x\ny\tz", "b": "he said "no" 5"}').scalars
    assert (line.kind, line.value, line.nearly) == ("string", "x\ny\tz", False)
    assert (said.kind, said.value, said.nearly) == ("string", 'he said "no" 5', True)


def test_wherever_an_object_is_cut_off_its_beginning_is_found() -> None:
    text = json.dumps({"a": [1, "é😀"], "b\u00fc": {"c": None, "d": True}, "e": -1.5e-3})
    whole = [(one.pointer, one.start) for one in find_json(text).scalars]
    for length in range(1, len(text)):
        [found] = all_json(text[:length])
        assert not found.complete
        known = [(one.pointer, one.start) for one in found.scalars]
        assert known == whole[: len(known)]
        assert all(start < length for _, start in known)


def test_code_behind_a_fence_without_a_line_end_is_read_as_text() -> None:
    assert texts("```python", "identifier") == ["python"]


def test_words_with_marks_stand_in_phrases_as_others_do() -> None:
    assert texts("in Łódź Größe of Øst Berlin", "phrase") == ["Łódź Größe", "Øst Berlin"]
    assert texts("水 Wasser Fluss", "phrase") == ["水", "Wasser Fluss"]


def test_a_long_text_has_the_phrases_of_its_pieces() -> None:
    once = "The Opera House of Sydney. "
    for times in (36, 37, 38, 100):  # a thousand characters lie between
        assert texts(once * times, "phrase") == ["Opera House", "Sydney"] * times
    assert phrases("x" * 500_001) == [(0, 500_001)]


def test_a_phrase_is_new_where_a_word_in_it_is() -> None:
    assert new_phrases("挪威的首都是奥斯陆。", "挪威的首都是哪里？") == [(6, 9)]
    assert new_phrases("Oslo is big", "Is Oslo big?") == phrases("Oslo is big")


def test_tokens_without_text_belong_to_no_part_and_a_value_ends_at_the_first_token_behind_it() -> None:
    answer = answer_of([b"1", b"", b"2", "é".encode()[:1], "é".encode()[1:]], [-0.1] * 5)
    assert answer.touching(0, 2) == [0, 2]
    assert answer.closing_token(2) == 3
    assert answer.closing_token(1) == 2


def test_an_option_that_is_no_text_is_named() -> None:
    with pytest.raises(InvalidInputError, match="'language'"):
        parts_of(letters("a"), "sentence", language=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"range -1\.\.1"):
        parts_of(letters("abc"), lambda _: [(-1, 1)])


def test_a_part_without_tokens_is_certain() -> None:
    [part] = parts_of(letters("abc"), lambda _: [(1, 1)])
    assert (part.product, part.weakest, part.mean, part.tokens) == (1.0, 1.0, 1.0, ())
    assert part.bounds == (1.0, 1.0) and math.isclose(part.confidence or 0, 1.0)
