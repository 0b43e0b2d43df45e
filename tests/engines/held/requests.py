"""The two dozen requests to every engine, and how its dialect differs from OpenAI's."""

from __future__ import annotations

from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
GONE = "client-gone"
"""The request whose client leaves in the middle of its stream; the request after it is the one that is recorded."""

KILLED = "killed"
"""The request in the middle of whose stream the engine is killed, the last one."""

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
BASE: dict[str, Any] = {"messages": QUESTION, "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2}
SCHEMA: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
SAMPLED = {"temperature": 1.0, "seed": 1}
JAPANESE = [{"role": "user", "content": "Repeat exactly: 東京 🙂 café"}]
TOKEN_THE = "504"

ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain-again": {},  # its prompt is in the cache now
    "plain-stream": {"stream": True},
    "top-20": {"top_logprobs": 20, "max_tokens": 2},
    "stop": {"stop": ["."], "max_tokens": 24},
    "stop-stream": {"stop": ["."], "max_tokens": 24, "stream": True},
    "two": {"n": 2} | SAMPLED,
    "schema": {"response_format": SCHEMA},
    "grammar": {},
    "tool": {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 24},
    "logit-bias": {"logit_bias": {TOKEN_THE: 5}},
    "temperature": {"temperature": 0.5, "seed": 1},
    "hot": {"temperature": 1.5, "seed": 1},
    "top-p": {"top_p": 0.5} | SAMPLED,
    "top-k": {"top_k": 3} | SAMPLED,
    "penalties": {"frequency_penalty": 1.0, "presence_penalty": 1.0, "max_tokens": 12},
    "repetition": {},
    "post-sampling": {},
    "japanese": {"messages": JAPANESE, "max_tokens": 12},
    "japanese-stream": {"messages": JAPANESE, "max_tokens": 12, "stream": True},
    "emoji": {"messages": JAPANESE},
    "emoji-stream": {"messages": JAPANESE, "stream": True},
    "length": {"max_tokens": 1},
    GONE: {"max_tokens": 200, "stream": True},
    "completions": {},
    "reasoning": {"max_tokens": 16},
    KILLED: {"max_tokens": 200, "stream": True},
}

YES_OR_NO: dict[str, Any] = {"grammar": 'root ::= "yes" | "no"', "structured_outputs": {"choice": ["yes", "no"]}}
EMOJI_GRAMMAR = "root ::= [😀-🙏] [😀-🙏]"
THOUGHT = {"grammar": 'root ::= "<think>" [a-z ]+ "</think>" ("yes" | "no")'}
THOUGHT_PATTERN = {"structured_outputs": {"regex": "<think>[a-z ]{1,12}</think>(yes|no)"}}
LLAMA_CPP: dict[str, dict[str, Any] | None] = {
    "grammar": {"grammar": YES_OR_NO["grammar"]},
    "repetition": {"repeat_penalty": 1.5},
    "emoji": {"grammar": EMOJI_GRAMMAR},
    "emoji-stream": {"grammar": EMOJI_GRAMMAR},
    "reasoning": THOUGHT,
}
DIALECTS: dict[str, dict[str, dict[str, Any] | None]] = {
    "llama-server": {
        **LLAMA_CPP,
        "post-sampling": {"post_sampling_probs": True, "top_k": 3, "top_p": 1.0, "min_p": 0.0} | SAMPLED,
    },
    "llama-cpp-python": {
        **LLAMA_CPP,
        "schema": {"response_format": {"type": "json_object", "schema": SCHEMA["json_schema"]["schema"]}},
        "tool": {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        "post-sampling": None,
    },
    "litellm": {
        **{name: None for name in LLAMA_CPP if name != "grammar"},  # fields that are not OpenAI's are tried by one
        "grammar": {"grammar": YES_OR_NO["grammar"]},
        "post-sampling": None,
        KILLED: None,
    },
    "langchain": {
        **dict.fromkeys(LLAMA_CPP),
        **dict.fromkeys(
            ("schema", "top-k", "stop-stream", "two", "post-sampling", "japanese-stream", GONE, KILLED, "completions")
        ),
    },
    "vllm": {
        "grammar": {"structured_outputs": YES_OR_NO["structured_outputs"]},
        "repetition": {"repetition_penalty": 1.5},
        "post-sampling": None,
        "emoji": {"structured_outputs": {"regex": "[😀-🙏]{2}"}},
        "emoji-stream": {"structured_outputs": {"regex": "[😀-🙏]{2}"}},
        "reasoning": THOUGHT_PATTERN,
    },
    "mlx-lm": {
        **{name: None for name in LLAMA_CPP if name != "repetition"},
        "repetition": {"repetition_penalty": 1.5, "repetition_context_size": 20},
        "penalties": {"repetition_context_size": 20, "presence_context_size": 20, "frequency_context_size": 20},
        "post-sampling": None,
    },
    "transformers-serve": {
        name: None for name in ASKED if name not in ("plain", "plain-stream", "completions", KILLED)
    },
}
"""What an engine needs for a request beyond `ASKED`; None where it has no such thing."""
EVERYWHERE: dict[str, dict[str, Any]] = {"vllm": {"return_token_ids": True}}


def requests_for(dialect: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """The requests of a dialect by name: the route and the body."""
    found = {}
    for name, case in ASKED.items():
        own = DIALECTS[dialect].get(name, {})
        if own is None:
            continue
        body = BASE | case | own | EVERYWHERE.get(dialect, {})
        if name == "completions":
            del body["messages"], body["top_logprobs"]
            body |= {"prompt": "The capital of France is", "logprobs": 2}
        found[name] = (COMPLETIONS if name == "completions" else CHAT, body)
    return found
