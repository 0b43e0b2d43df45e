"""Confidences in the shape of the JSON they belong to: compared with `json.loads` of the same text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.core.parts.json_values import find_json
from semtoken.core.parts.nested import nested
from semtoken.replies import score_reply
from tests.replies.made import chat_reply

scalars = st.none() | st.booleans() | st.integers(-99, 99) | st.text('aé/~ 0"\\', max_size=4)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a0/~", max_size=3), inner, max_size=3)
)
documents = st.lists(values, max_size=3) | st.dictionaries(st.text("ab0/~é", max_size=3), values, max_size=4)


def by_pointer(value: Any, pointer: str = "") -> dict[str, Any]:
    """The scalars of a JSON value by their pointers, without our reader."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        return {pointer: value}
    found: dict[str, Any] = {}
    for name, member in inner:
        step = str(name).replace("~", "~0").replace("/", "~1")
        found |= by_pointer(member, f"{pointer}/{step}")
    return found


@given(
    documents,
    st.sampled_from([None, 1]),
    st.sampled_from(["{}", "```json\n{}\n```", "Here it is:\n```\n{}\n```\nDone."]),
)
def test_it_has_the_shape_of_the_json(document: Any, indent: int | None, around: str) -> None:
    text = around.replace("{}", json.dumps(document, indent=indent))
    assert nested(text, by_pointer(document)) == document


@given(documents, st.data())
def test_what_was_cut_off_is_there_as_far_as_it_goes(document: Any, data: st.DataObject) -> None:
    whole = json.dumps(document)
    text = whole[: data.draw(st.integers(1, len(whole)))]
    shape = nested(text, by_pointer(document))
    known = {value.pointer for value in find_json(text).scalars}
    assert known <= by_pointer(shape).keys() or shape is None or not known
    assert type(shape) in (type(document), type(None))


def test_fields_that_are_missing_are_added_and_the_last_of_two_counts() -> None:
    assert nested('{"a": {"b": 1}}', {"/a/b": 0.5, "/a/c": None, "/d~1e": None}) == {
        "a": {"b": 0.5, "c": None},
        "d/e": None,
    }
    assert list(nested('{"a": 1}', dict.fromkeys(f"/{name}" for name in "zyxwvu"))) == [*"azyxwvu"]
    assert nested('{"a": {"b": 1}, "a": {"c": [2]}}', {"/a/c/0": 0.25}) == {"a": {"c": [0.25]}}
    assert nested("no JSON at all", {}) is None
    assert nested('{"a": [{"b": "cut o', {}) == {"a": [{"b": None}]}
    assert nested('{"a": [{"b": 1}, 2', {"/a/0/b": 0.5, "/a/1": 0.75}) == {"a": [{"b": 0.5}, 0.75]}


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```"])
def test_an_answer_gives_the_confidences_of_its_parts(around: str) -> None:
    text = around.replace("{}", '{"date": "May", "items": [{"total": 7}, {"total": 8}]}')
    tokens = [text[i : i + 3] for i in range(0, len(text), 3)]
    listed = [{"token": token, "logprob": -0.05 * (i % 4 + 1), "top_logprobs": []} for i, token in enumerate(tokens)]
    (answer,) = score_reply(chat_reply(text, listed))
    known = {part.path: part.confidence for part in answer.parts("field")}
    confidences = answer.field_confidences({"properties": {"date": {}, "vat": {"type": "number"}}})
    assert confidences == {
        "date": known["/date"],
        "items": [{"total": known["/items/0/total"]}, {"total": known["/items/1/total"]}],
        "vat": None,
    }
    assert 0 < confidences["date"] < 1
