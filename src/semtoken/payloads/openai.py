"""Replies in OpenAI's three shapes, as OpenAI and most engines send them: chat, legacy completions, Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from semtoken.payloads.align import joined, pieces_of
from semtoken.payloads.parts import RawChoice
from semtoken.payloads.records import SegmentKind
from semtoken.payloads.tokens import Steps, chained, steps_from_items, steps_from_lists, with_ids
from semtoken.payloads.values import as_id, as_list, as_object, as_text, optional, text_or_empty

Reply = Mapping[str, Any]

RESPONSE_PARTS: Mapping[str, SegmentKind] = {
    "output_text": "answer",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
}
ECHO = (
    "The reply repeats the prompt and does not say where the answer begins: ask without `echo`, or for the usage too "
    '("stream_options": {"include_usage": true}).'
)
LISTS_APART: Mapping[str, SegmentKind] = {"refusal": "refusal", "reasoning_content": "reasoning"}


def chat_choices(reply: Reply) -> Iterator[RawChoice]:
    """`choices[].message` with `choices[].logprobs.content`."""
    for where, choice in _choices(reply):
        message = as_object(choice.get("message"), f"{where}.message")
        logprobs = optional(as_object, choice.get("logprobs"), f"{where}.logprobs") or {}
        steps, apart = _chat_steps(logprobs, f"{where}.logprobs")
        steps, flags = _with_token_ids(steps, choice.get("token_ids"), f"{where}.token_ids")
        yield RawChoice(
            index=_index(choice, where),
            texts=_message_texts(message, f"{where}.message"),
            steps=steps,
            finish_reason=optional(as_text, choice.get("finish_reason"), f"{where}.finish_reason"),
            flags=flags,
            apart=apart,
        )


def _choices(reply: Reply) -> Iterator[tuple[str, Reply]]:
    for i, choice in enumerate(as_list(reply.get("choices"), "choices")):
        yield f"choices[{i}]", as_object(choice, f"choices[{i}]")


def _index(choice: Reply, where: str) -> int:
    return as_id(choice.get("index", 0), f"{where}.index")


def _message_texts(message: Reply, where: str) -> dict[SegmentKind, str]:
    reasoning = message.get("reasoning_content")
    texts: dict[SegmentKind, str] = {
        "reasoning": text_or_empty(message.get("reasoning") if reasoning is None else reasoning, f"{where}.reasoning"),
        "answer": _content(message.get("content"), f"{where}.content"),
        "refusal": text_or_empty(message.get("refusal"), f"{where}.refusal"),
        "tool_call": _tool_calls(message, where),
    }
    return {kind: text for kind, text in texts.items() if text}


def _content(content: Any, where: str) -> str:
    """Text, or a list of parts of which some are text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = (as_object(part, f"{where}[{i}]") for i, part in enumerate(as_list(content, where)))
    return "".join(text_or_empty(part.get("text"), f"{where}.text") for part in parts)


def _tool_calls(message: Reply, where: str) -> str:
    """Names and arguments of the calls, one a line."""
    calls = [message["function_call"]] if message.get("function_call") is not None else []
    tools = message.get("tool_calls")
    for i, tool in enumerate(as_list([] if tools is None else tools, f"{where}.tool_calls")):
        entry = as_object(tool, f"{where}.tool_calls[{i}]")
        calls.append(entry.get("function", entry.get("custom")))
    return "\n".join(_call(as_object(call, f"{where}.tool_calls"), f"{where}.tool_calls") for call in calls)


def _call(function: Reply, where: str) -> str:
    name = text_or_empty(function.get("name"), f"{where}.name")
    return f"{name}({text_or_empty(function.get('arguments', function.get('input')), f'{where}.arguments')})"


def _chat_steps(logprobs: Reply, where: str) -> tuple[Steps, dict[SegmentKind, Steps]]:
    if logprobs.get("tokens") is not None:  # some servers give the lists of legacy completions here too
        return steps_from_lists(logprobs, where), {}
    apart = {
        kind: steps_from_items(logprobs[name], f"{where}.{name}")
        for name, kind in LISTS_APART.items()
        if logprobs.get(name) is not None
    }
    content = logprobs.get("content")
    return steps_from_items([] if content is None else content, f"{where}.content"), apart


def _with_token_ids(steps: Steps, token_ids: Any, where: str) -> tuple[Steps, tuple[str, ...]]:
    if token_ids is None or not steps.steps:
        return steps, ()
    ids = [as_id(token, where) for token in as_list(token_ids, where)]
    if len(ids) != len(steps.steps):
        return steps, (f"{len(ids)} token ids do not fit {len(steps.steps)} steps; they are not used.",)
    return replace(steps, steps=with_ids(steps.steps, ids)), ()


def completion_choices(reply: Reply) -> Iterator[RawChoice]:
    """`choices[].text` with the lists `choices[].logprobs.{tokens, token_logprobs, top_logprobs}`."""
    usage = optional(as_object, reply.get("usage"), "usage") or {}
    written = optional(as_id, usage.get("completion_tokens"), "usage.completion_tokens")
    for where, choice in _choices(reply):
        text = text_or_empty(choice.get("text"), f"{where}.text")
        logprobs = optional(as_object, choice.get("logprobs"), f"{where}.logprobs") or {}
        if logprobs.get("content") is not None:  # newer llama.cpp gives chat items here too
            steps = steps_from_items(logprobs["content"], f"{where}.logprobs.content")
        else:
            steps = steps_from_lists(logprobs, f"{where}.logprobs") if logprobs else Steps()
        if steps.missing[:1] == (0,):
            steps, text = _without_echo(steps, text, written)
        steps, flags = _with_token_ids(steps, choice.get("token_ids"), f"{where}.token_ids")
        finish = optional(as_text, choice.get("finish_reason"), f"{where}.finish_reason")
        yield RawChoice(_index(choice, where), {"answer": text}, steps, finish, flags, one_part=True)


def _without_echo(steps: Steps, text: str, written: int | None) -> tuple[Steps, str]:
    """The answer alone, of a reply that repeats the prompt (`echo`): its first token has no log-probability."""
    if written is None:
        return replace(steps, missing=(), fault=ECHO), text
    prompt = len(steps.steps) - written
    if prompt <= 0:
        return steps, text
    kept = steps.steps[prompt:]
    missing = tuple(i - prompt for i in steps.missing if i >= prompt)
    spelled = joined(pieces_of(kept))  # with a terminator, which the text lacks
    length = next((n for n in range(len(spelled), 0, -1) if text.endswith(spelled[:n])), 0)
    return Steps(kept, missing), spelled[:length] or text


def response_choices(reply: Reply) -> Iterator[RawChoice]:
    """`output[]` of the Responses form: one choice, its log-probabilities under `output_text` parts."""
    texts: dict[SegmentKind, list[str]] = {"reasoning": [], "answer": [], "refusal": [], "tool_call": []}
    steps: list[Steps] = []
    for i, value in enumerate(as_list(reply.get("output"), "output")):
        item = as_object(value, f"output[{i}]")
        if item.get("arguments") is not None or item.get("input") is not None:
            texts["tool_call"].append(_call(item, f"output[{i}]"))
        for part in _response_parts(item, f"output[{i}]"):
            kind = RESPONSE_PARTS.get(str(part.get("type")))
            if kind is not None:
                text = part.get("refusal") if kind == "refusal" else part.get("text")
                texts[kind].append(text_or_empty(text, f"output[{i}].content"))
            if part.get("logprobs") is not None:
                steps.append(steps_from_items(part["logprobs"], f"output[{i}].content.logprobs"))
    said = {kind: ("\n" if kind == "tool_call" else "").join(parts) for kind, parts in texts.items() if any(parts)}
    yield RawChoice(0, said, chained(steps), _response_end(reply))


def _response_parts(item: Reply, where: str) -> Iterator[Reply]:
    for name in ("summary", "content"):
        parts = item.get(name)
        if item.get("type") == "reasoning" and name == "summary" and item.get("content"):
            continue  # a summary of what is there in full
        for j, part in enumerate(as_list([] if parts is None else parts, f"{where}.{name}")):
            yield as_object(part, f"{where}.{name}[{j}]")


def _response_end(reply: Reply) -> str | None:
    details = optional(as_object, reply.get("incomplete_details"), "incomplete_details") or {}
    reason = details.get("reason", reply.get("status"))
    return optional(as_text, reason, "status")
