"""Chat completions: `choices[].message` with `choices[].logprobs.content`; in chunks `choices[].delta`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.spellings import steps_from_items, steps_from_lists
from semtoken.engine_tokens.top_steps import StepList, as_id, as_list, as_object, text_or_empty
from semtoken.errors import InvalidInput
from semtoken.payloads.formats import base
from semtoken.payloads.formats.openai_choices import (
    ID_FIELDS,
    Choices,
    are_messages,
    check_prompt_fields,
    in_first_choice,
)
from semtoken.payloads.splice import Change, Path, Replace

TEXT_FIELDS: Mapping[str, SegmentKind] = {
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",  # some engines send it under both names
    "content": "answer",
    "refusal": "refusal",
}
LISTS_APART: Mapping[str, SegmentKind] = {"refusal": "refusal", "reasoning_content": "reasoning"}
FUNCTION_CALL = -1
OWN = ("content", "role")
"""Members of a delta that only goes on with an answer."""
SHOWING = ("reasoning", "reasoning_content", "tool_calls", "function_call", "refusal", "audio")
"""Members of a message that can hold what its answer says."""


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
    divided = True
    gains: ClassVar[Path] = ("delta", "content")

    @classmethod
    def detects(cls, replies: Sequence[base.Reply]) -> bool:
        """Whether the choices of a reply hold messages."""
        return are_messages(replies) is True

    @classmethod
    def starts(cls, chunk: base.Reply) -> bool:
        """Whether the choices of a chunk hold deltas."""
        return in_first_choice(chunk, "delta")

    @classmethod
    def requested(cls, body: base.Reply) -> int | None:
        """The number in `top_logprobs` if `logprobs` is true; else None."""
        switch, top = body.get("logprobs"), base.count_of(body.get("top_logprobs"), "top_logprobs")
        if not isinstance(switch, bool | None) or (top is not None and not switch):
            raise InvalidInput("logprobs must be true where top_logprobs are given.")
        return (top or 0) if switch else None

    @classmethod
    def asking(cls, body: base.Reply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The fields `logprobs` and `top_logprobs`."""
        ids = cls.token_id_fields(body) if token_ids else {}
        return {"logprobs": True, "top_logprobs": base.as_many(top, cls.requested(body)), **ids}

    @classmethod
    def prompt(cls, body: base.Reply, choice: int) -> list[Any]:
        """The messages as they are."""
        check_prompt_fields(body)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise InvalidInput("The request holds no messages, so what the model was asked is not known.")
        return messages

    @classmethod
    def withholding(cls, reply: Any, place: base.Place, text: str) -> Iterator[Change]:
        """Changes that replace the content and take everything else out of the message."""
        message = (*place.path, "message")
        yield Replace((*message, "content"), text)
        yield from (Replace((*place.path, name), None) for name in ("logprobs", "text", *ID_FIELDS))
        yield from (Replace((*message, name), None) for name in SHOWING)

    @classmethod
    def _text_of(cls, choice: base.Reply) -> str | None:
        delta = choice.get("delta")
        if not isinstance(delta, dict) or any(value for name, value in delta.items() if name not in OWN):
            return None
        text = delta.get("content")
        return text if isinstance(text, str) else None

    def _delta(self, choice: base.Reply, index: int, where: str, *, streamed: bool) -> base.Delta:
        field = "delta" if streamed else "message"
        found = choice.get(field)
        message = as_object({} if found is None and streamed else found, f"{where}.{field}")
        if streamed and isinstance(choice.get("logprobs"), float | int):  # Together's: the number of the one token
            token = {"id": message.get("token_id"), "token": message.get("content"), "logprob": choice["logprobs"]}
            steps = steps_from_items([token] if message.get("content") else [], where)
            apart: dict[SegmentKind, StepList] = {}
        else:
            logprobs = base.logprobs_of(choice, where)
            self.note_probabilities(logprobs.get("content"))
            steps, apart = steps_of_logprobs(logprobs, f"{where}.logprobs")
        finish = self.end_of(choice)
        return base.Delta(
            index,
            _texts(message, f"{where}.{field}"),
            steps,
            apart,
            _calls(message, f"{where}.{field}"),
            base.ids_of(choice, where),
            finish,
            ended=finish is not None,
            stop=base.stop_of(choice),
        )


def _texts(message: base.Reply, where: str) -> dict[SegmentKind, str]:
    texts: dict[SegmentKind, str] = {}
    for name, kind in TEXT_FIELDS.items():
        text = base.content_text(message.get(name), f"{where}.{name}")
        if text and kind not in texts:
            texts[kind] = text
    return texts


def _calls(message: base.Reply, where: str) -> dict[int, tuple[str, str]]:
    calls: dict[int, tuple[str, str]] = {}
    if message.get("function_call") is not None:
        calls[FUNCTION_CALL] = call_of(message["function_call"], f"{where}.function_call")
    tools = message.get("tool_calls")
    for i, tool in enumerate(as_list([] if tools is None else tools, f"{where}.tool_calls")):
        here = f"{where}.tool_calls[{i}]"
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


def steps_of_logprobs(logprobs: base.Reply, where: str) -> tuple[StepList, dict[SegmentKind, StepList]]:
    """The steps of an object `logprobs`, and those that it lists under a segment of their own."""
    if logprobs.get("content") is None and logprobs.get("tokens") is not None:  # lists as in legacy completions
        return steps_from_lists(logprobs, where), {}
    apart = {
        kind: steps_from_items(logprobs[name], f"{where}.{name}")
        for name, kind in LISTS_APART.items()
        if logprobs.get(name) is not None
    }
    content = logprobs.get("content")
    return steps_from_items([] if content is None else content, f"{where}.content"), apart
