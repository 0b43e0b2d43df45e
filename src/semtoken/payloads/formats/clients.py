"""Replies as client libraries save them: LangChain's messages and the AI SDK's results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.engine_tokens.spellings import steps_from_items
from semtoken.engine_tokens.top_steps import StepList
from semtoken.payloads.formats.base import Engine, Reply, Shape, value_at
from semtoken.payloads.formats.openai_choices import steps_of_logprobs
from semtoken.payloads.splice import Path, encode

META = "response_metadata"


class LangChainMessage(Shape):
    """The shape of LangChain's messages, dumped or serialised (`"lc": 1`)."""

    name = "langchain"
    formats: ClassVar[Mapping[Engine, str]] = {"langchain": "langchain-message"}
    ask = "ChatOpenAI(logprobs=True, top_logprobs=20), or model.bind(logprobs=True, top_logprobs=20)"
    divided = True
    marks = ((META,),)
    texts = {"reasoning": (("additional_kwargs", "reasoning_content"),), "answer": (("content",),)}  # noqa: RUF012
    numbers_at = ((META, "logprobs"), (META, "logprobs_result"))
    end_at = (META, "finish_reason")

    @classmethod
    def choices(cls, reply: Any) -> Iterator[tuple[int, Path, Reply]]:
        """The message itself, or what is below `kwargs` of a serialised one."""
        below: Path = ("kwargs",) if "kwargs" in reply else ()
        yield 0, below, value_at(reply, below)

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """Whether the message has metadata of a response."""
        return any(META in one for one in (replies[0], replies[0].get("kwargs") or {}))

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """Whether the chunk has metadata of a response."""
        return cls.detects([chunk])

    def steps(self, choice: Reply) -> StepList:
        """The items, as OpenAI or Gemini gave them."""
        found = self.numbers(choice)
        self.note_reply(choice)
        if isinstance(found, Mapping):
            return steps_of_logprobs(found, f"{META}.logprobs")
        return steps_from_items(found or [], f"{META}.logprobs")

    def calls(self, choice: Reply) -> Mapping[int, tuple[str, str]]:
        """The calls of tools."""
        calls = choice.get("tool_calls") or ()
        return {i: (str(one.get("name", "")), encode(one.get("args", {}))) for i, one in enumerate(calls)}


class AISDKResult(Shape):
    """The shape of the AI SDK's results, whose names are in camel case."""

    name = "ai-sdk"
    formats: ClassVar[Mapping[Engine, str]] = {"ai-sdk": "ai-sdk"}
    ask = "providerOptions: { openai: { logprobs: 20 } }"
    divided = True
    marks = (("text",), ("finishReason",))
    texts = {"reasoning": (("reasoningText",),), "answer": (("text",),)}  # noqa: RUF012
    numbers_at = (
        ("providerMetadata", "openai", "logprobs"),
        ("providerMetadata", "azure", "logprobs"),
        ("experimental_providerMetadata", "openai", "logprobs"),
        ("logprobs",),
    )
    end_at = ("finishReason",)

    def steps(self, choice: Reply) -> StepList:
        """The items of the provider; a list for each message that the model wrote is chained."""
        items = self.numbers(choice)
        if isinstance(items, Mapping):
            return steps_of_logprobs(items, "logprobs")
        flat = [one for part in items for one in (part if isinstance(part, list) else [part])]
        return steps_from_items(flat, "providerMetadata.logprobs")
