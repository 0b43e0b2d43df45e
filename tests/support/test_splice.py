"""JSON texts changed in a few places say the same as their values changed in Python, and all else stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.support import splice
from semtoken.support.splice import Change, Document, Drop, Keep, Put, Replace, encode, without

NAMES = st.sampled_from(["a", "b", "é", "a b", '"', "semtoken"])
VALUES: Any = st.recursive(
    st.sampled_from([None, True, -1.5, 7, "", "x, y", '}"', "[]", "é"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES, inside, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " :\t")])


def _refuses(*_: Any) -> None:
    raise splice._Unusual


@pytest.fixture(params=[True, False], ids=["msgspec", "json"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the lengths that msgspec tells, and as for a text that it refuses."""
    if not request.param:
        monkeypatch.setattr(splice, "_members_by_length", _refuses)


@given(OBJECTS, NAMES, SPACES)
def test_a_member_is_removed_wherever_it_stands(values: dict[str, Any], name: str, space: tuple[str, str]) -> None:
    text = f" {json.dumps(values, separators=space, ensure_ascii=False)}\n"
    found = without(text, name)
    assert json.loads(found) == {key: value for key, value in values.items() if key != name}
    if name not in values:
        assert found == text


@pytest.mark.usefixtures("reader")
def test_all_members_of_one_name_are_removed() -> None:
    for text, left in (
        ('{"a": 1, "b": 2}', '{"b": 2}'),
        ('{"b": 2, "a": 1}', '{"b": 2}'),
        ('{"a": 1, "a": 3}', "{}"),
        ('{"a": 1, "b": 2, "a": 3}', '{"b": 2}'),
        ('{"a": 1, "a": 3, "b": 2, "c": 4}', '{"b": 2, "c": 4}'),
        ('{"b": 2, "a": 1, "c": 4, "a": 3}', '{"b": 2, "c": 4}'),
        ('{"a": 1}', "{}"),
        ("{}", "{}"),
    ):
        found = without(text, "a")
        assert json.loads(found) == json.loads(left) and '"a"' not in found, found


@given(OBJECTS, OBJECTS, SPACES)
def test_members_are_set_or_put_behind_the_last(
    old: dict[str, Any], new: dict[str, Any], space: tuple[str, str]
) -> None:
    text = json.dumps(old, separators=space, ensure_ascii=False)
    found = Document(text).changed([Put((), new)])
    assert json.loads(found) == old | new and list(json.loads(found)) == list(old | new)


@given(OBJECTS, st.lists(VALUES, max_size=4), VALUES, SPACES, st.sets(st.integers(0, 3)))
def test_values_are_replaced_dropped_and_kept(
    values: dict[str, Any], items: list[Any], value: Any, space: tuple[str, str], kept: set[int]
) -> None:
    whole = {"first": 1, "items": items, "inside": values}
    text = json.dumps(whole, separators=space)
    for name in values:
        changed = Document(text).changed([Replace(("inside", name), value)])
        assert json.loads(changed) == whole | {"inside": values | {name: value}}
        left = {key: one for key, one in values.items() if key != name}
        if name == next(iter(values)):
            left = {name: None} | left  # the first one becomes null
        assert json.loads(Document(text).changed([Drop(("inside", name))])) == whole | {"inside": left}
        only = json.loads(Document(text).changed([Keep(("inside",), {name})]))
        assert only == whole | {"inside": {name: values[name]}}
    shorter = json.loads(Document(text).changed([Keep(("items",), kept)]))
    assert shorter == whole | {"items": [item for k, item in enumerate(items) if k in kept]}
    nothing: list[Change] = [Replace(("none", 0), value), Drop(("inside", "none")), Keep(("none",), kept)]
    assert Document(text).changed(nothing) == text


@pytest.mark.usefixtures("reader")
def test_of_two_changes_that_overlap_the_outer_one_counts() -> None:
    text = '{"a": {"b": [1, 2]}, "c": 3}'
    changes: list[Change] = [Replace(("a", "b", 1), 7), Replace(("a",), 5), Replace(("c",), 4)]
    assert Document(text).changed(changes) == '{"a": 5, "c": 4}'
    inside: list[Change] = [Replace(("a", "b", 1), 7), Replace(("a", "b", 0), 6)]
    assert Document(text).changed(inside) == '{"a": {"b": [6, 7]}, "c": 3}'
    place = Document(text).span(("a", "b"))
    assert place is not None and text[slice(*place)] == "[1, 2]"


@pytest.mark.parametrize("length", [200, 201])
def test_long_lists_are_written_as_short_ones_are(length: int) -> None:
    for value in (list(range(length)), {"a": list(range(length)), "b": {"c": ["é"] * length}}):
        assert encode(value) == json.dumps(value)
