"""A stream, cut anywhere, becomes what the same reply is when it is not streamed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.errors import BackendError, InvalidInputError
from semtoken.replies import Reply, ReplyEvent, ReplyStream, read_reply
from semtoken.replies.formats.base import Delta
from semtoken.replies.stream import SegmentKeeper
from tests.examples import examples
from tests.replies import made
from tests.replies.recorded import STREAMED, recording
from tests.rows import each

LOSSY = {
    "llama-cpp-python-chat-awkward": "the engine drops characters of several tokens from its streams",
    "llama-cpp-python-completions-awkward": "the engine drops characters of several tokens from its streams",
    "vllm-responses": "the engine leaves the terminator out of its streams",
    "vllm-completions-echo": "the stream does not say where the prompt ends",
}


def numbers(parsed_reply: Reply) -> list[float]:
    steps = (step for choice in parsed_reply.choices for segment in choice.segments for step in segment.steps)
    return [token.log_prob for step in steps for token in (step.chosen, *step.top)]


def without_numbers(parsed_reply: Reply) -> Reply:
    def step(s: TopStep) -> TopStep:
        return TopStep(s.chosen._replace(log_prob=0.0), tuple(token._replace(log_prob=0.0) for token in s.top))

    choices = tuple(
        replace(
            c,
            segments=tuple(replace(g, steps=tuple(map(step, g.steps))) for g in c.segments),
            flags=tuple(flag for flag in c.flags if "the terminator has no" not in flag),  # streams hold no count
        )
        for c in parsed_reply.choices
    )
    return replace(parsed_reply, choices=choices)


def streamed(parts: Any, format: str | None = None) -> tuple[Reply, list[ReplyEvent]]:
    stream = ReplyStream(format)
    events = [event for part in parts for event in stream.feed(part)]
    return stream.finish(), events


@cache
def whole(name: str) -> tuple[Reply, list[ReplyEvent]]:
    return streamed([recording(name).stream])


@each("name", [name for name in STREAMED if name not in LOSSY])
def test_a_stream_is_its_reply(name: str) -> None:
    found, expected = whole(name)[0], read_reply(recording(name).reply)
    assert without_numbers(found) == without_numbers(expected)
    assert numbers(found) == pytest.approx(numbers(expected), abs=1e-4)  # llama.cpp's differ from run to run


@pytest.mark.parametrize("name", LOSSY)
def test_what_the_engine_loses_in_streams_is_not_made_up(name: str) -> None:
    """These streams hold less than the reply, see `LOSSY`."""
    parsed_reply, _ = whole(name)
    [choice] = parsed_reply.choices
    expected = read_reply(recording(name).reply)
    assert parsed_reply.format == expected.format
    answer = choice.segment("answer")
    assert answer is not None
    if name == "vllm-completions-echo":
        assert answer.problem is not None and "repeats the prompt" in answer.problem
    elif name == "vllm-responses":
        assert [step.chosen.text for step in answer.steps] == ["India"]
    else:
        assert answer.text == " caf "
        assert len(answer.steps) == len(expected.choices[0].segments[0].steps)
        assert any("not in the message" in flag for flag in choice.flags)


@examples(4)  # shared by all streams
@given(name=st.sampled_from(STREAMED), data=st.data())
def test_every_split_of_the_bytes_gives_the_same(name: str, data: st.DataObject) -> None:
    stream = recording(name).stream
    text = data.draw(st.sampled_from([stream, stream.replace("\n", "\r\n"), stream.replace("\n", "\r")]))
    sent = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=60)))
    parts = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert streamed(parts) == whole(name)


@each("name", STREAMED)
def test_events_are_the_segments_in_pieces(name: str) -> None:
    parsed_reply, events = whole(name)
    for choice in parsed_reply.choices:
        mine = [event for event in events if event.choice == choice.index]
        assert {event.kind for event in mine} == {s.kind for s in choice.segments} or not choice.segments[0].steps
        for segment in choice.segments:
            own = [event for event in mine if event.kind == segment.kind]
            steps = tuple(step for event in own for step in event.steps)
            if name == "vllm-responses":  # only the last event has bytes
                steps = tuple(without_bytes(step) for step in steps)
                segment = replace(segment, steps=tuple(map(without_bytes, segment.steps)))
            assert steps == segment.steps
            if segment.kind != "tool_call":  # whose pieces are shown without brackets
                assert "".join(event.text for event in own) == segment.text


def without_bytes(step: TopStep) -> TopStep:
    return TopStep(step.chosen._replace(bytes=None), tuple(token._replace(bytes=None) for token in step.top))


def chunks_of(name: str) -> list[dict[str, Any]]:
    lines = recording(name).stream.splitlines()
    lines = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@each("name", STREAMED)
def test_chunks_as_dicts_lists_and_iterators(name: str) -> None:
    chunks = chunks_of(name)
    expected = whole(name)[0]
    assert streamed(chunks)[0] == expected
    assert read_reply(iter(chunks)) == expected
    assert read_reply(chunks) == expected
    assert read_reply(recording(name).stream) == expected


@pytest.mark.parametrize("name", ["vllm-chat", "vllm-chat-reasoning", "vllm-chat-tool", "openai-chat-awkward"])
def test_chunks_of_the_official_client(name: str) -> None:
    chat = pytest.importorskip("openai.types.chat")
    chunks = [chat.ChatCompletionChunk.construct(**chunk) for chunk in chunks_of(name)]
    assert streamed(chunks)[0] == whole(name)[0]


def test_running_events_of_a_stream() -> None:
    """Each chunk brings its tokens, but for pieces of characters, which wait for the whole."""
    stream = ReplyStream()
    seen = []
    for chunk in chunks_of("vllm-chat-awkward-ids"):
        [*events] = stream.feed(chunk)
        seen.append([(event.text, [step.chosen.id for step in event.steps]) for event in events])
    assert seen == [
        [],
        [(" c", [272])],
        [("af", [1038])],
        [],
        [("é", [130, 105])],
        [(" ", [223])],
        [],
        [],
        [("東", [165, 254, 112])],
        [],
        [],
        [],
        [("🙂", [175, 256, 250, 227])],
        [("", [201])],
    ]


def test_a_stream_that_breaks_off_is_flagged() -> None:
    chunks = chunks_of("vllm-chat")[:-1]
    parsed_reply, _ = streamed(chunks)
    [choice] = parsed_reply.choices
    assert any("ended before" in flag for flag in choice.flags)
    assert not any("ended before" in flag for flag in whole("vllm-chat")[0].choices[0].flags)


def test_the_payload_so_far_may_be_asked_for_at_any_time() -> None:
    stream = ReplyStream()
    for chunk in chunks_of("vllm-chat-reasoning"):
        stream.feed(chunk)
        assert stream.finish() == stream.finish()
    assert stream.finish() == whole("vllm-chat-reasoning")[0]


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "out of memory", "code": 500}},
        {"type": "error", "message": "out of memory"},
        {"type": "response.failed", "response": {"error": {"message": "out of memory"}}},
    ],
)
def test_an_error_in_the_stream(error: dict[str, Any]) -> None:
    stream = ReplyStream()
    stream.feed(chunks_of("vllm-chat")[0])
    with pytest.raises(BackendError, match="out of memory"):
        stream.feed(made.events(error))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("data: {\n\n", "not JSON"),
        ("data: 17\n\n", "not an object"),
        ('data: {"x": 1}\n\n', "no chunk of a stream"),
        (17, "must be text"),
    ],
)
def test_what_is_no_chunk(part: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        ReplyStream().feed(part)


def test_nothing_streamed() -> None:
    stream = ReplyStream()
    assert stream.feed(b": ping\n\ndata: [DONE]\n\n") == []
    with pytest.raises(InvalidInputError, match="holds no chunk"):
        stream.finish()


def test_blanks_before_an_answer_are_its_own_and_what_else_comes_before_is_not() -> None:
    blank, word, mark = (TopStep(TopToken(-0.1, text=text), ()) for text in ("\n", "Oslo", "<x>"))
    delta = Delta(0, {"answer": "\nOslo"}, StepList((blank, word)))
    assert SegmentKeeper(divided=True).add(delta) == [ReplyEvent(0, "answer", "\nOslo", (blank, word))]
    before = SegmentKeeper(divided=True).add(delta._replace(steps=StepList((mark, blank, word))))
    assert before == [ReplyEvent(0, "reasoning", "", (mark, blank)), ReplyEvent(0, "answer", "\nOslo", (word,))]


ROME, IS = made.entry("Rome", -0.1), made.entry(" is", -0.2)
DELTA, DONE = "response.output_text.delta", {"type": "response.output_text.done", "logprobs": [ROME, IS]}


def output_item(kind: str, *parts: Any) -> dict[str, Any]:
    """The end of an item of the output, whose parts have these numbers."""
    return {
        "type": "response.output_item.done",
        "item": {"type": kind, "content": [{"logprobs": one} for one in parts]},
    }


@each(
    "sent",
    [
        [("Rome", [ROME, IS]), (" is", []), DONE],  # a chunk for both tokens
        [("Ro", [ROME]), ("me", []), (" is", [IS]), DONE],
        [("Rome", [ROME]), (" ", []), ("is", [IS]), output_item("message", [ROME, IS])],
        [("Rome", []), (" is", []), output_item("reasoning", [made.entry("Hm", -0.3)]), DONE],
        [("Rome", []), (" is", []), DONE, output_item("message", [ROME, IS])],
        [("Rome", []), (" is", [], 1), output_item("message", [ROME], [IS])],
        [("Rome", [ROME]), (" is", [], 1), output_item("message", [ROME], [IS])],
    ],
)
def test_numbers_at_the_end_of_a_part_count_where_its_pieces_have_none(sent: list[Any]) -> None:
    """Items of another kind are no answer, and a message may have several parts."""
    names = ("delta", "logprobs", "content_index")
    chunks = [one if isinstance(one, dict) else {"type": DELTA, **dict(zip(names, one, strict=False))} for one in sent]
    parsed_reply, _ = streamed([*chunks, {"type": "response.completed", "response": {"status": "completed"}}])
    [choice] = parsed_reply.choices
    [answer] = choice.segments
    assert (answer.text, answer.problem, choice.flags) == ("Rome is", None, ())
    assert [step.chosen.log_prob for step in answer.steps] == [-0.1, -0.2]
