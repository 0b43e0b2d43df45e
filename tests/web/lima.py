"""Replies of an upstream whose model says "Lima", whole and as the events of a stream."""

from __future__ import annotations

import json
from typing import Any

TOKEN: dict[str, Any] = {"token": "Lima", "logprob": -0.4999123456, "bytes": list(b"Lima")}
LIMA: dict[str, Any] = {"content": [TOKEN | {"top_logprobs": [TOKEN]}]}
"""The log-probabilities of the answer."""
SAID = {"content": "Lima"}


def choice(index: int = 0, message: Any = None, logprobs: Any = LIMA, finish: str | None = "stop") -> dict[str, Any]:
    """A choice of a whole reply."""
    return {"index": index, "message": message or SAID, "logprobs": logprobs, "finish_reason": finish}


def reply(*choices: dict[str, Any], model: str = "m") -> bytes:
    """A whole reply with these choices, or with one that says "Lima"."""
    return json.dumps({"object": "chat.completion", "model": model, "choices": choices or [choice()]}).encode()


def event(content: str = "Lima", finish: str | None = None, index: int = 0) -> dict[str, Any]:
    """An event of a stream; one without content has no log-probabilities."""
    delta, logprobs = ({"content": content}, LIMA) if content else ({}, None)
    return {"choices": [{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]}
