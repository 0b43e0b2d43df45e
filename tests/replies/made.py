"""Parts of which these tests put replies together: tokens, lists, lines and events."""

from __future__ import annotations

import json
from typing import Any

Item = dict[str, Any]


def entry(text: str, log_prob: float, **more: Any) -> Item:
    """A token in a list, as OpenAI writes it."""
    return {"token": text, "logprob": log_prob, "bytes": list(text.encode()), **more}


def item(text: str, log_prob: float = -0.25, **more: Any) -> Item:
    """A token that was chosen; its list is empty unless it is given."""
    return entry(text, log_prob, **{"top_logprobs": [], **more})


def listed(text: str, log_prob: float, *others: tuple[str, float]) -> Item:
    """A token that was chosen, with the list of it and others."""
    return item(text, log_prob, top_logprobs=[entry(text, log_prob), *(entry(*one) for one in others)])


def chat_reply(text: str | None, items: list[Item], *, usage: int | None = None, **choice: Any) -> dict[str, Any]:
    """A chat completion of one choice, which may have further members; `usage` counts its tokens."""
    own = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": {"content": items}}
    choices = [own | {"finish_reason": "stop"} | choice]
    whole: dict[str, Any] = {"object": "chat.completion", "model": "m", "choices": choices}
    return whole if usage is None else whole | {"usage": {"completion_tokens": usage}}


def chat_chunk(*items: Item, text: str | None = None, **choice: Any) -> dict[str, Any]:
    """A chunk of a streamed chat that adds these tokens, and what they spell unless another text is given."""
    said = "".join(one["token"] for one in items) if text is None else text
    own = {"index": 0, "delta": {"content": said}, "logprobs": {"content": list(items)}}
    return {"object": "chat.completion.chunk", "choices": [own | choice]}


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def events(*values: Any, done: bool = False) -> str:
    """A stream of server-sent events, with `[DONE]` at its end if that is asked for."""
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values) + "data: [DONE]\n\n" * done
