"""Reads the fields of untrusted replies and requests, which shapes name by their paths: values, counts, texts, ends.

Each function returns what a place holds, or says where there is something else (`InvalidInputError`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.splice import Change, Keep, Path, encode
from semtoken.support.text import error_text
from semtoken.support.untrusted import as_id, as_list, as_object, text_or_empty

RawReply: TypeAlias = Mapping[str, Any]
ALL = 1 << 30
"""Stands for all log-probabilities of a step: more than any server gives."""


def as_many(top: int, requested: int | None) -> int:
    """The larger of two numbers of log-probabilities to ask for; -1 means all of them."""
    return -1 if top < 0 or requested == ALL else max(top, requested or 0)


MISSING = object()


def value_at(value: Any, path: Path, default: Any = None) -> Any:
    """The value at a path of plain values; `default` where there is none."""
    for name in path:
        if type(value) is dict or isinstance(value, Mapping):  # asking for the exact type is much faster
            value = value.get(name, MISSING)
        elif isinstance(value, list | tuple) and isinstance(name, int) and name < len(value):
            value = value[name]
        else:
            return default
        if value is MISSING:
            return default
    return value


def merged(values: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of some values with another one at a path."""
    first, *rest = path
    inside = values.get(str(first))
    below = merged(inside if isinstance(inside, Mapping) else {}, tuple(rest), value) if rest else value
    return {**values, str(first): below}


def count_at(reply: Any, *path: str | int) -> int | None:
    """The number at a path of a reply; None if there is none."""
    count = value_at(reply, path)
    return count if type(count) is int and count >= 0 else None


def text_or_ids(prompt: Any, number: int) -> str | list[Any]:
    """The prompt of the choice with this number, as text or token ids; `InvalidInputError` if it is neither or
    missing.
    """
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[number] if number < len(prompt) else None
    if isinstance(prompt, str) or (
        isinstance(prompt, list) and prompt and all(type(token_id) is int for token_id in prompt)
    ):
        return prompt
    raise InvalidInputError("The request holds no prompt for this choice, so what the model was asked is not known.")


def count_of(value: Any, name: str) -> int | None:
    """The number of log-probabilities in a field of a request; `ALL` below 0, `InvalidInputError` for no whole
    number.
    """
    if value is None:
        return None
    if type(value) is not int:
        raise InvalidInputError(f"{name} must be a whole number.")
    return ALL if value < 0 else value


def shorter_items(items: Any, at: Path, kept: int, name: str = "top_logprobs") -> Iterator[Change]:
    """Changes that shorten each item's list of best tokens."""
    for i, item in enumerate(items if isinstance(items, list) else ()):
        best = item.get(name) if isinstance(item, Mapping) else None
        if isinstance(best, list) and len(best) > kept:
            yield Keep((*at, i, name), range(kept))


def dotted(path: Path) -> str:
    """A path as messages show it, such as `choices[0].message`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


LONGEST_INDEX = 10_000  # choices of one reply


def index_of(choice: RawReply, default: int = 0) -> int:
    """The index of a choice, `default` where it has none."""
    index = choice.get("index", default)
    choice_index = default if index is None else index if type(index) is int and index >= 0 else as_id(index, "index")
    if choice_index > LONGEST_INDEX:
        raise InvalidInputError(f"index must be at most {LONGEST_INDEX}. Got {choice_index} instead.")
    return choice_index


def raise_error(reply: RawReply) -> None:
    """Raise `BackendError` if a reply, a chunk or a choice reports an error of the server, whatever else it holds."""
    error = reply.get("error")
    response = reply.get("response")
    if reply.get("type") == "response.failed" and isinstance(response, Mapping):
        error = response.get("error") or "the response failed"
    elif not error and "error" in (reply.get("type"), reply.get("object")):
        error = reply
    if error:
        raise BackendError(f"The server reports an error: {error_text(error)}")


def prefill_of(request: RawReply) -> str:
    """The beginning of the answer that a request of a chat gives to the model, as its last message; mostly empty."""
    messages = request.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        return ""
    content = last.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, Mapping) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def content_text(content: Any, where: str) -> str:
    """The text of a list of parts of which some are text."""
    parts = (
        piece if isinstance(piece, str) else as_object(piece, where).get("text") for piece in as_list(content, where)
    )
    return "".join(text_or_empty(part, f"{where}.text") for part in parts)


def stop_of(choice: RawReply) -> str | int | None:
    """The text at which a choice was stopped, or the id of the token, in the fields of vLLM, SGLang and llama.cpp."""
    apart = ("stop_reason",) if "finish_reason" in choice else ()  # alone it is the reason of the end
    for name in (*apart, "matched_stop", "stopping_word"):
        stop = choice.get(name)
        if type(stop) is int or (isinstance(stop, str) and stop):
            return stop
    return None


def arguments_as_json(arguments: Any, where: str) -> str:
    """The arguments of a tool call as JSON, of APIs that give them as values; `InvalidInputError` where JSON has no
    form for them.
    """
    try:
        return encode(arguments)
    except (ValueError, TypeError) as error:  # NaN, or an object of a client
        raise InvalidInputError(f"{where} cannot be written as JSON: {error}.") from error


USAGES: Mapping[str, Sequence[Path]] = {
    "completion_tokens": [("completion_tokens_details", "reasoning_tokens")],
    "output_tokens": [("output_tokens_details", "reasoning_tokens"), ("output_token_details", "reasoning")],
    "completionTokens": [("completionTokensDetails", "reasoningTokens")],
    "outputTokens": [("reasoningTokens",)],
    "candidatesTokenCount": [],
    "candidates_token_count": [],
}
"""Places at which engines and clients count the written tokens, and those of a hidden reasoning among them."""


def ids_of(choice: RawReply) -> tuple[int, ...] | None:
    """The token ids that vLLM lists beside the steps; None if it lists none."""
    ids = choice.get("token_ids")
    return None if ids is None else tuple(as_id(token, "token_ids") for token in as_list(ids, "token_ids"))


AGAIN = re.compile(r"([a-z_]{3,}?)\1+", re.IGNORECASE)


def end_in_words(reason: Any) -> str | None:
    """The reason of an end as an engine gives it: a text, or an object with a type.

    Clients that add up the chunks of a stream write it several times in a row.
    """
    named = reason.get("type", reason.get("reason", "unknown")) if isinstance(reason, Mapping) else reason
    if named in (None, "", "null"):  # as some gateways write while it goes on
        return None
    again = AGAIN.fullmatch(str(named))
    return again[1] if again else str(named)


def written_tokens(usage: Any) -> int | None:
    """The number of tokens that a reply counts in its answers, hidden reasoning apart; None if it does not say."""
    for name, hidden in USAGES.items():
        if (count := count_at(usage, name)) is not None:
            apart = [count_at(usage, *path) or 0 for path in hidden]
            return max(count - max(apart, default=0), 0)
    return None
