"""Chunks of a stream that only go on with an answer, put together: many of them are read in the time of a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Chunk = Mapping[str, Any]

GATHERED = 32
"""So many chunks are read together at most, which takes a millisecond or two."""
VARYING = {"created": None, "obfuscation": None}
"""Fields of a chunk that say nothing of its answer, and differ from chunk to chunk."""
OWN = ("content", "role")
"""Fields of a message that a chunk may have that waits."""


class Gatherer:
    """Puts chunks of a chat together.

    A chunk waits if it differs from one before it in the content of its choice and the log-probabilities of that, and
    in nothing else. Together such chunks say in one what they say one by one.
    """

    def __init__(self) -> None:
        self._frames: dict[int, Mapping[str, Any]] = {}
        """Of each choice what the chunks that wait have in common."""
        self._waiting: dict[int, list[Chunk]] = {}

    def add(self, chunk: Chunk) -> list[Chunk]:
        """The chunks that are to be read now that one has come."""
        frame = _frame(chunk)
        if frame is None:
            self._frames.clear()
            return [*self.rest(), chunk]
        index = frame["choices"]["index"]
        if self._frames.get(index) != frame:
            self._frames[index] = frame
            return [*self._due(index), chunk]
        waiting = self._waiting.setdefault(index, [])
        waiting.append(chunk)
        return self._due(index) if len(waiting) == GATHERED else []

    def rest(self) -> list[Chunk]:
        """All that wait, to be read now."""
        return [chunk for index in list(self._waiting) for chunk in self._due(index)]

    def _due(self, index: int) -> list[Chunk]:
        waiting = self._waiting.pop(index, [])
        return [_together(waiting)] if waiting else []


def _frame(chunk: Chunk) -> Mapping[str, Any] | None:
    """What a chunk says beside the content of the one choice that it goes on with; None for any other chunk."""
    [choice] = chunk["choices"] if len(chunk["choices"]) == 1 else [None]
    if not isinstance(choice, dict) or choice.get("finish_reason") is not None or type(choice.get("index")) is not int:
        return None
    delta, logprobs, ids = choice.get("delta"), choice.get("logprobs"), choice.get("token_ids")
    if not isinstance(delta, dict) or not isinstance(logprobs, dict) or not isinstance(logprobs.get("content"), list):
        return None
    if not isinstance(delta.get("content"), str) or not delta["content"]:
        return None
    if any(delta[name] for name in delta if name not in OWN) or any(logprobs[name] for name in logprobs.keys() - OWN):
        return None
    return {**chunk, **VARYING, "choices": {**choice, "delta": None, "logprobs": None, "token_ids": type(ids)}}


def _together(chunks: list[Chunk]) -> Chunk:
    """One chunk that says what several with the same frame say."""
    choices = [chunk["choices"][0] for chunk in chunks]
    whole = {
        **choices[-1],
        "delta": {"content": "".join(choice["delta"]["content"] for choice in choices)},
        "logprobs": {"content": [item for choice in choices for item in choice["logprobs"]["content"]]},
    }
    if isinstance(whole.get("token_ids"), list):
        whole["token_ids"] = [token for choice in choices for token in choice["token_ids"]]
    return {**chunks[-1], "choices": [whole]}
