"""An engine is named by fields that only it has, and an end in other words is what the words mean."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken import score_reply
from semtoken.replies import read_reply
from tests.rows import each

ITEMS = [{"token": "Oslo", "logprob": math.log(0.8), "bytes": None, "top_logprobs": []}]


def reply(choice: dict[str, Any], **more: Any) -> dict[str, Any]:
    own = {"message": {"role": "assistant", "content": "Oslo"}, "logprobs": {"content": ITEMS}}
    return {"choices": [own | choice], **more}


VLLM = {"index": 0, "finish_reason": "stop", "stop_reason": None}


@pytest.mark.parametrize(
    ("choice", "more", "name", "distribution"),
    [
        (VLLM, {"prompt_logprobs": None}, "vllm-chat", "raw"),
        (VLLM | {"token_ids": None}, {}, "vllm-chat", "raw"),
        ({"stop_reason": "stop"}, {"completion": "Oslo", "time": 0.5}, "openai-chat", "unknown"),  # inspect_ai
        (VLLM | {"disaggregated_params": None, "token_ids": None}, {}, "openai-chat", "unknown"),  # TensorRT-LLM
        (VLLM, {}, "openai-chat", "unknown"),  # Bedrock's imported models, and others
        (VLLM, {"sglext": {}}, "sglang-chat", "processed"),
    ],
)
def test_an_engine_is_named_by_what_only_it_has(
    choice: dict[str, Any], more: dict[str, Any], name: str, distribution: str
) -> None:
    parsed_reply = read_reply(reply(choice, **more))
    assert (parsed_reply.format, parsed_reply.distribution) == (name, distribution)


@each("field", ["finish_reason", "stop_reason"])
@each(
    ("said", "reason", "truncated"),
    [
        ("stop", "stop", False),
        ("stopstop", "stop", False),
        ("end_of_text", "end_of_text", False),
        ("max_tokens", "max_tokens", True),
        ("max_completion_tokens", "max_completion_tokens", True),
        ("model_context_window_exceeded", "model_context_window_exceeded", True),
        ("token_limit", "token_limit", True),
        ("lengthlengthlength", "length", True),
        ("content_filter", "content_filter", False),
        ("content_filtercontent_filter", "content_filter", False),
    ],
)
def test_ends_in_other_words_are_what_they_mean(field: str, said: str, reason: str, truncated: bool) -> None:
    [choice] = read_reply(reply({field: said})).choices
    assert choice.finish_reason == reason
    [found] = score_reply(reply({field: said}))
    assert any("cut off" in flag.message for flag in found.flags) == (reason == "content_filter")
    assert found.truncated == truncated
    assert found.log_confidence == pytest.approx(math.log(0.8))


def test_a_reason_of_an_end_is_no_stop_string() -> None:
    items = [*ITEMS, {"token": "stop", "logprob": -0.1, "bytes": None, "top_logprobs": []}]
    [found] = score_reply(reply({"stop_reason": "stop", "logprobs": {"content": items}}))
    assert any("not in the message" in flag.message for flag in found.flags)
