"""Values that are nearly JSON are shown whole and flagged, and the fields behind them are found."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.core.parts import parts_of
from semtoken.core.parts.json_values import find_json, is_json
from tests.core.answers import answer_of
from tests.rows import each

WRITTEN = [
    "6,826.94",
    "1.234,56",
    "$5",
    "5 USD",
    "12/03/2024",
    "N/A",
    "None",
    "True",
    ".5",
    "+3",
    "00123",
    "1_000",
    "€ 7",
]
KEYS = st.sampled_from(["total", "a b", "x/y", "é"])


@each("written", WRITTEN)
@each("form", ['{{"a": 1, "v": {}, "z": "Lima"}}', '{{\n  "a": 1,\n  "v": {},\n  "z": "Lima"\n}}\n'])
def test_a_field_is_shown_whole_and_the_rest_is_found(written: str, form: str) -> None:
    text = form.format(written)
    pieces = re.findall(rb".{1,3}", text.encode(), re.DOTALL)
    parts = parts_of(answer_of(pieces, [-0.1] * len(pieces)), "field")
    found = {part.path: part for part in parts}
    assert [part.text for part in parts] == ["1", written, "Lima"]
    assert [flag.code for flag in found["/v"].flags if flag.code == "nearly_json"] and is_json(text)
    assert found["/v"].kind == ("number" if written[-1].isdigit() else "string")
    assert found["/v"].value == written and all(part.complete for part in parts)
    assert not any(flag.code == "nearly_json" for name in ("/a", "/z") for flag in found[name].flags)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('{"a": "he said "no", and left", "b": 1}', {"/a": 'he said "no", and left', "/b": "1"}),
        ('{"a": [1, 2,], "b": 3,}', {"/a/0": "1", "/a/1": "2", "/b": "3"}),
        ('{\n"a": "x"\n"b": 2\n}', {"/a": "x", "/b": "2"}),
        ('{"a": {"b": 1,000}, "c": 2}', {"/a/b": "1,000", "/c": "2"}),
        ('{"a": 6,8', {}),  # cut off inside a number
        ('{"z": "x", "y": true, "a": 6,8', {"/z": "x", "/y": "true"}),
    ],
)
def test_other_slips(text: str, fields: dict[str, str]) -> None:
    assert {one.pointer: text[one.start : one.end] for one in find_json(text).scalars} == fields


@given(
    st.lists(st.tuples(KEYS, st.sampled_from(WRITTEN) | st.integers() | st.text(max_size=8)), min_size=1, max_size=6)
)
def test_every_member_has_a_row_whatever_is_written(members: list[tuple[str, Any]]) -> None:
    """Against the members themselves: strings and numbers as JSON, what is nearly JSON as it stands."""
    values = [
        (name, value if isinstance(value, str) and value in WRITTEN else json.dumps(value)) for name, value in members
    ]
    text = "{" + ", ".join(f"{json.dumps(name)}: {written}" for name, written in values) + "}"
    found = find_json(text)
    assert found.complete
    assert [(one.place.name, text[one.start : one.end]) for one in found.scalars] == [
        (name, written[1:-1] if written.startswith('"') else written) for name, written in values
    ]


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ('I take {"a": 1}, so:\n```json\n{"b": 2}\n```', 29),  # what is in a fence of JSON goes before talk
        ('I take {"a": 1}, so:\n``` JSON\n[3]\n```', 30),
        ('I take {"a": 1}, so:\n```json {"b": 2}', 7),  # a fence ends with its line
        ('I take {"a": 1}, so:\n```json\n', 7),
        ('{"a": 1}\n```python\n{"b": 2}\n```', 0),
        ('I take {"a": 1}, so:\n```json\n{no JSON\n```', 7),
    ],
)
def test_json_in_a_fence_is_read_before_brackets_in_talk(text: str, begin: int) -> None:
    assert find_json(text).begin == begin


@pytest.mark.parametrize(("wrong", "found"), [(62, True), (63, True), (64, False)])
def test_the_bracket_in_the_fence_is_tried_once(wrong: int, found: bool) -> None:
    """The broken one in the fence is one of the 64 that are tried, and is not tried again where it stands."""
    talk = "[x] " * (wrong - 1) + '{"a": 1}'
    assert (len(find_json("```json\n[x]\n```\n" + talk).values) > 0) == found
    assert (len(find_json(talk + "\n```json\n[x]\n```").values) > 0) == found
