"""Chat completions: `choices[].message` with `choices[].logprobs.content`; in chunks `choices[].delta`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.spellings import steps_from_items
from semtoken.engine_tokens.top_steps import StepList, as_id, as_list, as_object, text_or_empty
from semtoken.errors import InvalidInput
from semtoken.payloads.formats import base
from semtoken.payloads.formats.openai_choices import ID_FIELDS, ITEM_LISTS, Choices
from semtoken.payloads.splice import Path

REASONING = ("reasoning_content", "reasoning")
"""Some engines send it under both names."""
FUNCTION_CALL = -1


def _below(*names: str) -> tuple[Path, ...]:
    """The paths of members of a message or a delta."""
    return tuple((message, name) for name in names for message in ("message", "delta"))


class OpenAIChat(Choices):
    """The shape of chat completions, of OpenAI and most engines."""

    name = "chat"
    path = "/chat/completions"
    formats: ClassVar[Mapping[base.Engine, str]] = {
        "openai": "openai-chat",
        "vllm": "vllm-chat",
        "sglang": "sglang-chat",
        "llama-cpp": "llama-cpp-chat",
        "llama-cpp-python": "llama-cpp-python-chat",
    }
    ask = '"logprobs": true, "top_logprobs": 20'
    is_chat = True
    prompts = ("messages",)
    top_at = ("top_logprobs",)
    switch_at = ("logprobs",)
    divided = True
    chunk_marks = (("choices", 0, "delta"),)
    texts: ClassVar[Mapping[SegmentKind, tuple[Path, ...]]] = {
        "reasoning": _below(*REASONING),
        "answer": _below("content"),
        "refusal": _below("refusal"),
    }
    showing = (*_below("tool_calls", "function_call", "audio"), ("text",), *((name,) for name in ID_FIELDS))
    gains = ("delta", "content")

    @classmethod
    def detects(cls, replies: Sequence[base.Reply]) -> bool:
        """Whether the first choice of a reply holds a message."""
        first: base.Reply = next((choice for _, _, choice in cls.choices(replies[0])), {})
        return "message" in first or "delta" in first or replies[0].get("object") == "chat.completion"

    @classmethod
    def requested(cls, body: base.Reply) -> int | None:
        """The number in `top_logprobs` if `logprobs` is true; else None."""
        if body.get("top_logprobs") is not None and not body.get("logprobs"):
            raise InvalidInput("logprobs must be true where top_logprobs are given.")
        return super().requested({"messages": [], **body})

    def steps(self, choice: base.Reply) -> StepList:
        """The items of the content; Together's streams give the number of the one token alone."""
        number, delta = choice.get("logprobs"), choice.get("delta")
        if not isinstance(number, float | int) or not isinstance(delta, Mapping):
            return super().steps(choice)
        token = {"id": delta.get("token_id"), "token": delta.get("content"), "logprob": number}
        return steps_from_items([token] if delta.get("content") else [], "logprobs")

    def apart(self, choice: base.Reply) -> Mapping[SegmentKind, StepList]:
        """Those of a refusal and of the reasoning, which have lists of their own."""
        logprobs = choice.get("logprobs")
        named = logprobs.items() if isinstance(logprobs, Mapping) else ()
        return {
            ITEM_LISTS[name]: steps_from_items(items, f"logprobs.{name}")
            for name, items in named
            if name in ITEM_LISTS and name != "content" and items is not None
        }

    def calls(self, choice: base.Reply) -> Mapping[int, tuple[str, str]]:
        """The calls of tools, whose pieces come in any order, and of a function."""
        calls: dict[int, tuple[str, str]] = {}
        message = as_object(choice.get("message", choice.get("delta")) or {}, "message")
        if message.get("function_call") is not None:
            calls[FUNCTION_CALL] = call_of(message["function_call"], "message.function_call")
        for i, tool in enumerate(as_list(message.get("tool_calls") or (), "message.tool_calls")):
            here = f"message.tool_calls[{i}]"
            entry = as_object(tool, here)
            name, arguments = call_of(entry.get("function", entry.get("custom", {})), here)
            at = as_id(entry.get("index", i), f"{here}.index")
            before = calls.get(at, ("", ""))
            calls[at] = (before[0] + name, before[1] + arguments)
        return calls


def call_of(function: Any, where: str) -> tuple[str, str]:
    """The name and arguments of a tool call, or the pieces of them in a chunk."""
    found = as_object({} if function is None else function, where)
    arguments = found.get("arguments", found.get("input"))
    return text_or_empty(found.get("name"), f"{where}.name"), text_or_empty(arguments, f"{where}.arguments")
