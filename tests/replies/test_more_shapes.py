"""Shapes that are written after their documentation: each read whole and streamed, and what the numbers add up to."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken import score_reply
from semtoken.errors import SemtokenError
from semtoken.replies import read_reply
from semtoken.replies.formats.base import Place
from semtoken.replies.formats.openai_choices import OpenAIChat
from semtoken.replies.formats.tgi import TGIGenerate
from tests.replies.made import entry, events, lines
from tests.rows import each

TOP = [entry("Oslo", -0.2), entry(" Oslo", -2.0)]
BOTH = math.log(math.exp(-0.2) + math.exp(-2.0))
GEMINI = {"chosenCandidates": [{"token": "Oslo", "tokenId": 5, "logProbability": -0.2}]}
PYTHON = {"chosen_candidates": [{"token": "Oslo", "token_id": 5, "log_probability": -0.2}]}


def ollama(content: str, *, done: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": content}, "done": done, **more}


def tgi(number: int, text: str, log_prob: float, **more: Any) -> dict[str, Any]:
    chosen = {"id": number, "text": text, "logprob": log_prob, "special": text == "</s>"}
    return {"index": number, "token": chosen, "generated_text": None, "details": None, **more}


SHAPES: dict[str, tuple[str, Any, float]] = {
    "ollama": (
        "ollama-chat",
        ollama("Oslo", done=True, done_reason="stop", logprobs=[entry("Oslo", -0.2, top_logprobs=TOP)]),
        BOTH,
    ),
    "ollama, streamed": (
        "ollama-chat",
        lines(
            {**ollama(""), "message": {"content": "", "thinking": "Hm"}, "logprobs": [entry("Hm", -0.5)]},
            ollama("Oslo", logprobs=[entry("Oslo", -0.2, top_logprobs=TOP)]),
            ollama("", done=True, done_reason="stop", eval_count=3),
        ),
        BOTH,
    ),
    "tgi, streamed": (
        "tgi",
        events(
            tgi(1, " Oslo", -0.25), tgi(2, "</s>", -0.05, generated_text=" Oslo", details={"finish_reason": "stop"})
        ),
        -0.3,
    ),
    "tgi of SageMaker": (
        "tgi",
        [{"generated_text": " Oslo", "details": {"tokens": [{"id": 1, "text": " Oslo", "logprob": -0.25}]}}],
        -0.25,
    ),
    "gemini": ("gemini", {"candidates": [{"content": {"parts": [{"text": "Oslo"}]}, "logprobsResult": GEMINI}]}, -0.2),
    "gemini, with others": (
        "gemini",
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": "Oslo"}]},
                    "logprobsResult": {
                        **GEMINI,
                        "topCandidates": [
                            {"candidates": [*GEMINI["chosenCandidates"], {"token": " Oslo", "logProbability": -2.0}]}
                        ],
                    },
                }
            ]
        },
        BOTH,
    ),
    "gemini of Python": (
        "gemini",
        {"candidates": [{"content": {"parts": [{"text": "Oslo"}]}, "logprobs_result": PYTHON}]},
        -0.2,
    ),
    "langchain": (
        "langchain-message",
        {"lc": 1, "kwargs": {"content": "Oslo", "response_metadata": {"logprobs": {"content": [entry("Oslo", -0.2)]}}}},
        -0.2,
    ),
    "transcription": ("openai-transcription", {"text": "Oslo", "logprobs": [entry("Oslo", -0.2)]}, -0.2),
    "older llama.cpp": (
        "llama-cpp",
        {
            "content": " Oslo",
            "stop": True,
            "completion_probabilities": [{"content": " Oslo", "probs": [{"tok_str": " Oslo", "prob": 0.8}]}],
        },
        math.log(0.8),
    ),
    "koboldcpp": (
        "koboldcpp",
        {"results": [{"text": " Oslo", "logprobs": {"tokens": [" Oslo"], "token_logprobs": [-0.2]}}]},
        -0.2,
    ),
    "ai-sdk": (
        "ai-sdk",
        {
            "text": "Oslo",
            "finishReason": "stop",
            "providerMetadata": {"openai": {"logprobs": [{"token": "Oslo", "logprob": -0.2, "topLogprobs": TOP}]}},
        },
        BOTH,
    ),
    "together, streamed": (
        "openai-chat",
        events(
            {"choices": [{"index": 0, "delta": {"content": "Oslo", "token_id": 5}, "logprobs": -0.2}]},
            {"choices": [{"index": 0, "delta": {"content": "", "token_id": 2}, "logprobs": -0.1}]},
            {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]},
        ),
        -0.2,
    ),
    "Bedrock's imported models, by ids alone": (
        "engine-output",
        {"generation": "Oslo.", "stop_reason": "stop", "logprobs": [{"5": -0.2}, {"7": -0.1}]},
        -0.3,
    ),
    "cohere, in groups of tokens": (
        "cohere-chat",
        {
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Oslo."}]},
            "logprobs": [
                {"token_ids": [5, 6], "text": "Oslo", "logprobs": [-0.15, -0.05]},
                {"token_ids": [7], "text": ".", "logprobs": [-0.1]},
            ],
        },
        -0.3,
    ),
    "lists of ids": (
        "openai-chat",
        {
            "choices": [
                {"message": {"content": "Oslo."}, "logprobs": {"tokens": [5, 7], "token_logprobs": [-0.2, -0.1]}}
            ]
        },
        -0.3,
    ),
}


@each("name", SHAPES)
def test_its_numbers_are_read(name: str) -> None:
    format, reply, log_confidence = SHAPES[name]
    assert read_reply(reply).format == format
    assert [choice.index for choice in read_reply(reply).choices] == [0]
    [found] = score_reply(reply)
    assert found.log_confidence == pytest.approx(log_confidence, abs=1e-4)


@pytest.mark.parametrize("reply", [ollama("Oslo"), lines(ollama("Oslo", logprobs=TOP[:1]), ollama(""))])
def test_an_answer_of_ollama_that_is_not_done_gets_no_number(reply: Any) -> None:
    with pytest.raises(SemtokenError, match=r"not done|ended before"):
        score_reply(reply)


def test_an_average_is_called_one() -> None:
    reply = {"candidates": [{"content": {"parts": [{"text": "Oslo"}]}, "finishReason": "STOP", "avgLogprobs": -0.2}]}
    with pytest.raises(SemtokenError, match=r"average.*responseLogprobs"):
        score_reply(reply)


def chat(count: int | None = None, choices: int = 1) -> dict[str, Any]:
    """A chat completion whose choices say "Oslo." in two tokens."""
    items = [entry("Oslo", -0.21, top_logprobs=TOP), entry(".", -0.13)]
    one = {"message": {"content": "Oslo."}, "logprobs": {"content": items}, "finish_reason": "stop"}
    usage = {} if count is None else {"usage": {"completion_tokens": count}}
    return {"choices": [{**one, "index": index} for index in range(choices)]} | usage


@pytest.mark.parametrize(
    "reply",
    [
        {"candidates": [{"content": {"parts": [{"text": "Oslo"}]}, "logprobsResult": GEMINI}]}
        | {"usageMetadata": {"candidatesTokenCount": 9}},
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Oslo", "logprobs": TOP[:1]}]}]}
        | {"usage": {"output_tokens": 9}},
    ],
)
def test_counts_of_gemini_and_responses_are_held_against_the_list(reply: Any) -> None:
    [found] = score_reply(reply)
    assert any("counts 9 tokens and lists 1" in one.message for one in found.flags)


def test_watsonx_lists_its_tokens_beside_the_text() -> None:
    best = [{"text": "Oslo", "logprob": -0.2}, {"text": "Bergen", "logprob": -2.0}]
    tokens = [best[0] | {"rank": 1, "top_tokens": best}, {"text": ".", "logprob": -0.1}]
    result = {"generated_text": "Oslo.", "generated_token_count": 2, "generated_tokens": tokens}
    [found] = score_reply({"model_id": "granite", "results": [result]})
    assert found.log_confidence == pytest.approx(-0.3, abs=1e-4)
    assert [other.text for other in found.tokens[0].alternatives] == ["Bergen"]


def test_a_clipped_number_of_the_chosen_token_is_no_number() -> None:
    reply = chat()
    reply["choices"][0]["logprobs"]["content"][0] |= {"logprob": -100.0, "top_logprobs": [entry("Oslo", -100.0)]}
    [found] = score_reply(reply)
    assert "missing_log_probability" in [flag.code for flag in found.flags]
    assert found.sequence_uncertainty_interval[0] < 0.5 and found.sequence_uncertainty_interval[1] == 1


@each(
    ("reply", "told"),
    [
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "declined the prompt"),
        ({"generations": [[{"text": "Oslo"}]]}, "save the message"),
        ({"text": "Oslo", "segments": [{"text": "Oslo", "avg_logprob": -0.2}]}, "averages of segments"),
        ({"type": "message", "stop_reason": "end_turn", "stop_sequence": None}, "Anthropic"),
        ({"generation": "Oslo", "stop_reason": "stop"}, "no reply that semtoken understands"),
        (
            {"message": {"role": "assistant"}, "raw": None, "logprobs": [[{"token": "Oslo", "logprob": -0.1}]]},
            "LlamaIndex",
        ),
        ({"model_name": "ensemble", "output_log_probs": [0.0], "text_output": "Oslo"}, "Triton"),
        ({"id": "1", "message": {"content": [{"text": "Oslo"}]}, "finish_reason": "COMPLETE"}, "compatible API"),
        ({"detail": "Not Found"}, "report of an error"),
        ({"choices": [{"message": {"content": "Oslo"}, "logprobs": [-0.1, -0.2]}]}, "only a list of numbers"),
        ({"choices": [{"message": {"content": "Oslo"}, "logprobs": "none"}]}, "logprobs must be an object"),
        ({"logprobs": {"content": TOP}}, "part of a reply"),
        ({"logprobs": TOP[:1]}, "part of a reply"),
        ({"content": TOP[:1]}, "part of a reply"),
        (TOP[0], "part of a reply"),
        ({"outputs": [{"token_ids": [5]}]}, "object of an engine in Python"),
        ({"token_ids": [5]}, "object of an engine in Python"),
        (
            {"request_id": "1", "choices": [{"logprobs": {"content": [entry("token_id:5", -1)]}, "token_ids": [5]}]},
            "vLLM's /inference/v1/gen",
        ),
    ],
)
def test_what_cannot_be_read_is_called_by_its_name(reply: Any, told: str) -> None:
    with pytest.raises(SemtokenError, match=told):
        score_reply(reply)


@each("named", [{}, {"object": "chat.completion"}])
@each("ending", [[], [entry("<|im_end|>", -0.1)]])
def test_a_choice_without_a_text_says_what_its_tokens_spell(named: Any, ending: Any) -> None:
    """As from vLLM's /inference/v1/generate, whose tokens have ids."""
    items = [entry("Os", -0.2), entry("lo", -0.3), *ending]
    choice = {"logprobs": {"content": items}, "token_ids": [5, 6, 7][: len(items)], "finish_reason": "stop"}
    [answer] = score_reply({**named, "choices": [choice]})
    assert answer.text == "Oslo" and answer.log_confidence == pytest.approx(sum(one["logprob"] for one in items))


def test_a_list_of_replies_is_one_of_text_generation_inference_alone() -> None:
    texts = [{"generated_text": "Oslo"}, {"generated_text": "Rome"}]
    assert TGIGenerate.places(texts) == [Place(0, (0,), ended=True), Place(1, (1,), ended=True)]
    assert TGIGenerate.places(texts[0]) == [Place(0, (), ended=True)]
    assert TGIGenerate.places([]) is TGIGenerate.places([*texts, {}]) is OpenAIChat.places([chat()]) is None
    assert OpenAIChat.places({"choices": [{"message": {}}]}) == [Place(0, ("choices", 0))]
    assert OpenAIChat.places(chat(choices=2)) == [Place(i, ("choices", i), ended=True, goes_on=False) for i in (0, 1)]


def test_calls_of_ollama_are_read_by_name_and_arguments() -> None:
    reply = ollama("", done=True, done_reason="stop", logprobs=[entry("Oslo", -0.2, top_logprobs=TOP)])
    reply["message"]["tool_calls"] = [
        {"function": {"name": "weather", "arguments": {"city": "Oslo"}}},
        {"function": {"name": "now"}},
    ]
    [choice] = read_reply(reply).choices
    assert [(part.kind, part.text) for part in choice.segments] == [("tool_call", 'weather({"city": "Oslo"})\nnow({})')]
    reply["message"]["tool_calls"] = ["weather"]
    with pytest.raises(SemtokenError, match=r"tool_calls\[0\] must be an object"):
        read_reply(reply)
    with pytest.raises(SemtokenError, match=r"no log-probabilities|without a final"):
        score_reply("data: {}\n\n", format="ollama-chat")
