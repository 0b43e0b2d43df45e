"""The proxy's changes to requests, replies and events, with all else as it came, and its lessons from refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semtoken.replies.formats import HiddenFields, Shape, shape_at
from semtoken.replies.formats.openai_choices import OpenAIChat, OpenAICompletions
from semtoken.web.proxy.asking import AnswerRequest, Limit, lower_limit, read_request
from semtoken.web.proxy.editing import Editor
from semtoken.web.proxy.memory import MOST_REMEMBERED, REMEMBERED_SECONDS, new_memory
from semtoken.web.wire import ApiError
from tests.rows import each

CONTENT = {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": t} for t in "abc"]}]}


class TestEditing:
    REPLY = '{"id":"é\\u00e9","n":1.50e1, "choices" : [ {"logprobs":%s,"index":0}, {"index":1,"logprobs":null}]}'

    def edit(self, text: str, hidden: HiddenFields | None, blocks: Any = None) -> str:
        editor = Editor(OpenAIChat, hidden)
        try:
            return editor.edited(editor.read(text), blocks or {})
        except ValueError:
            return text

    def test_log_probabilities_nobody_asked_for_go(self) -> None:
        text = self.REPLY % json.dumps(CONTENT)
        assert self.edit(text, HiddenFields(None, False)) == self.REPLY % "null"
        assert self.edit(text, None) == text

    def test_fewer_are_shown_if_fewer_were_asked_for(self) -> None:
        text = self.REPLY % json.dumps(CONTENT)
        shown = json.loads(self.edit(text, HiddenFields(2, False)))["choices"][0]["logprobs"]
        assert [t["token"] for t in shown["content"][0]["top_logprobs"]] == ["a", "b"]
        assert self.edit(text, HiddenFields(0, False)).count('"top_logprobs": []') == 1
        assert self.edit(text, HiddenFields(3, False)) == text

    def test_the_chosen_token_of_a_completion_stays(self) -> None:
        lists = {"tokens": ["z", "b"], "top_logprobs": [{"a": -1.0, "b": -2.0, "z": -9.0}, {"b": -1.0, "c": -2.0}]}
        shown = json.loads(self.edit(self.REPLY % json.dumps(lists), HiddenFields(1, False)))["choices"][0]["logprobs"]
        assert shown["top_logprobs"] == [{"a": -1.0, "z": -9.0}, {"b": -1.0}]

    def test_ids_nobody_asked_for_go(self) -> None:
        text = '{"prompt_token_ids":[1], "choices":[{"index":0,"token_ids":[1,2]}]}'
        left = '{"prompt_token_ids":null, "choices":[{"index":0,"token_ids":null}]}'
        assert self.edit(text, HiddenFields(0, True)) == left
        assert self.edit(text, HiddenFields(0, False)) == text

    def test_blocks_go_to_their_choices(self) -> None:
        text = '{"choices":[{"index":1},{"index":0}]}'
        assert self.edit(text, None, {1: {"a": 1}}) == '{"choices":[{"index":1,"semtoken":{"a": 1}},{"index":0}]}'

    @pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"choices":3}', '{"choices":[3, null]}', "[" * 100_000])
    def test_what_is_no_reply_stays(self, text: str) -> None:
        assert self.edit(text, HiddenFields(None, True), {0: {}}) == text


def read(shape: type[Shape], body: bytes) -> AnswerRequest:
    """A request that is understood."""
    asked = read_request(shape, body)
    assert asked is not None
    return asked


class TestRequests:
    def test_which_requests_are_scored(self) -> None:
        assert shape_at("/v1/chat/completions") is OpenAIChat
        assert shape_at("/openai/deployments/x/completions") is OpenAICompletions
        assert shape_at("/v1/embeddings") is None

    def test_a_duplicate_key_keeps_its_last_value_and_every_byte(self) -> None:
        begun = b'{"temperature": 0.10,"logprobs":null , "temperature":9e-1, "x": "\\u00e9\xc3\xa9",\n "n": 1, "n": 2'
        asked = read(OpenAIChat, begun + b"}")
        assert (asked.body["n"], asked.body["temperature"]) == (2, 0.9)
        expected = begun.replace(b'"logprobs":null', b'"logprobs":true') + b',"top_logprobs":5}'
        assert asked.asking(Limit(5), token_ids=False) == expected
        ours = b'{"semtoken": {"tokens": true},' + begun[1:-1] + b'2 ,"semtoken":{"parts":"word"}}'
        marked = read(OpenAIChat, ours)
        assert marked.options.parts == "word" and not marked.options.tokens
        assert marked.sent == begun + b"}"

    @each("body", [b"{}", b" { } ", b'{"semtoken": {}}', b'{"semtoken":{},"semtoken":null}'])
    def test_an_empty_request(self, body: bytes) -> None:
        asked = read(OpenAICompletions, body)
        assert json.loads(asked.sent) == {}
        assert json.loads(asked.asking(Limit(3), token_ids=True)) == {
            "logprobs": 3,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({}, {"logprobs": True, "top_logprobs": 20}),
            ({"logprobs": False}, {"logprobs": True, "top_logprobs": 20}),
            ({"logprobs": True, "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 20}),
            ({"logprobs": True, "top_logprobs": 40}, {"logprobs": True, "top_logprobs": 40}),
            ({"logprobs": True, "top_logprobs": -1}, {"logprobs": True, "top_logprobs": -1}),
        ],
    )
    def test_chat(self, given: dict[str, Any], wanted: dict[str, Any]) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "é\ud800"}], "x": 1.5, **given}
        asked = read(OpenAIChat, json.dumps(body).encode())
        assert json.loads(asked.asking(Limit(20), token_ids=False)) == body | wanted
        assert json.loads(asked.sent) == body

    def test_completions(self) -> None:
        asked = read(OpenAICompletions, b'{"prompt": "a", "logprobs": 2, "semtoken": {"tokens": true}}')
        assert (asked.kept, asked.options.tokens) == (2, True)
        assert json.loads(asked.sent) == {"prompt": "a", "logprobs": 2}
        assert json.loads(asked.asking(Limit(5), token_ids=True)) == {
            "prompt": "a",
            "logprobs": 5,
            "return_token_ids": True,
        }

    def test_ids_as_texts_only_where_the_client_sees_no_texts(self) -> None:
        asked = read(OpenAIChat, b'{"messages": []}')
        assert json.loads(asked.asking(Limit(5), token_ids=True))["return_tokens_as_token_ids"] is True

    @each(
        "body",
        [
            b"",
            b"[]",
            b"{",
            b'"text"',
            b'{"logprobs": "yes"}',
            b'{"top_logprobs": 3}',
            b'{"logprobs": 1}',
            b"[" * 99_999,
        ],
    )
    def test_what_is_not_understood_is_left_to_the_upstream(self, body: bytes) -> None:
        assert read_request(OpenAIChat, body) is None

    @each(
        "ours",
        [True, [], {"token": True}, {"tokens": 1}, {"parts": "verb"}, {"competing": 99}]
        + [{"disputes": value} for value in (-1, 9, 1.5, True, "4")],
    )
    def test_our_own_field_is_checked(self, ours: Any) -> None:
        with pytest.raises(ApiError, match="semtoken may hold"):
            read_request(OpenAIChat, json.dumps({"semtoken": ours}).encode())


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("Invalid 'top_logprobs': integer above maximum value. Expected a value <= 5, but got 20 instead.", 5),
        ("Requested sample logprobs of 20, which is greater than max allowed: 10", 10),
        ("logprobs must be less than or equal to 5", 5),
        ("logprobs is not supported with this model gpt-4.1", None),
        ("This model does not give logprobs (request 1234567)", None),
    ],
)
def test_the_limit_that_a_refusal_names(message: str, limit: int | None) -> None:
    assert lower_limit(message, 20) == limit


def test_what_is_learned_is_remembered_for_a_while_and_never_without_end() -> None:
    now = [0.0]
    known = new_memory(lambda: now[0])
    known["chat", "a"] = Limit(5)
    assert [known.get(key) for key in (("chat", "a"), ("chat", "b"), ("completions", "a"))] == [Limit(5), None, None]
    for i in range(5000):
        known["chat", f"model {i}"] = Limit(1)
    assert len(known) == MOST_REMEMBERED and known["chat", "model 4999"] == Limit(1)
    now[0] = REMEMBERED_SECONDS + 1
    assert known.get(("chat", "model 4999")) is None and len(known) == 0
    known["chat", "a"] = Limit(7)
    assert known["chat", "a"] == Limit(7)
