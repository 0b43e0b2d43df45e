"""Each shape asks a server, reads a request and changes a reply as is written out here by hand from the APIs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from semtoken.errors import InvalidInputError
from semtoken.replies.formats import ALL, HiddenFields, Place, ProbeQuestion, Shape, served_shapes, shape_at, shapes_at
from semtoken.support.splice import Document
from tests.rows import each

SHAPES = {shape.name: shape for shape in served_shapes()}
SAID = [{"role": "user", "content": "Where?"}]
QUESTION = ProbeQuestion("Where?", max_tokens=3, top=5, temperature=0.5)
INCLUDED = ["message.output_text.logprobs"]


@each(
    ("name", "path", "body"),
    [
        (
            "chat",
            "/v1/chat/completions",
            {"messages": SAID, "max_tokens": 3, "temperature": 0.5, "logprobs": True, "top_logprobs": 5},
        ),
        ("completions", "/v1/completions", {"prompt": "Where?", "max_tokens": 3, "temperature": 0.5, "logprobs": 5}),
        (
            "responses",
            "/v1/responses",
            {"input": "Where?", "max_output_tokens": 16, "temperature": 0.5, "include": INCLUDED, "top_logprobs": 5},
        ),
        (
            "generate",
            "/generate",
            {"text": "Where?", "sampling_params": {"max_new_tokens": 3, "temperature": 0.5}}
            | {"return_logprob": True, "top_logprobs_num": 5, "return_text_in_logprobs": True},
        ),
        ("completion", "/completion", {"prompt": "Where?", "n_predict": 3, "temperature": 0.5, "n_probs": 5}),
        (
            "ollama-chat",
            "/api/chat",
            {"messages": SAID, "options": {"num_predict": 3, "temperature": 0.5}, "logprobs": True, "top_logprobs": 5},
        ),
        (
            "ollama-generate",
            "/api/generate",
            {"prompt": "Where?", "options": {"num_predict": 3, "temperature": 0.5}}
            | {"logprobs": True, "top_logprobs": 5},
        ),
        (
            "tgi",
            "/generate",
            {"inputs": "Where?"}
            | {"parameters": {"max_new_tokens": 3, "temperature": 0.5, "details": True, "top_n_tokens": 5}},
        ),
    ],
)
def test_the_request_of_a_question(name: str, path: str, body: dict[str, Any]) -> None:
    shape = SHAPES[name]
    assert shape.body(QUESTION) == body
    assert ("/v1" if shape.below_v1 else "") + shape.path == path and shape in shapes_at(path)


def test_the_model_is_named_where_a_server_may_have_several() -> None:
    named = {name for name, shape in SHAPES.items() if shape.body(replace(QUESTION, model="m")).get("model") == "m"}
    assert named == {"chat", "completions", "responses", "ollama-chat", "ollama-generate"}
    assert not any("model" in shape.body(QUESTION) for shape in SHAPES.values())


def test_a_question_has_one_token_by_default_and_a_response_at_least_16() -> None:
    assert SHAPES["chat"].body(ProbeQuestion("Where?")) == {"messages": SAID, "max_tokens": 1}
    assert SHAPES["responses"].request(ProbeQuestion("Where?", 20))["max_output_tokens"] == 20


@each(
    ("name", "body", "number"),
    [
        ("chat", {"messages": []}, None),
        ("chat", {"messages": [], "logprobs": False}, None),
        ("chat", {"messages": [], "logprobs": True}, 0),
        ("chat", {"messages": [], "logprobs": True, "top_logprobs": 0}, 0),
        ("chat", {"messages": [], "logprobs": True, "top_logprobs": 5}, 5),
        ("chat", {"messages": [], "logprobs": True, "top_logprobs": -1}, ALL),
        ("completions", {"prompt": "x"}, None),
        ("completions", {"prompt": "x", "logprobs": 0}, 0),
        ("completions", {"prompt": "x", "logprobs": 3}, 3),
        ("responses", {"input": "x", "top_logprobs": 3}, None),
        ("responses", {"input": "x", "include": INCLUDED}, 0),
        ("responses", {"input": "x", "include": INCLUDED, "top_logprobs": 3}, 3),
        ("generate", {"text": "x", "return_logprob": True, "top_logprobs_num": 0}, 0),
        ("completion", {"prompt": "x", "n_probs": 0}, None),
        ("completion", {"prompt": "x", "n_probs": 2}, 2),
        ("completion", {"prompt": "x", "n_probs": -1}, ALL),
        ("tgi", {"inputs": "x", "parameters": {"details": True}}, 0),
        ("tgi", {"inputs": "x", "parameters": {"top_n_tokens": 5}}, None),
    ],
)
def test_how_many_log_probabilities_a_request_asks_for(name: str, body: dict[str, Any], number: int | None) -> None:
    """None, none but the chosen token's, some, or all."""
    assert SHAPES[name].requested(body) == number


def test_a_request_is_made_to_ask_for_more_and_never_for_less() -> None:
    chat = SHAPES["chat"]
    for own, least, asked in ((None, 5, 5), (3, 5, 5), (7, 5, 7), (-1, 5, -1), (None, -1, -1), (None, 0, 0)):
        given = {} if own is None else {"logprobs": True, "top_logprobs": own}
        assert chat.asking({"messages": SAID} | given, least) == {"logprobs": True, "top_logprobs": asked}
    assert chat.asking({"messages": SAID}, 5, token_ids=True)["return_token_ids"] is True
    included = {"input": "x", "include": INCLUDED}
    assert SHAPES["responses"].asking(included, 5) == {"include": INCLUDED, "top_logprobs": 5}


@each(
    ("name", "body", "prompts"),
    [
        ("chat", {"messages": SAID, "n": 2}, [SAID, SAID]),
        (
            "chat",
            {"messages": SAID, "tools": [], "chat_template_kwargs": {}, "reasoning_effort": None}
            | {"continue_final_message": False, "add_generation_prompt": True},
            [SAID],
        ),
        ("completions", {"prompt": "a"}, ["a"]),
        ("completions", {"prompt": ["a"]}, ["a"]),
        ("completions", {"prompt": ["a", "b"], "n": None}, ["a", "b"]),
        ("completions", {"prompt": ["a", "b"], "n": 2}, ["a", "a", "b", "b"]),
        ("completions", {"prompt": [3, 1]}, [[3, 1]]),
        ("completions", {"prompt": [[3, 1], [2]]}, [[3, 1], [2]]),
        ("generate", {"text": ["a", "b"], "sampling_params": {"n": 2}}, ["a", "a", "b", "b"]),
        ("completion", {"prompt": ["a", "b"]}, ["a", "b"]),
        ("responses", {"input": "Where?"}, [SAID]),
        (
            "responses",
            {"input": "Where?", "instructions": "Be brief."},
            [[{"role": "system", "content": "Be brief."}, *SAID]],
        ),
    ],
)
def test_the_prompt_of_each_choice(name: str, body: dict[str, Any], prompts: list[Any]) -> None:
    assert [SHAPES[name].prompt(body, choice) for choice in range(len(prompts))] == prompts
    if name == "completions" and len(prompts) > 1:
        with pytest.raises(InvalidInputError, match="no prompt for this choice"):
            SHAPES[name].prompt(body, len(prompts))


@each(
    ("name", "body", "told"),
    [
        ("chat", {"messages": []}, "no messages"),
        ("chat", {"messages": "Where?"}, "no messages"),
        ("chat", {"messages": SAID, "tools": [{}]}, "has 'tools'"),
        ("chat", {"messages": SAID, "continue_final_message": True}, "has 'continue_final_message'"),
        ("chat", {"messages": SAID, "add_generation_prompt": False}, "has 'add_generation_prompt'"),
        ("completions", {"prompt": []}, "no prompt"),
        ("completions", {"prompt": ["a"], "n": "2"}, "no prompt"),
        ("responses", {"input": SAID}, "no plain text"),
        ("responses", {"input": "a", "previous_response_id": "r"}, "has 'previous_response_id'"),
    ],
)
def test_a_prompt_that_only_the_server_knows(name: str, body: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        SHAPES[name].prompt(body, 0)


@pytest.mark.parametrize(
    ("name", "body", "texts"),
    [
        ("chat", {"stop": ["a", "", "b"]}, ("a", "b")),
        ("completions", {"stop": "a"}, ("a",)),
        ("generate", {"sampling_params": {"stop": ["a"], "stop_token_ids": [7]}}, ("a",)),
        ("completion", {"stop": ["a"]}, ("a",)),
        ("ollama-chat", {"options": {"stop": ["a"]}}, ("a",)),
        ("tgi", {"parameters": {"stop": ["a"]}}, ("a",)),
    ],
)
def test_the_texts_that_end_an_answer(name: str, body: dict[str, Any], texts: tuple[str, ...]) -> None:
    assert SHAPES[name].stop_texts(body) == texts and SHAPES[name].has_stop_texts(body)
    assert SHAPES[name].stop_texts({}) == () and not SHAPES[name].has_stop_texts({})


OTHER = "I do not know."
ITEMS = [{"token": "Oslo", "logprob": -0.2, "top_logprobs": []}]
MESSAGE = {
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": OTHER, "annotations": [], "logprobs": []}],
}
META = {"id": "1", "finish_reason": {"type": "stop"}}


@each(
    ("name", "reply", "shown"),
    [
        (
            "chat",
            {"choices": [{"message": {"content": "Oslo", "reasoning": "Hm"}, "token_ids": [5], "logprobs": ITEMS}]},
            {"choices": [{"message": {"content": OTHER, "reasoning": None}, "token_ids": None, "logprobs": None}]},
        ),
        (
            "completions",
            {"choices": [{"index": 0, "text": "Oslo", "logprobs": {"tokens": ["Oslo"]}, "finish_reason": "stop"}]},
            {"choices": [{"index": 0, "text": OTHER, "logprobs": None, "finish_reason": "stop"}]},
        ),
        (
            "responses",
            {
                "object": "response",
                "output": [{"type": "reasoning", "id": "r"}, {"type": "message", "id": "m"}],
                "output_text": "Oslo",
            },
            {"object": "response", "output": [MESSAGE | {"id": "m"}], "output_text": OTHER},
        ),
        (
            "responses",
            {"object": "response", "output": [{"type": "reasoning", "id": "r"}]},
            {"object": "response", "output": [MESSAGE | {"id": "msg_0"}]},
        ),
        (
            "generate",
            {"text": "Oslo", "output_ids": [5], "meta_info": META | {"output_token_logprobs": [[-0.2, 5, "Oslo"]]}},
            {"text": OTHER, "meta_info": META},
        ),
        (
            "completion",
            {"content": "Oslo", "stop": True, "tokens": [5], "completion_probabilities": ITEMS},
            {"content": OTHER, "stop": True},
        ),
        (
            "ollama-chat",
            {"message": {"role": "assistant", "content": "Oslo", "thinking": "Hm"}, "done": True, "logprobs": ITEMS},
            {"message": {"role": "assistant", "content": OTHER, "thinking": None}, "done": True},
        ),
        (
            "ollama-generate",
            {"response": "Oslo", "done": True, "context": [5], "logprobs": ITEMS},
            {"response": OTHER, "done": True},
        ),
        ("tgi", {"generated_text": "Oslo", "details": {"tokens": []}}, {"generated_text": OTHER}),
    ],
)
def test_an_answer_that_is_withheld_is_nowhere_in_its_reply(
    name: str, reply: dict[str, Any], shown: dict[str, Any]
) -> None:
    shape = SHAPES[name]
    [place] = shape.places(reply) or ()
    assert json.loads(Document(json.dumps(reply)).changed(shape.withholding(reply, place, OTHER))) == shown


WHOLE = {"output": [], "status": "completed"}
BEST = [{"token": text, "logprob": -1.0} for text in "abc"]


@each(
    ("name", "event", "none", "two"),
    [
        (
            "chat",
            {"choices": [{"token_ids": [5], "logprobs": {"content": [{"token": "a", "top_logprobs": BEST}]}}]},
            {"choices": [{"token_ids": [5], "logprobs": None}]},
            {"choices": [{"token_ids": [5], "logprobs": {"content": [{"token": "a", "top_logprobs": BEST[:2]}]}}]},
        ),
        (
            "completions",
            {"choices": [{"logprobs": {"tokens": ["a"], "top_logprobs": [{"a": -3.0, "b": -0.5, "c": -1.0}, None]}}]},
            {"choices": [{"logprobs": None}]},
            {"choices": [{"logprobs": {"tokens": ["a"], "top_logprobs": [{"a": -3.0, "b": -0.5, "c": -1.0}, None]}}]},
        ),
        (
            "completions",
            {"choices": [{"logprobs": {"tokens": ["c"], "top_logprobs": [{"a": -3.0, "b": -0.5, "c": -1.0}] * 2}}]},
            {"choices": [{"logprobs": None}]},
            {"choices": [{"logprobs": {"tokens": ["c"], "top_logprobs": [{"b": -0.5, "c": -1.0}] * 2}}]},
        ),
        (
            "responses",
            {"output": [{"content": [{"type": "output_text", "logprobs": [{"token": "a", "top_logprobs": BEST}]}]}]},
            {"output": [{"content": [{"type": "output_text", "logprobs": []}]}]},
            {
                "output": [
                    {"content": [{"type": "output_text"} | {"logprobs": [{"token": "a", "top_logprobs": BEST[:2]}]}]}
                ]
            },
        ),
        (
            "generate",
            {"text": "a", "meta_info": META | {"output_token_logprobs": [1], "output_top_logprobs": [[1, 2, 3], [4]]}},
            {"text": "a", "meta_info": META},
            {"text": "a", "meta_info": META | {"output_token_logprobs": [1], "output_top_logprobs": [[1, 2], [4]]}},
        ),
        (
            "completion",
            {"content": "a", "completion_probabilities": [{"token": "a", "top_logprobs": BEST}]},
            {"content": "a"},
            {"content": "a", "completion_probabilities": [{"token": "a", "top_logprobs": BEST[:2]}]},
        ),
        (
            "ollama-chat",
            {"message": {"content": "a"}, "done": True, "logprobs": [{"token": "a", "top_logprobs": BEST}]},
            {"message": {"content": "a"}, "done": True},
            {"message": {"content": "a"}, "done": True, "logprobs": [{"token": "a", "top_logprobs": BEST[:2]}]},
        ),
        (
            "tgi",
            {"index": 1, "token": {"text": "a"}, "top_tokens": BEST},
            {"index": 1, "token": {"text": "a"}},
            {"index": 1, "token": {"text": "a"}, "top_tokens": BEST[:2]},
        ),
        (
            "tgi",
            {"generated_text": "a", "details": {"tokens": [], "top_tokens": [BEST, BEST[:1]]}},
            {"generated_text": "a"},
            {"generated_text": "a", "details": {"tokens": [], "top_tokens": [BEST[:2], BEST[:1]]}},
        ),
    ],
)
def test_clients_see_as_many_numbers_as_they_asked_for(
    name: str, event: dict[str, Any], none: dict[str, Any], two: dict[str, Any]
) -> None:
    for kept, shown in ((None, none), (2, two), (3, event)):
        assert json.loads(Document(json.dumps(event)).changed(SHAPES[name].hiding(event, HiddenFields(kept)))) == shown


def test_token_ids_are_taken_out_unless_the_client_asked_for_them() -> None:
    reply = {"prompt_token_ids": [1], "choices": [{"token_ids": [5], "text": "a"}]}
    without = {"prompt_token_ids": None, "choices": [{"token_ids": None, "text": "a"}]}
    for asked, ids, shown in (({}, True, without), ({"return_token_ids": True}, True, reply), ({}, False, reply)):
        hidden = HiddenFields(0, ids, asked)
        assert json.loads(Document(json.dumps(reply)).changed(SHAPES["completions"].hiding(reply, hidden))) == shown


@each(
    ("name", "event", "place"),
    [
        ("chat", {"choices": [{"index": 1, "delta": {"content": "a"}}]}, Place(1, ("choices", 0), goes_on=True)),
        ("chat", {"choices": [{"index": 1, "delta": {"content": ""}}]}, Place(1, ("choices", 0))),
        ("completions", {"choices": [{"index": "1", "text": "a"}]}, Place(None, ("choices", 0), goes_on=True)),
        ("completions", {"choices": [{"text": "a", "finish_reason": "stop"}]}, Place(0, ("choices", 0), ended=True)),
        ("generate", {"text": "a", "meta_info": {}}, Place(0, (), goes_on=True)),
        ("completion", {"content": "a", "stop": False}, Place(0, (), goes_on=True)),
        ("completion", {"content": "", "stop": True}, Place(0, (), ended=True)),
        ("ollama-chat", {"message": {"content": "a"}, "done": False}, Place(0, (), goes_on=True)),
        ("responses", {"object": "response", **WHOLE}, Place(0, (), ended=True)),
        ("responses", {"type": "response.completed", "response": WHOLE}, Place(0, ("response",), ended=True)),
        ("responses", {"type": "response.incomplete", "response": WHOLE}, Place(0, ("response",), ended=True)),
        ("responses", {"type": "response.failed", "response": WHOLE}, Place(0, ("response",), ended=True)),
        ("responses", {"type": "response.output_text.delta", "delta": "a"}, Place(0, (), goes_on=True)),
        ("responses", {"type": "response.output_text.delta", "delta": ""}, Place(0, ())),
        ("responses", {"type": "response.output_text.delta", "delta": None}, Place(0, ())),
        ("tgi-stream", {"index": 4, "token": {"logprob": -0.2}}, Place(0, (), goes_on=True)),
        ("tgi-stream", {"index": 4, "token": {"logprob": -0.2}, "generated_text": "a"}, Place(0, (), ended=True)),
    ],
)
def test_where_a_choice_stands_in_an_event(name: str, event: dict[str, Any], place: Place) -> None:
    """The block of a stream goes to the event that ends it, and text that goes on is that of choice 0."""
    assert SHAPES[name].places(event) == [place]


def test_an_event_without_an_answer_has_no_place_and_another_object_no_shape() -> None:
    responses = SHAPES["responses"]
    assert responses.places({"type": "response.created", "response": WHOLE}) == []
    assert responses.places({"status": "completed"}) is None and responses.places([WHOLE]) is None


def test_the_path_of_a_stream_of_tgi_is_longer_than_that_of_a_reply() -> None:
    found: list[type[Shape]] = shapes_at("/generate_stream")
    assert [shape.name for shape in found] == ["tgi-stream"] and found[0].streams({})
    assert {shape.name for shape in shapes_at("/generate")} == {"generate", "tgi"}
    assert shape_at("/elsewhere") is None


LLAMA_CPP = {"generation_settings": {"n_probs": 20}}


@each(
    ("name", "reply", "asked", "shown"),
    [
        ("completion", LLAMA_CPP, {}, {"generation_settings": {"n_probs": 0}}),
        ("completion", LLAMA_CPP, {"n_probs": 3}, {"generation_settings": {"n_probs": 3}}),
        ("responses", {"top_logprobs": 20}, {}, {"top_logprobs": 0}),
        ("responses", {"top_logprobs": 20}, {"top_logprobs": 3}, {"top_logprobs": 3}),
        ("responses", {"top_logprobs": 20, "kv_transfer_params": None}, {}, {"top_logprobs": None}),  # vLLM
    ],
)
def test_the_settings_that_a_reply_repeats_are_those_of_the_client(
    name: str, reply: dict[str, Any], asked: dict[str, Any], shown: dict[str, Any]
) -> None:
    whole = reply | ({"content": "a", "stop": True} if name == "completion" else {"output": []})
    events = [whole, {"type": "response.completed", "response": whole}][: 1 + (name == "responses")]
    for event in events:
        fields = HiddenFields(asked.get("top_logprobs"), request=asked)
        changed = json.loads(Document(json.dumps(event)).changed(SHAPES[name].hiding(event, fields)))
        assert changed.get("response", changed) == whole | shown


@pytest.mark.parametrize(
    ("name", "by_default"),
    [("chat", False), ("completions", False), ("ollama-chat", True), ("ollama-generate", True), ("tgi", False)],
)
def test_whether_a_request_asks_for_a_stream(name: str, by_default: bool) -> None:
    shape = SHAPES[name]
    assert [shape.streams(body) for body in ({}, {"stream": True}, {"stream": False})] == [by_default, True, False]
