"""What OpenAI's two shapes with `choices` have in common, and which engine sent them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from semtoken.engine_tokens.values import as_list, as_object, as_text, optional
from semtoken.errors import InvalidInput
from semtoken.payloads.formats.base import Delta, Engine, Reply, Shape, index_of, only

VLLM_FIELDS = frozenset({"prompt_logprobs", "prompt_token_ids", "kv_transfer_params", "ec_transfer_params"})
VLLM_CHOICE_FIELDS = frozenset({"stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids"})
LONGEST_INDEX = 10_000  # choices of one reply


class Choices(Shape):
    """`choices[]`, of which each is a message or a text."""

    def __init__(self) -> None:
        super().__init__()
        self._fields: set[str] = set()
        """Of replies and chunks."""
        self._choice_fields: set[str] = set()
        self._logprobs: Mapping[str, Any] | None = None
        """The first of them."""
        self._model: str | None = None

    def whole(self, replies: Sequence[Reply]) -> Iterator[Delta]:
        """The choices of a reply."""
        reply = only(replies)
        as_list(reply.get("choices"), "choices")
        seen: set[int] = set()
        for delta in self._deltas(reply, streamed=False):
            if delta.choice in seen:
                raise InvalidInput("Two choices of the reply have the same index.")
            seen.add(delta.choice)
            yield delta

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """What a chunk of a stream adds to each choice."""
        yield from self._deltas(chunk, streamed=True)

    def _deltas(self, reply: Reply, *, streamed: bool) -> Iterator[Delta]:
        self._fields.update(name for name, value in reply.items() if value is not None or not streamed)
        self._model = optional(as_text, reply.get("model"), "model") or self._model
        self._notice(reply)
        choices = reply.get("choices")
        for i, value in enumerate(as_list([] if choices is None else choices, "choices")):
            where = f"choices[{i}]"
            choice = as_object(value, where)
            self._choice_fields.update(choice)
            if self._logprobs is None and isinstance(choice.get("logprobs"), Mapping):
                self._logprobs = choice["logprobs"]
            index = index_of(choice, where)
            if index > LONGEST_INDEX:
                raise InvalidInput(f"{where}.index must be at most {LONGEST_INDEX}. Got {index} instead.")
            yield self._delta(choice, index, where, streamed=streamed)

    def _notice(self, reply: Reply) -> None:
        """Take in what a reply says beside its choices."""

    def _delta(self, choice: Reply, index: int, where: str, *, streamed: bool) -> Delta:
        raise NotImplementedError

    @property
    def model(self) -> str | None:
        """The model's name, if the reply gives it."""
        return self._model

    @property
    def engine(self) -> Engine:
        """Which engine sent it, by the fields that only it has."""
        if "sglext" in self._fields or "matched_stop" in self._choice_fields:
            return "sglang"
        if VLLM_FIELDS & self._fields or VLLM_CHOICE_FIELDS & self._choice_fields:
            return "vllm"
        items = (self._logprobs or {}).get("content")
        first = items[0] if isinstance(items, list) and items else {}
        if "timings" in self._fields or (isinstance(first, Mapping) and "id" in first):
            return "llama-cpp"
        return "llama-cpp-python" if _holds_numpy(self._logprobs or {}) else "openai"


def choices_of(replies: Sequence[Reply]) -> list[Any] | None:
    """The choices of a reply that is no batch, None if it has none."""
    choices = replies[0].get("choices") if len(replies) == 1 else None
    return list(choices) if isinstance(choices, list | tuple) else None


def holds_messages(reply: Reply, choices: Sequence[Any]) -> bool:
    """Whether choices are those of a chat."""
    first = first_choice(choices)
    return "message" in first or "delta" in first or reply.get("object") == "chat.completion"


def first_choice(choices: Sequence[Any]) -> Reply:
    """The first choice that is an object."""
    return next((choice for choice in choices if isinstance(choice, Mapping)), {})


def _holds_numpy(logprobs: Mapping[str, Any]) -> bool:
    """llama-cpp-python in process leaves numpy numbers in its dicts."""
    import numpy as np

    values = logprobs.get("token_logprobs")
    if isinstance(logprobs.get("content"), list):
        values = [item.get("logprob") for item in logprobs["content"] if isinstance(item, Mapping)]
    return isinstance(values, list) and any(isinstance(value, np.floating) for value in values)
