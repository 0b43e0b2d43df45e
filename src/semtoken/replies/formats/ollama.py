"""Ollama's own `/api/generate` and `/api/chat`: `response` or `message` with `logprobs`; a stream is lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from semtoken.errors import BackendError
from semtoken.replies.formats.base import Engine, ProbeQuestion, Shape
from semtoken.replies.formats.fields import RawReply, arguments_as_json, value_at
from semtoken.support.splice import Path
from semtoken.support.untrusted import as_list, as_object

UNFINISHED = "The reply says that it is not done: it is one chunk of a stream, or broke off. Save the whole stream."


class OllamaGenerate(Shape):
    """The shape of Ollama's `/api/generate`."""

    name = "ollama-generate"
    path = "/api/generate"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"ollama": "ollama-generate"}
    ask = '"logprobs": true, "top_logprobs": 20'
    divided = True
    prompts = ("prompt",)
    limit_at = ("options", "num_predict")
    temperature_at = ("options", "temperature")
    top_at = ("top_logprobs",)
    switch_at = ("logprobs",)
    stops_at = (("options", "stop"),)
    marks: ClassVar[tuple[Path, ...]] = (("response",), ("done",))
    texts = {"reasoning": (("thinking",),), "answer": (("response",),)}  # noqa: RUF012
    numbers_at = (("logprobs",),)
    showing: ClassVar[tuple[Path, ...]] = (("context",),)
    end_at = (("done_reason",),)
    done_at = ("done",)
    count_at = ("eval_count",)
    read_at = ("prompt_eval_count",)

    @classmethod
    def request(cls, question: ProbeQuestion) -> dict[str, Any]:
        """A request that names its model, which Ollama does not choose itself."""
        named = {} if question.model is None else {"model": question.model}
        return named | super().request(question)

    @classmethod
    def streams(cls, body: RawReply) -> bool:
        """Return True if a request asks for a stream, as one does that does not say."""
        # Ollama streams by default, unlike OpenAI.
        return body.get("stream") is not False

    @classmethod
    def require_whole(cls, replies: Sequence[RawReply]) -> None:
        """Check that replies are done; `BackendError` if one is not."""
        if not all(map(cls.is_ended, replies)):
            raise BackendError(UNFINISHED)


class OllamaChat(OllamaGenerate):
    """The shape of Ollama's `/api/chat`."""

    name = "ollama-chat"
    path = "/api/chat"
    formats: ClassVar[Mapping[Engine, str]] = {"ollama": "ollama-chat"}
    is_chat = True
    prompts = ("messages",)
    marks = (("message",), ("done",))
    texts = {"reasoning": (("message", "thinking"),), "answer": (("message", "content"),)}  # noqa: RUF012
    showing = (("message", "tool_calls"),)

    def calls(self, choice: RawReply) -> Mapping[int, tuple[str, str]]:
        """The calls of tools, which the list of log-probabilities does not hold."""
        calls: dict[int, tuple[str, str]] = {}
        for i, given in enumerate(as_list(value_at(choice, self.showing[0]) or (), "message.tool_calls")):
            function = as_object(given, f"message.tool_calls[{i}]").get("function", {})
            call = as_object(function, "message.tool_calls.function")
            arguments = arguments_as_json(call.get("arguments", {}), f"message.tool_calls[{i}].function.arguments")
            calls[i] = str(call.get("name", "")), arguments
        return calls
