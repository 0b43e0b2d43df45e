"""Shortcuts of the proxy for the usual chunks of a stream: they say what reading every chunk alone says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.payloads import PayloadStream
from semtoken.payloads.sse import EventReader
from semtoken.web.proxy.editing import Hidden, Json, read_json
from semtoken.web.proxy.gathering import GATHERED, Gatherer
from tests.payloads.recorded import STREAMED, recording

LETTERS = ("a", "b", " a", "é", "\U0001f600")


def chunks_of(name: str) -> list[str]:
    """The data of a recorded stream's events."""
    stream = recording(name).stream
    assert stream is not None
    return [event.data for event in EventReader().feed(stream) if event.data and event.data != "[DONE]"]


def gathered(chunks: list[Any]) -> list[Any]:
    gatherer = Gatherer()
    return [*(due for chunk in chunks for due in gatherer.add(chunk)), *gatherer.rest()]


def whole(chunks: list[Any]) -> Any:
    stream = PayloadStream()
    for chunk in chunks:
        stream.feed(chunk)
    return stream.finish()


@pytest.mark.parametrize("name", STREAMED)
def test_recorded_streams_say_the_same_together(name: str) -> None:
    chunks = [json.loads(data) for data in chunks_of(name)]
    if all("choices" in chunk for chunk in chunks):
        assert whole(gathered(chunks)) == whole(chunks)


def item(text: str) -> dict[str, Any]:
    entry = {"token": text, "logprob": -0.5, "bytes": list(text.encode())}
    return entry | {"top_logprobs": [entry]}


@st.composite
def chunk(draw: st.DrawFn) -> dict[str, Any]:
    """A chunk of a chat with up to two choices, usual or not."""
    text = draw(st.sampled_from(("", *LETTERS)))
    delta = draw(st.sampled_from([{"content": text}, {"content": text, "role": "assistant"}, {"content": None}, {}]))
    delta |= draw(st.sampled_from([{}, {}, {}, {"reasoning_content": None}, {"reasoning_content": "so"}]))
    delta |= draw(st.sampled_from([{}, {}, {}, {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}]))
    items = [item(text)] if text else []
    logprobs = draw(st.sampled_from([{"content": items}, {"content": items, "refusal": None}, None]))
    beside = draw(st.sampled_from([{}, {}, {"token_ids": [7] * len(items)}, {"token_ids": None}]))
    choice = {"index": draw(st.sampled_from((0, 0, 0, 1))), "delta": delta, "logprobs": logprobs, **beside}
    return {"model": draw(st.sampled_from("mmmn")), "created": draw(st.integers(0, 3)), "choices": [choice]}


@given(st.lists(chunk(), min_size=1, max_size=12), st.integers(1, 2 * GATHERED))
def test_any_chunks_say_the_same_together(chunks: list[dict[str, Any]], times: int) -> None:
    several = [one for one in chunks for _ in range(1 if one is not chunks[0] else times)]
    assert whole(gathered(several)) == whole(several)


def test_chunks_of_an_answer_that_goes_on_are_read_together() -> None:
    head = {"id": "x", "object": "chat.completion.chunk"}
    chunks = [
        head
        | {"created": i, "choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [item("a")]}}]}
        for i in range(2 * GATHERED + 1)
    ]
    assert len(gathered(chunks)) == 3
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    gatherer = Gatherer()
    assert [len(gatherer.add(one)) for one in (*chunks[:4], last, chunks[0])] == [1, 0, 0, 0, 2, 1]


def in_full(text: str, hidden: Hidden | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The edit of a chunk in which every value is looked up where it stands."""
    with monkeypatch.context() as patched:
        patched.setattr(Json, "_usual", lambda self, hidden: None)
        return read_json(text).edited(hidden, {})


HIDDEN = (None, Hidden(None, False), Hidden(2, False), Hidden(None, True))


@pytest.mark.parametrize("name", STREAMED)
def test_recorded_chunks_are_edited_as_in_full(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for data in chunks_of(name):
        if '"choices"' in data:
            for hidden in HIDDEN:
                assert read_json(data).edited(hidden, {}) == in_full(data, hidden, monkeypatch)


@pytest.mark.parametrize(
    "text",
    [
        '{"twin": {"content":[]}, "choices":[{"logprobs":{"content":[]},"index":0}]}',
        '{"choices":[{"logprobs":{"content":[]},"index":0, "twin": {"content":[]}}]}',
        '{"choices":[{"logprobs":{"content":["{\\"content\\":[]}"]},"logprobs":{"content":[]},"index":0}]}',
        '{"choices":[{"index":0,"logprobs": {"content":[1e999]} ,"delta":{"content":"\\ud800"}}]}',
        '{"choices":[{"index":0,"logprobs":{"content":[]},"semtoken":{"uncertainty":0.1}}]}',
        '{"choices":[{"index":0,"logprobs":{"content":[]}},{"index":1,"logprobs":{"content":[1]}}]}',
        '{"choices":[7]}',
        '{"choices":[]}',
    ],
)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_unusual_chunks_are_edited_as_in_full(text: str, hidden: Hidden, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_json(text).edited(hidden, {}) == in_full(text, hidden, monkeypatch)
