"""The Responses form: `output[]` whose `output_text` parts carry log-probabilities; in chunks typed events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.choices import SegmentKind
from semtoken.core.engine_tokens.spellings import steps_from_items
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.errors import InvalidInputError
from semtoken.replies.formats import fields
from semtoken.replies.formats.base import Delta, Engine, HiddenFields, Place, ProbeQuestion, Shape
from semtoken.replies.formats.fields import RawReply
from semtoken.replies.formats.openai_choices import VLLM_FIELDS, call_of
from semtoken.support.splice import Change, Path, Replace
from semtoken.support.untrusted import as_list, as_object, as_text, optional, text_or_empty

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
ANSWER = "response.output_text.delta"
ENDS = ("response.completed", "response.incomplete")
FAILED = "response.failed"
LOG_PROBS = "message.output_text.logprobs"


class OpenAIResponses(Shape):
    """The shape of OpenAI's `/responses`, which has one choice."""

    name = "responses"
    path = "/responses"
    formats: ClassVar[Mapping[Engine, str]] = {"openai": "openai-responses", "vllm": "vllm-responses"}
    ask = '"include": ["message.output_text.logprobs"], "top_logprobs": 20'
    is_chat = True
    divided = True
    prompts = ("input", "prompt")
    top_at = ("top_logprobs",)
    other_prompt: ClassVar[Mapping[str, tuple[Any, ...]]] = dict.fromkeys(
        ("previous_response_id", "conversation", "prompt", "tools", "reasoning", "context_management"), ("", [], {})
    )
    required = "output"
    read_at = ("usage", "input_tokens")
    ends = ("completed", "max_output_tokens")

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if a reply says that it is a response, or has a list `output` of typed items."""
        reply = replies[0]
        kind = fields.value_at(reply, ("output", 0, "type")) if "output" in reply else None
        listed = isinstance(kind, str) and re.fullmatch("[a-z_]+", kind) is not None  # types of events have a dot
        return len(replies) == 1 and (reply.get("object") == "response" or listed)

    @classmethod
    def starts(cls, chunk: RawReply) -> bool:
        """Return True if the type of an event is one of this shape."""
        return str(chunk.get("type", "")).startswith("response.")

    @classmethod
    def request(cls, question: ProbeQuestion) -> dict[str, Any]:
        """A request with one input."""
        # OpenAI refuses fewer than 16.
        return {"input": question.prompt, "max_output_tokens": max(question.max_tokens, 16)}

    @classmethod
    def requested(cls, body: RawReply) -> int | None:
        """The number in `top_logprobs` if log-probabilities are included; else None."""
        super().requested(body)
        included, top = body.get("include"), fields.count_of(body.get("top_logprobs"), "top_logprobs")
        if not isinstance(included, list | None):
            raise InvalidInputError("include must be a list.")
        return (top or 0) if LOG_PROBS in (included or ()) else None

    @classmethod
    def asking(cls, body: RawReply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The fields that include log-probabilities, and set their number."""
        included = body.get("include") or []
        more = [] if LOG_PROBS in included else [LOG_PROBS]
        return {
            "include": [*included, *more],
            "top_logprobs": fields.as_many(top, cls.requested({"input": "", **body})),
        }

    @classmethod
    def obstacle(cls, body: RawReply) -> str | None:
        """The reason why a reply cannot be scored: it comes before its answer, which is made in the background."""
        return "The answer is written in the background; ask without it." if body.get("background") else None

    @classmethod
    def prompt(cls, body: RawReply, choice: int) -> str | list[Any]:
        """The instructions and the input as chat messages, where the input is a text."""
        if not isinstance(body.get("input"), str):
            raise InvalidInputError("The request's input is no plain text, so the answer is not read again.")
        before = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
        return super().prompt({**body, "input": [*before, {"role": "user", "content": body["input"]}]}, choice)

    @classmethod
    def places(cls, reply: Any) -> Sequence[Place] | None:
        """The place of a reply; for events, of those with text of the answer and of the one that ends the response."""
        if not isinstance(reply, Mapping):
            return None
        event = reply.get("type")
        if isinstance(event, str):
            if event == ANSWER:
                return [Place(0, (), goes_on=isinstance(reply.get("delta"), str) and bool(reply["delta"]))]
            ended = event in (*ENDS, FAILED) and isinstance(reply.get("response"), Mapping)
            return [Place(0, ("response",), ended=True)] if ended else []
        return [Place(0, (), ended=True)] if isinstance(reply.get("output"), list) else None

    @classmethod
    def hiding(cls, reply: Any, hidden: HiddenFields) -> Iterator[Change]:
        """Changes that empty or shorten lists of log-probabilities, and restore the number that replies repeat."""
        both: list[tuple[Path, Any]] = [((), reply), (("response",), reply.get("response"))]
        for path, response in both:
            if isinstance(response, Mapping) and "top_logprobs" in response:
                # OpenAI's replies say 0 where nothing was asked for, vLLM's null.
                unasked = hidden.kept is None and VLLM_FIELDS & response.keys()
                own = None if unasked else hidden.request.get("top_logprobs", 0)
                yield Replace((*path, "top_logprobs"), own)
        for path, items in _lists(reply):
            if hidden.kept is None:
                yield Replace(path, [])
            else:
                yield from fields.shorter_items(items, path, hidden.kept)

    @classmethod
    def withholding(cls, reply: Any, place: Place, text: str) -> Iterator[Change]:
        """Changes that put one message in place of the whole output."""
        items = (item for item in reply["output"] if isinstance(item, Mapping) and item.get("type") == "message")
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": next(items, {}).get("id", "msg_0"), "status": "completed"}
        yield Replace(("output",), [message | {"role": "assistant", "content": [part]}])
        yield Replace(("output_text",), text)
        yield from (Replace((name,), None) for name in ("input_messages", "output_messages"))

    def __init__(self) -> None:
        super().__init__()
        self._has_numbers: dict[tuple[str, str], bool] = {}
        """True for a part of the output, by its place, if some piece of its text came with numbers."""

    def deltas(self, reply: RawReply, position: int = 0) -> Iterator[Delta]:
        """The one choice of a reply, or the content that an event adds to it."""
        if "output" in reply and not self.starts(reply):
            yield self._whole(reply)
            return
        event = text_or_empty(reply.get("type"), "type")
        response = optional(as_object, reply.get("response"), "response")
        if response is not None:
            self.note(response)
        if event in ENDS and response is not None and response.get("output"):
            # the last event holds the whole reply: sometimes without log-probabilities
            yield self._whole(response)._replace(repeats=True)
        elif event in ENDS:
            yield Delta(0, finish_reason=None if response is None else _end(response), ended=True)
        elif event in EVENTS:
            kind, text = EVENTS[event], as_text(reply.get("delta"), "delta")
            logprobs = reply.get("logprobs")
            steps = steps_from_items([] if logprobs is None else logprobs, "logprobs")
            if event == ANSWER and text:
                place = _place_of(reply)
                self._has_numbers[place] = self._has_numbers.get(place, False) or bool(steps.steps)
            if kind == "tool_call":
                yield Delta(0, steps=steps, calls={0: ("", text)})
            else:
                yield Delta(0, {kind: text} if text else {}, steps)
        else:
            for place, part in _ended_parts(event, reply):
                listed = fields.value_at(part, ("logprobs",))
                if listed and self._has_numbers.get(place) is False:  # all of them come at the end of the part
                    self._has_numbers[place] = True
                    yield Delta(0, steps=steps_from_items(listed, "logprobs"))

    def note(self, reply: RawReply) -> None:
        """Notice fields that only vLLM has."""
        super().note(reply)
        self.fields.update(reply)

    def _whole(self, reply: RawReply) -> Delta:
        self.note(reply)
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
        if not any(part.steps for part in steps) and reply.get("logprobs"):  # so the Agents SDK keeps those of a chat
            steps.append(steps_from_items(reply["logprobs"], "logprobs"))
        said = {kind: "".join(parts) for kind, parts in texts.items() if any(parts)}
        finish = _end(reply)
        return Delta(0, said, StepList.chained(steps), calls=calls, finish_reason=finish, ended=True)

    @property
    def engine(self) -> Engine:
        """The engine that sent the reply: vLLM if it has fields that only vLLM has."""
        return "vllm" if VLLM_FIELDS & self.fields else "openai"


def _lists(value: Any, path: Path = ()) -> Iterator[tuple[Path, list[Any]]]:
    """All lists of log-probabilities in a reply or event, with their paths."""
    if path[-1:] == ("logprobs",) and isinstance(value, list):
        yield path, value
    elif isinstance(value, Mapping | list):
        for name, member in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _lists(member, (*path, name))


def _parts(item: RawReply, where: str) -> Iterator[RawReply]:
    for name in ("summary", "content"):
        parts = item.get(name)
        if item.get("type") == "reasoning" and name == "summary" and item.get("content"):
            continue  # a summary of what is there in full
        for j, part in enumerate(as_list([] if parts is None else parts, f"{where}.{name}")):
            yield as_object(part, f"{where}.{name}[{j}]")


def _place_of(event: RawReply, part: int = 0) -> tuple[str, str]:
    """The place in the output of the part that an event belongs to; `part` is its number where the event has none."""
    return str(event.get("output_index", 0)), str(event.get("content_index", part))


def _ended_parts(event: str, reply: RawReply) -> list[tuple[tuple[str, str], Any]]:
    """The parts of the answer that an event repeats at their end, with their places; none for any other event."""
    if event == "response.output_text.done":
        return [(_place_of(reply), reply)]
    if event == "response.content_part.done":
        return [(_place_of(reply), reply.get("part"))]
    if event != "response.output_item.done" or fields.value_at(reply, ("item", "type")) != "message":
        return []
    parts = fields.value_at(reply, ("item", "content"))
    return [(_place_of(reply, i), part) for i, part in enumerate(parts if isinstance(parts, list) else [])]


def _end(reply: RawReply) -> str | None:
    details = optional(as_object, reply.get("incomplete_details"), "incomplete_details") or {}
    return optional(as_text, details.get("reason", reply.get("status")), "status")
