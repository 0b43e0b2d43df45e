"""The Responses form: `output[]` whose `output_text` parts carry log-probabilities; in chunks typed events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.records import StepList
from semtoken.engine_tokens.spellings import steps_from_items
from semtoken.engine_tokens.values import as_list, as_object, as_text, optional, text_or_empty
from semtoken.payloads.formats.base import ChoiceSum, Delta, Engine, ProbeQuestion, Reply, Shape, only
from semtoken.payloads.formats.openai_chat import call_of
from semtoken.payloads.formats.openai_choices import VLLM_FIELDS
from semtoken.payloads.segments import RawChoice

PARTS: Mapping[str, SegmentKind] = {
    "output_text": "answer",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
}
EVENTS: Mapping[str, SegmentKind] = {
    "response.output_text.delta": "answer",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool_call",
}
ENDS = ("response.completed", "response.incomplete")


class OpenAIResponses(Shape):
    """Replies of `/responses`: one choice."""

    name = "responses"
    path = "/responses"
    formats: ClassVar[Mapping[Engine, str]] = {"openai": "openai-responses", "vllm": "vllm-responses"}
    ask = '"include": ["message.output_text.logprobs"], "top_logprobs": 20'
    is_chat = True
    divided = True

    def __init__(self) -> None:
        super().__init__()
        self._fields: set[str] = set()
        self._model: str | None = None
        self._last: ChoiceSum | None = None
        """The whole reply, as the last event holds it: sometimes without log-probabilities."""

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """It has an output."""
        reply = replies[0]
        return len(replies) == 1 and (reply.get("object") == "response" or isinstance(reply.get("output"), list))

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """Its type is that of an event."""
        return str(chunk.get("type", "")).startswith("response.")

    @classmethod
    def body(cls, question: ProbeQuestion) -> dict[str, Any]:
        """A request with one input."""
        body: dict[str, Any] = {"input": question.prompt, "max_output_tokens": max(question.max_tokens, 16)}
        if question.top is None:
            return body
        return body | {"include": ["message.output_text.logprobs"], "top_logprobs": question.top}

    def whole(self, replies: Sequence[Reply]) -> Iterator[Delta]:
        """Its one choice."""
        yield self._delta_of(only(replies))

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """What an event adds to the choice."""
        event = text_or_empty(chunk.get("type"), "type")
        response = optional(as_object, chunk.get("response"), "response")
        if response is not None:
            self._notice(response)
        if event in ENDS:
            if response is not None and response.get("output"):
                self._last = ChoiceSum(0)
                self._last.add(self._delta_of(response))
            yield Delta(0, finish_reason=None if response is None else _end(response), ended=True)
        kind = EVENTS.get(event)
        if kind is None:
            return
        text = as_text(chunk.get("delta"), "delta")
        logprobs = chunk.get("logprobs")
        steps = steps_from_items([] if logprobs is None else logprobs, "logprobs")
        if kind == "tool_call":
            yield Delta(0, steps=steps, calls={0: ("", text)})
        else:
            yield Delta(0, {kind: text} if text else {}, steps)

    def raw_choice(self, index: int) -> RawChoice:
        """The choice as the last event holds it, with the log-probabilities of the others if it has none."""
        streamed = super().raw_choice(index)
        if self._last is None:
            return streamed
        raw = self._last.raw()
        return raw if raw.steps.steps else replace(raw, steps=streamed.steps)

    def _notice(self, reply: Reply) -> None:
        self._fields.update(reply)
        self._model = optional(as_text, reply.get("model"), "model") or self._model

    def _delta_of(self, reply: Reply) -> Delta:
        self._notice(reply)
        texts: dict[SegmentKind, list[str]] = {}
        calls: dict[int, tuple[str, str]] = {}
        steps: list[StepList] = []
        for i, value in enumerate(as_list(reply.get("output"), "output")):
            item = as_object(value, f"output[{i}]")
            if item.get("arguments") is not None or item.get("input") is not None:
                calls[i] = call_of(item, f"output[{i}]")
            for part in _parts(item, f"output[{i}]"):
                kind = PARTS.get(str(part.get("type")))
                if kind is not None:
                    text = part.get("refusal") if kind == "refusal" else part.get("text")
                    texts.setdefault(kind, []).append(text_or_empty(text, f"output[{i}].content"))
                if part.get("logprobs") is not None:
                    steps.append(steps_from_items(part["logprobs"], f"output[{i}].content.logprobs"))
        said = {kind: "".join(parts) for kind, parts in texts.items() if any(parts)}
        finish = _end(reply)
        return Delta(0, said, StepList.chained(steps), calls=calls, finish_reason=finish, ended=True)

    @property
    def engine(self) -> Engine:
        """VLLM by its own fields."""
        return "vllm" if VLLM_FIELDS & self._fields else "openai"

    @property
    def model(self) -> str | None:
        """The model's name, if the reply gives it."""
        return self._model


def _parts(item: Reply, where: str) -> Iterator[Reply]:
    for name in ("summary", "content"):
        parts = item.get(name)
        if item.get("type") == "reasoning" and name == "summary" and item.get("content"):
            continue  # a summary of what is there in full
        for j, part in enumerate(as_list([] if parts is None else parts, f"{where}.{name}")):
            yield as_object(part, f"{where}.{name}[{j}]")


def _end(reply: Reply) -> str | None:
    details = optional(as_object, reply.get("incomplete_details"), "incomplete_details") or {}
    return optional(as_text, details.get("reason", reply.get("status")), "status")
