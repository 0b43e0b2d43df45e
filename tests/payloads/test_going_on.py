"""Chunks that only go on with an answer are recognised in their JSON, and say what they say when read in full."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.engine_tokens.in_json import steps_in_json
from semtoken.errors import SemtokenError
from semtoken.payloads import PayloadStream
from semtoken.payloads.formats import Growth
from semtoken.payloads.formats.registry import shape_of_chunk
from semtoken.payloads.stream import LONGEST_FRAME, MOST_FRAMES, GoingOn
from semtoken.support.sse import EventReader
from tests.payloads.recorded import STREAMED, recording

msgspec = pytest.importorskip("msgspec")

LETTERS = ("a", "b", " a", "é", "\U0001f600")


def chunks_of(name: str) -> list[str]:
    """The data of a recorded stream's events."""
    stream = recording(name).stream
    assert stream is not None
    return [event.data for event in EventReader().feed(stream) if event.data and event.data != "[DONE]"]


def growth(chunk: dict[str, Any]) -> Growth | None:
    """Where a chunk says what it adds."""
    shape = shape_of_chunk(chunk)
    return None if shape is None else shape.growth(chunk)


def told(stream: PayloadStream) -> Any:
    """What a stream says, or why it cannot be read."""
    try:
        return stream.finish()
    except SemtokenError as error:
        return str(error)


def in_full(chunks: list[str]) -> tuple[Any, list[Any]]:
    """What a stream says whose chunks are read in full, and what each of them adds."""
    stream = PayloadStream()
    added = [stream.feed(json.loads(data)) for data in chunks]
    return told(stream), added


def as_text(chunks: list[str]) -> tuple[Any, list[Any]]:
    """The same of the stream as it travels."""
    stream = PayloadStream()
    added = [stream.feed(f"data: {data}\n\n") for data in chunks]
    return told(stream), added


@pytest.mark.parametrize("name", STREAMED)
def test_recorded_streams_say_the_same(name: str) -> None:
    assert as_text(chunks_of(name)) == in_full(chunks_of(name))


def item(text: str, **more: Any) -> dict[str, Any]:
    entry = {"token": text, "logprob": -0.5, "bytes": list(text.encode()), **more}
    return entry | {"top_logprobs": [entry]}


@st.composite
def chunk(draw: st.DrawFn) -> dict[str, Any]:
    """A chunk of a chat with up to two choices, usual or not."""
    text = draw(st.sampled_from(("", *LETTERS)))
    delta = draw(st.sampled_from([{"content": text}, {"content": text, "role": "assistant"}, {"content": None}, {}]))
    delta |= draw(st.sampled_from([{}, {}, {}, {"reasoning_content": None}, {"reasoning_content": "so"}]))
    delta |= draw(st.sampled_from([{}, {}, {}, {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}]))
    more = draw(
        st.sampled_from([{}, {}, {"id": 7}, {"bytes": None}, {"logprob": 0}, {"bytes": [256]}, {"logprob": 1e-4}])
    )
    items = [item(text, **more)] if text else []
    logprobs = draw(
        st.sampled_from([{"content": items}, {"content": items}, {"content": items, "refusal": None}, None])
    )
    beside = draw(st.sampled_from([{}, {}, {"token_ids": [7] * len(items)}, {"token_ids": None}, {"delta2": 1}]))
    end = draw(st.sampled_from([{}, {}, {}, {}, {"finish_reason": None}, {"finish_reason": "stop"}]))
    choice = {"index": draw(st.sampled_from((0, 0, 0, 1))), "delta": delta, "logprobs": logprobs, **beside, **end}
    twin = draw(st.sampled_from([{}, {}, {}, {"x": {"logprobs": {"content": items}}}]))
    return {"model": draw(st.sampled_from("mmmn")), "created": draw(st.integers(0, 3)), **twin, "choices": [choice]}


@given(st.lists(chunk(), min_size=1, max_size=8), st.lists(st.integers(0, 7), max_size=12), st.booleans())
def test_any_chunks_say_the_same(chunks: list[dict[str, Any]], again: list[int], spaced: bool) -> None:
    several = [json.dumps(one, separators=None if spaced else (",", ":")) for one in chunks]
    several += [several[i % len(several)] for i in again]
    try:
        expected = in_full(several)
    except SemtokenError as error:
        with pytest.raises(type(error)) as raised:
            as_text(several)
        assert str(raised.value) == str(error)
        return
    assert as_text(several) == expected


CHAT = {"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [item("a")]}}]}
LISTS = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -1}], "text_offset": [3]}
COMPLETION = {"id": "x", "choices": [{"index": 0, "text": "a", "logprobs": LISTS}]}


@pytest.mark.parametrize("kind", [CHAT, COMPLETION])
def test_chunks_of_an_answer_that_goes_on_are_recognised(kind: dict[str, Any]) -> None:
    data, later = json.dumps(kind | {"created": 1}), json.dumps(kind | {"created": 22})
    going_on = GoingOn()
    assert going_on.read(data) is None
    going_on.learn(data, kind, growth(kind))
    found = going_on.read(later)
    assert found is not None
    assert (found.choice, found.text, len(found.steps.steps)) == (0, "a", 1)
    said = [json.loads(later[start:end]) for start, end in found.spans]
    assert said[found.frame.names.index("steps")] == kind["choices"][0]["logprobs"] and 22 in said


@pytest.mark.parametrize(
    "other",
    [
        {"id": "y", "choices": CHAT["choices"]},
        {"id": "x", "choices": [{**CHAT["choices"][0], "index": 1}]},
        {"id": "x", "choices": [{**CHAT["choices"][0], "finish_reason": "stop"}]},
        {"id": "x", "choices": [{**CHAT["choices"][0], "delta": {"content": "a", "tool_calls": [{}]}}]},
        {"id": "x", "choices": [{**CHAT["choices"][0], "delta": {"content": ""}}]},
        {"id": "x", "choices": [{**CHAT["choices"][0], "logprobs": None}]},
        {"id": "x", "choices": [{**CHAT["choices"][0], "semtoken": {"uncertainty": 0.1}}]},
        {"id": "x", "choices": CHAT["choices"] * 2},
        {"id": "x", "more": {"logprobs": 1}, "choices": CHAT["choices"]},
    ],
)
def test_other_chunks_are_read_in_full(other: dict[str, Any]) -> None:
    going_on = GoingOn()
    going_on.learn(json.dumps(CHAT), CHAT, growth(CHAT))
    assert going_on.read(json.dumps(CHAT)) is not None
    assert going_on.read(json.dumps(other)) is None


def test_what_a_chunk_says_beside_its_answer_counts_though_an_earlier_one_said_it() -> None:
    stream = PayloadStream()
    for model in "mnm":
        stream.feed(f"data: {json.dumps({**CHAT, 'model': model})}\n\n")
    assert stream.finish().model == "m"


def test_what_is_remembered_of_a_stream_does_not_grow() -> None:
    going_on = GoingOn()
    for i in range(3 * MOST_FRAMES):
        going_on.learn(json.dumps({**CHAT, "id": str(i)}), CHAT, growth(CHAT))
        assert len(going_on._frames) <= MOST_FRAMES


def test_long_chunks_are_not_remembered() -> None:
    going_on, long = GoingOn(), {**CHAT, "more": "x" * LONGEST_FRAME}
    going_on.learn(json.dumps(long), long, growth(long))
    assert not going_on._frames
    assert not going_on._beside


@pytest.mark.parametrize(
    "written",
    ['{"content":[]}', "null", "{}", '{"content":[{"token":"a","logprob":-1,"bytes":null,"top_logprobs":[]}]}'],
)
def test_unusual_log_probabilities_are_left_to_the_reader_of_all(written: str) -> None:
    found = steps_in_json(msgspec.Raw(written.encode()))
    assert found is None or not found.steps
