"""Shapes that are written after their documentation: each read whole and streamed, and what the numbers add up to."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from semtoken import score_payload
from semtoken.errors import SemtokenError
from semtoken.payloads import read_payload


def token(text: str, number: float, **more: Any) -> dict[str, Any]:
    return {"token": text, "logprob": number, "bytes": list(text.encode()), **more}


TOP = [token("Oslo", -0.2), token(" Oslo", -2.0)]
BOTH = math.log(math.exp(-0.2) + math.exp(-2.0))
GEMINI = {"chosenCandidates": [{"token": "Oslo", "tokenId": 5, "logProbability": -0.2}]}
PYTHON = {"chosen_candidates": [{"token": "Oslo", "token_id": 5, "log_probability": -0.2}]}


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def events(*values: Any) -> str:
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values)


def ollama(content: str, *, done: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": content}, "done": done, **more}


def tgi(number: int, text: str, log_prob: float, **more: Any) -> dict[str, Any]:
    chosen = {"id": number, "text": text, "logprob": log_prob, "special": text == "</s>"}
    return {"index": number, "token": chosen, "generated_text": None, "details": None, **more}


SHAPES: dict[str, tuple[str, Any, float]] = {
    "ollama": (
        "ollama-chat",
        ollama("Oslo", done=True, done_reason="stop", logprobs=[token("Oslo", -0.2, top_logprobs=TOP)]),
        BOTH,
    ),
    "ollama, streamed": (
        "ollama-chat",
        lines(
            {**ollama(""), "message": {"content": "", "thinking": "Hm"}, "logprobs": [token("Hm", -0.5)]},
            ollama("Oslo", logprobs=[token("Oslo", -0.2, top_logprobs=TOP)]),
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
    "gemini of Python": (
        "gemini",
        {"candidates": [{"content": {"parts": [{"text": "Oslo"}]}, "logprobs_result": PYTHON}]},
        -0.2,
    ),
    "langchain": (
        "langchain-message",
        {"lc": 1, "kwargs": {"content": "Oslo", "response_metadata": {"logprobs": {"content": [token("Oslo", -0.2)]}}}},
        -0.2,
    ),
    "transcription": ("openai-transcription", {"text": "Oslo", "logprobs": [token("Oslo", -0.2)]}, -0.2),
    "transcription, streamed": (
        "openai-transcription",
        events(
            {"type": "transcript.text.delta", "delta": "Oslo", "logprobs": [token("Oslo", -0.2)]},
            {"type": "transcript.text.done", "text": "Oslo", "logprobs": [token("Oslo", -0.2)]},
        ),
        -0.2,
    ),
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


@pytest.mark.parametrize("name", SHAPES)
def test_its_numbers_are_read(name: str) -> None:
    format, reply, log_score = SHAPES[name]
    assert read_payload(reply).format == format
    [found] = score_payload(reply)
    assert found.log_score == pytest.approx(log_score, abs=1e-4)


@pytest.mark.parametrize("reply", [ollama("Oslo"), lines(ollama("Oslo", logprobs=TOP[:1]), ollama(""))])
def test_an_answer_of_ollama_that_is_not_done_gets_no_number(reply: Any) -> None:
    with pytest.raises(SemtokenError, match=r"not done|ended before"):
        score_payload(reply)


def test_an_average_is_called_one() -> None:
    reply = {"candidates": [{"content": {"parts": [{"text": "Oslo"}]}, "finishReason": "STOP", "avgLogprobs": -0.2}]}
    with pytest.raises(SemtokenError, match=r"average.*responseLogprobs"):
        score_payload(reply)
