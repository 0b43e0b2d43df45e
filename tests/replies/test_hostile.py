"""Damaged and hostile replies end in an error of semtoken or in a reply, never in anything else, and soon."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.replies import Reply, ReplyStream, known_formats, read_reply, score_reply
from tests.examples import examples
from tests.replies.recorded import NAMES, STREAMED, clusters, recording
from tests.rows import each

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["token_id:5", "token_id:99999999999", "\ufffd", "\ud800", "<|end|>", "data: {}", -9999.0, 0.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all members in a JSON value."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from places(item, (*path, i))


def changed(value: Any, path: tuple[Any, ...], what: str, junk: Any) -> Any:
    value = copy.deepcopy(value)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if what == "replace":
        holder[path[-1]] = junk
    elif what == "double" and isinstance(holder, list):
        holder.insert(path[-1], holder[path[-1]])
    else:
        del holder[path[-1]]
    return value


def must_end_well(reply: Any, format: str | None = None) -> None:
    try:
        parsed_reply = read_reply(reply, format)
    except SemtokenError:
        return
    assert isinstance(parsed_reply, Reply)
    for choice in parsed_reply.choices:
        for segment in choice.segments:
            for step in segment.steps:
                for token in (step.chosen, *step.top):
                    assert token.log_prob <= 0
                    assert token.id is None or token.id >= 0
    try:
        results = score_reply(parsed_reply, clusters())
    except SemtokenError:
        return
    for result in results:
        low, high = result.sequence_uncertainty_interval
        assert 0 <= low <= high <= 1


MORE = examples(5)
"""Examples are shared by all recordings."""


@MORE
@given(data=st.data())
def test_changed_replies(data: st.DataObject) -> None:
    reply = recording(data.draw(st.sampled_from(NAMES))).reply
    for _ in range(data.draw(st.integers(1, 2))):
        if not (left := list(places(reply))):  # its only member was dropped
            break
        path = data.draw(st.sampled_from(left))
        what = data.draw(st.sampled_from(["replace", "drop", "double"]))
        reply = changed(reply, path, what, data.draw(JUNK))
    must_end_well(reply, data.draw(st.sampled_from([None, *known_formats()])))


@MORE
@given(data=st.data())
def test_changed_streams(data: st.DataObject) -> None:
    stream = recording(data.draw(st.sampled_from(STREAMED))).stream
    lines = stream.splitlines(keepends=True)
    for how in data.draw(st.lists(st.sampled_from(["change", "drop", "double", "swap", "cut"]), max_size=3)):
        i = data.draw(st.integers(0, len(lines) - 1))
        j = data.draw(st.integers(0, len(lines) - 1))
        if how == "change" and lines[i].startswith("data: {") and lines[i].endswith("}\n"):
            chunk = json.loads(lines[i].splitlines()[0][6:])
            path = data.draw(st.sampled_from(list(places(chunk))))
            chunk = changed(chunk, path, data.draw(st.sampled_from(["replace", "drop"])), data.draw(JUNK))
            lines[i] = f"data: {json.dumps(chunk)}\n"
        elif how == "swap":
            lines[i], lines[j] = lines[j], lines[i]
        else:
            lines[i] = {"drop": "", "double": lines[i] * 2}.get(how, lines[i][: j % (len(lines[i]) + 1)])
    must_end_well("".join(lines).encode("utf-8", "surrogatepass"))


@given(junk=JUNK, format=st.sampled_from([None, *known_formats()]))
def test_anything(junk: Any, format: str | None) -> None:
    must_end_well(junk, format)


@given(junk=st.binary(max_size=200))
def test_any_bytes(junk: bytes) -> None:
    must_end_well(junk)
    must_end_well(b"data: " + junk)


@each(
    ("reply", "words"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"choices": [{"index": ' + "9" * 5000 + "}]}", "not JSON"),
        (b"\xff\xfe{", "not JSON"),
        ({}, "no reply that semtoken understands: its fields are none"),
        ({"object": "list", "data": []}, "its fields are 'object', 'data'"),
        ({"choices": []}, "holds no choices"),
        ({"choices": [17]}, r"choices\[0\] must be an object. Got 17 instead"),
        ({"choices": [{"message": {"content": 5}}]}, r"choices\[0\].message.content must be a list"),
        ({"choices": [{"message": {}}, {"message": {}}]}, "same index"),
        ({"choices": [{"message": {}, "index": -1}]}, "integer from 0"),
        (17, "Got int instead"),
    ],
)
def test_what_is_no_reply(reply: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        read_reply(reply)


def test_a_report_of_an_error() -> None:
    with pytest.raises(BackendError, match="The server reports an error: no such model"):
        read_reply({"error": {"message": "no such\nmodel", "type": "invalid_request_error"}})


@pytest.mark.parametrize("value", [3.5, "x", True, 10**400])
def test_what_is_no_log_probability(value: Any) -> None:
    reply = copy.deepcopy(recording("openai-chat").reply)
    reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1]["logprob"] = value
    with pytest.raises(InvalidInputError, match=r"content\[0\].top_logprobs\[1\].logprob must be"):
        read_reply(reply)


def test_an_unknown_format() -> None:
    with pytest.raises(InvalidInputError, match="There is no format 'gpt'"):
        read_reply({}, "gpt")


def test_a_foreign_object_that_cannot_be_dumped() -> None:
    class Broken:
        def model_dump(self, **_: Any) -> None:
            raise RuntimeError("no")

    with pytest.raises(InvalidInputError, match="Broken cannot be turned into plain values: no"):
        read_reply(Broken())


@pytest.mark.parametrize("step", ["a", "\ufffd", ""])
def test_long_replies_made_to_be_slow_end_soon(step: str) -> None:
    """Tokens and text that nearly match in very many ways."""
    item = {"token": step, "logprob": -0.1, "bytes": None, "top_logprobs": []}
    for text in ("a" * 1_200 + "b", "ab" * 650, "b" + "a" * 1_200):
        message = {"content": text, "reasoning": "a" * 500 + "c"}
        reply = {"choices": [{"message": message, "logprobs": {"content": [item] * 2_500}}]}
        started = time.process_time()
        read_reply(reply)
        assert time.process_time() - started < 1


def test_an_endless_event_is_refused() -> None:
    stream = ReplyStream()
    with pytest.raises(InvalidInputError, match="more than 64 million characters"):
        for _ in range(9):
            stream.feed(b"x" * 2**23)
