"""Chunks of a stream -> the reply that the engine would have sent at once, and what each chunk added to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from semtoken.payloads.engines import BATCH
from semtoken.payloads.openai import LISTS_APART
from semtoken.payloads.records import SegmentKind
from semtoken.payloads.tokens import Steps, steps_from_items, steps_from_lists, steps_from_triples
from semtoken.payloads.values import as_id, as_list, as_object, as_text, optional, text_or_empty

Chunk = Mapping[str, Any]

TEXT_FIELDS: Mapping[str, SegmentKind] = {
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
    "content": "answer",
    "refusal": "refusal",
}


@dataclass(frozen=True)
class Delta:
    """What a chunk adds to one choice."""

    choice: int
    texts: Mapping[SegmentKind, str]
    steps: Steps = field(default_factory=Steps)
    """Of whatever was written; not yet given to a part."""
    apart: Mapping[SegmentKind, Steps] = field(default_factory=dict)
    """Steps that the engine lists under a part of their own."""
    ended: bool = False
    """The engine says that the choice is complete."""


class Merger(Protocol):
    """Puts the chunks of one shape together."""

    def merge(self, chunk: Chunk) -> list[Delta]:
        """Take in a chunk."""

    def reply(self) -> dict[str, Any]:
        """All so far, as if it had not been streamed."""


class ChoiceMerger:
    """OpenAI's `choices`: what both kinds of completions have in common."""

    object = ""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def merge(self, chunk: Chunk) -> list[Delta]:
        """Take in a chunk."""
        self._top.update((key, value) for key, value in chunk.items() if key != "choices" and value is not None)
        choices = chunk.get("choices")
        deltas = []
        for i, value in enumerate(as_list([] if choices is None else choices, "choices")):
            choice = as_object(value, f"choices[{i}]")
            index = as_id(choice.get("index", 0), f"choices[{i}].index")
            merged = self._choices.setdefault(index, {"index": index})
            for key in ("finish_reason", "stop_reason", "matched_stop"):
                if key in choice and (choice[key] is not None or key not in merged):
                    merged[key] = choice[key]
            if choice.get("token_ids") is not None:
                merged.setdefault("token_ids", []).extend(as_list(choice["token_ids"], f"choices[{i}].token_ids"))
            deltas.append(self._add(merged, choice, index, f"choices[{i}]"))
        return deltas

    def reply(self) -> dict[str, Any]:
        """All so far, as if it had not been streamed."""
        return self._top | {"object": self.object, "choices": [self._choices[i] for i in sorted(self._choices)]}

    def _add(self, merged: dict[str, Any], choice: Chunk, index: int, where: str) -> Delta:
        raise NotImplementedError


class ChatMerger(ChoiceMerger):
    """`choices[].delta` of chat completions."""

    object = "chat.completion"

    def _add(self, merged: dict[str, Any], choice: Chunk, index: int, where: str) -> Delta:
        message = merged.setdefault("message", {"role": "assistant", "content": None})
        delta = optional(as_object, choice.get("delta"), f"{where}.delta") or {}
        texts: dict[SegmentKind, str] = {}
        for name, kind in TEXT_FIELDS.items():
            text = text_or_empty(delta.get(name), f"{where}.delta.{name}")
            if text or delta.get(name) is not None:
                message[name] = (message.get(name) or "") + text
            if text and kind not in texts:  # some engines send reasoning under both names
                texts[kind] = text
        if calls := _add_calls(message, delta, where):
            texts["tool_call"] = calls
        logprobs = optional(as_object, choice.get("logprobs"), f"{where}.logprobs") or {}
        _extend_lists(merged, logprobs, f"{where}.logprobs")
        if logprobs.get("tokens") is not None:
            steps = steps_from_lists(logprobs, f"{where}.logprobs")
        else:
            steps = _items(logprobs, "content", where)
        apart = {kind: _items(logprobs, name, where) for name, kind in LISTS_APART.items() if logprobs.get(name)}
        return Delta(index, texts, steps, apart, ended=choice.get("finish_reason") is not None)


def _items(logprobs: Chunk, name: str, where: str) -> Steps:
    return steps_from_items(logprobs.get(name) or [], f"{where}.logprobs.{name}")


def _add_calls(message: dict[str, Any], delta: Chunk, where: str) -> str:
    """Put pieces of tool calls together by their index; the text of this piece."""
    said = ""
    tools = delta.get("tool_calls")
    for i, value in enumerate(as_list([] if tools is None else tools, f"{where}.delta.tool_calls")):
        here = f"{where}.delta.tool_calls[{i}]"
        tool = as_object(value, here)
        known = message.setdefault("tool_calls", [])
        at = as_id(tool.get("index", i), f"{here}.index")
        call = next((c for c in known if c["index"] == at), None)
        if call is None:
            call = {"index": at, "function": {"name": "", "arguments": ""}}
            known.append(call)
        function = optional(as_object, tool.get("function"), f"{here}.function") or {}
        said += _add_function(call["function"], function, here)
    if delta.get("function_call") is not None:
        merged = message.setdefault("function_call", {"name": "", "arguments": ""})
        function = as_object(delta["function_call"], f"{where}.delta.function_call")
        said += _add_function(merged, function, f"{where}.delta.function_call")
    return said


def _add_function(merged: dict[str, str], function: Chunk, where: str) -> str:
    added = {name: text_or_empty(function.get(name), f"{where}.{name}") for name in ("name", "arguments")}
    for name, text in added.items():
        merged[name] += text
    return added["name"] + added["arguments"]


def _extend_lists(merged: dict[str, Any], logprobs: Chunk, where: str) -> None:
    """Append every list of `logprobs` to that of the merged choice."""
    for name, values in logprobs.items():
        if values is not None and isinstance(values, list | tuple):
            lists = merged.get("logprobs")
            if lists is None:
                lists = merged["logprobs"] = {}
            lists.setdefault(name, []).extend(values)


class CompletionMerger(ChoiceMerger):
    """`choices[].text` of legacy completions."""

    object = "text_completion"

    def _add(self, merged: dict[str, Any], choice: Chunk, index: int, where: str) -> Delta:
        text = text_or_empty(choice.get("text"), f"{where}.text")
        merged["text"] = merged.get("text", "") + text
        logprobs = optional(as_object, choice.get("logprobs"), f"{where}.logprobs") or {}
        _extend_lists(merged, logprobs, f"{where}.logprobs")
        if logprobs.get("content") is not None:
            steps = _items(logprobs, "content", where)
        else:
            steps = steps_from_lists(logprobs, f"{where}.logprobs") if logprobs else Steps()
        return Delta(index, {"answer": text} if text else {}, steps, ended=choice.get("finish_reason") is not None)


class LlamaCppMerger:
    """llama.cpp's `/completion`: `content` and `completion_probabilities` in pieces."""

    def __init__(self) -> None:
        self._replies: dict[int, dict[str, Any]] = {}

    def merge(self, chunk: Chunk) -> list[Delta]:
        """Take in a chunk."""
        index = as_id(chunk.get("index", 0), "index")
        merged = self._replies.setdefault(index, {"content": ""})
        text = text_or_empty(chunk.get("content"), "content")
        merged.update((k, v) for k, v in chunk.items() if k not in ("content", "completion_probabilities", "tokens"))
        merged["content"] += text
        items = chunk.get("completion_probabilities")
        items = as_list([] if items is None else items, "completion_probabilities")
        merged.setdefault("completion_probabilities", []).extend(items)
        steps = steps_from_items(items, "completion_probabilities")
        return [Delta(index, {"answer": text} if text else {}, steps, ended=chunk.get("stop") is True)]

    def reply(self) -> dict[str, Any]:
        """All so far, as if it had not been streamed."""
        return _one_or_batch(self._replies)


class SGLangMerger:
    """SGLang's `/generate`: every chunk repeats what came before, or adds to it, by a setting of the server."""

    def __init__(self) -> None:
        self._replies: dict[int, dict[str, Any]] = {}
        self._repeats = True

    def merge(self, chunk: Chunk) -> list[Delta]:
        """Take in a chunk."""
        index = as_id(chunk.get("index", 0), "index")
        meta = as_object(chunk.get("meta_info"), "meta_info")
        merged = self._replies.setdefault(index, {"text": "", "index": index, "meta_info": {}})
        known = merged["meta_info"]
        text = self._grown(merged["text"], text_or_empty(chunk.get("text"), "text"))
        lists = {}
        for name in ("output_token_logprobs", "output_top_logprobs"):
            if meta.get(name) is not None:
                before = known.get(name, [])
                lists[name] = self._grown(before, list(as_list(meta[name], f"meta_info.{name}")))
        said = text[len(merged["text"]) :]
        added = {name: values[len(known.get(name, ())) :] for name, values in lists.items()}
        merged["text"], merged["meta_info"] = text, {**known, **meta, **lists}
        steps = Steps()
        if "output_token_logprobs" in added:
            steps = steps_from_triples(added["output_token_logprobs"], added.get("output_top_logprobs"), "meta_info")
        return [Delta(index, {"answer": said} if said else {}, steps, ended=meta.get("finish_reason") is not None)]

    def _grown(self, before: Any, now: Any) -> Any:
        """What there was, grown by a chunk that may repeat it."""
        self._repeats = self._repeats and now[: len(before)] == before
        return now if self._repeats else before + now

    def reply(self) -> dict[str, Any]:
        """All so far, as if it had not been streamed."""
        return _one_or_batch(self._replies)


def _one_or_batch(replies: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    values = [replies[i] for i in sorted(replies)]
    return values[0] if len(values) == 1 else {BATCH: values}


class ResponseMerger:
    """Events of the Responses form; the last of them holds the whole reply, sometimes without log-probabilities."""

    KINDS: Mapping[str, SegmentKind] = {
        "response.output_text.delta": "answer",
        "response.refusal.delta": "refusal",
        "response.reasoning_text.delta": "reasoning",
        "response.reasoning_summary_text.delta": "reasoning",
        "response.function_call_arguments.delta": "tool_call",
    }
    ENDS = ("response.completed", "response.incomplete")

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._texts: dict[SegmentKind, str] = {}
        self._items: list[Any] = []

    def merge(self, chunk: Chunk) -> list[Delta]:
        """Take in an event."""
        event = text_or_empty(chunk.get("type"), "type")
        if chunk.get("response") is not None:
            self._whole = dict(as_object(chunk["response"], "response"))
        if event in self.ENDS:
            return [Delta(0, {}, ended=True)]
        kind = self.KINDS.get(event)
        if kind is None:
            return []
        text = as_text(chunk.get("delta"), "delta")
        self._texts[kind] = self._texts.get(kind, "") + text
        logprobs = chunk.get("logprobs")
        items = as_list([] if logprobs is None else logprobs, "logprobs")
        self._items.extend(items)
        return [Delta(0, {kind: text} if text else {}, steps_from_items(items, "logprobs"))]

    def reply(self) -> dict[str, Any]:
        """The reply that the last event held, with log-probabilities; one made of the pieces if it never came."""
        if not self._whole.get("output"):
            parts = [{"type": "output_text", "text": self._texts.get("answer", ""), "logprobs": self._items}]
            if refusal := self._texts.get("refusal"):
                parts.append({"type": "refusal", "refusal": refusal})
            output: list[dict[str, Any]] = [{"type": "message", "content": parts}]
            if reasoning := self._texts.get("reasoning"):
                output.insert(0, {"type": "reasoning", "content": [{"type": "reasoning_text", "text": reasoning}]})
            if arguments := self._texts.get("tool_call"):
                output.append({"type": "function_call", "name": "", "arguments": arguments})
            return {**self._whole, "object": "response", "output": output}
        return {**self._whole, "output": _with_logprobs(self._whole["output"], self._items)}


def _with_logprobs(output: Any, items: Sequence[Any]) -> list[Any]:
    """The output with the items of the pieces in its first text, unless it has some of its own."""
    entries = [dict(as_object(entry, "output")) for entry in as_list(output, "output")]
    contents = [as_list(entry.get("content") or [], "output.content") for entry in entries]
    parts = [as_object(part, "output.content") for content in contents for part in content]
    if any(part.get("logprobs") for part in parts) or not items:
        return entries
    for entry, content in zip(entries, contents, strict=True):
        for j, part in enumerate(content):
            if part.get("type") == "output_text":
                entry["content"] = [*content[:j], {**part, "logprobs": list(items)}, *content[j + 1 :]]
                return entries
    return entries
