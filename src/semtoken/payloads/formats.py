"""The shapes of replies that are understood, and how they are told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from semtoken.errors import BackendError, InvalidInput
from semtoken.payloads.engines import BATCH, batch, is_post_sampling, llama_cpp_choices, sglang_choices
from semtoken.payloads.openai import chat_choices, completion_choices, response_choices
from semtoken.payloads.parts import RawChoice
from semtoken.results import Distribution

Reply = Mapping[str, Any]
Shape = Literal["chat", "completions", "responses", "generate", "completion"]

_READERS: Mapping[Shape, Callable[[Reply], Iterator[RawChoice]]] = {
    "chat": chat_choices,
    "completions": completion_choices,
    "responses": response_choices,
    "generate": sglang_choices,
    "completion": llama_cpp_choices,
}
_ASK: Mapping[Shape, str] = {
    "chat": '"logprobs": true, "top_logprobs": 20',
    "completions": '"logprobs": 5 or more',
    "responses": '"include": ["message.output_text.logprobs"], "top_logprobs": 20',
    "generate": '"return_logprob": true, "top_logprobs_num": 20',
    "completion": '"n_probs": 20',
}


@dataclass(frozen=True)
class Format:
    """One shape of one engine."""

    name: str
    shape: Shape
    engine: Literal["openai", "vllm", "sglang", "llama-cpp", "llama-cpp-python"]

    def choices(self, reply: Reply) -> Iterator[RawChoice]:
        """The choices of a reply."""
        return _READERS[self.shape](reply)

    @property
    def ask(self) -> str:
        """The fields of a request that bring log-probabilities."""
        return _ASK[self.shape]

    def distribution(self, reply: Reply, temperature: float | None, *, masked: bool) -> Distribution:
        """Which distribution the engine shows, with its default settings.

        SGLang divides by the temperature, and takes 1 for the greedy 0. `masked`: some tokens have no probability.
        """
        if self.engine == "openai":
            return "unknown"
        if self.engine == "sglang":
            return "raw" if temperature in (0, 1) and not masked else "processed"
        return "processed" if masked or (self.shape == "completion" and is_post_sampling(reply)) else "raw"


def _formats() -> Iterator[Format]:
    yield Format("openai-chat", "chat", "openai")
    yield Format("openai-completions", "completions", "openai")
    yield Format("openai-responses", "responses", "openai")
    yield Format("vllm-chat", "chat", "vllm")
    yield Format("vllm-completions", "completions", "vllm")
    yield Format("vllm-responses", "responses", "vllm")
    yield Format("sglang", "generate", "sglang")
    yield Format("sglang-chat", "chat", "sglang")
    yield Format("sglang-completions", "completions", "sglang")
    yield Format("llama-cpp", "completion", "llama-cpp")
    yield Format("llama-cpp-chat", "chat", "llama-cpp")
    yield Format("llama-cpp-completions", "completions", "llama-cpp")
    yield Format("llama-cpp-python-chat", "chat", "llama-cpp-python")
    yield Format("llama-cpp-python-completions", "completions", "llama-cpp-python")


FORMATS: Mapping[str, Format] = {format.name: format for format in _formats()}


def format_named(name: str) -> Format:
    """The format of a name.

    Raises
    ------
    InvalidInput
        There is none.
    """
    if name not in FORMATS:
        raise InvalidInput(f"There is no format {name!r}. Use one of: {', '.join(FORMATS)}.")
    return FORMATS[name]


def detect(reply: Reply) -> Format:
    """The format of a reply, by its fields.

    Raises
    ------
    BackendError
        The reply is the report of an error.
    InvalidInput
        It is nothing that is understood.
    """
    first = next(batch(reply), {})
    if first.get("error") is not None and "choices" not in first:
        raise BackendError(f"The server answered with an error: {error_text(first['error'])}")
    if "meta_info" in first:
        return FORMATS["sglang"]
    if "completion_probabilities" in first or ("content" in first and "stop" in first):
        return FORMATS["llama-cpp"]
    if BATCH not in reply:
        if reply.get("object") == "response" or isinstance(reply.get("output"), list):
            return FORMATS["vllm-responses" if VLLM_FIELDS.intersection(reply) else "openai-responses"]
        choices = reply.get("choices")
        if isinstance(choices, list | tuple):
            return _by_choice(reply, next((c for c in choices if isinstance(c, Mapping)), {}))
    raise InvalidInput(
        f"This is no reply that semtoken understands: its fields are {', '.join(map(repr, first)) or 'none'}. "
        f"Understood are replies and streams of: {', '.join(FORMATS)}."
    )


VLLM_FIELDS = frozenset({"prompt_logprobs", "prompt_token_ids", "kv_transfer_params", "ec_transfer_params"})
_VLLM_CHOICE_FIELDS = frozenset({"stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids"})


def _by_choice(reply: Reply, choice: Reply) -> Format:
    chat = "message" in choice or "delta" in choice or reply.get("object") == "chat.completion"
    return FORMATS[f"{_engine(reply, choice)}-{'chat' if chat else 'completions'}"]


def _engine(reply: Reply, choice: Reply) -> str:
    if "sglext" in reply or "matched_stop" in choice:
        return "sglang"
    if VLLM_FIELDS.intersection(reply) or _VLLM_CHOICE_FIELDS.intersection(choice):
        return "vllm"
    logprobs = choice.get("logprobs")
    items = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    first = items[0] if isinstance(items, list) and items else {}
    if "timings" in reply or (isinstance(first, Mapping) and "id" in first):
        return "llama-cpp"
    return "llama-cpp-python" if _holds_numpy(logprobs) else "openai"


def _holds_numpy(logprobs: Any) -> bool:
    """llama-cpp-python in process leaves numpy numbers in its dicts."""
    import numpy as np

    if not isinstance(logprobs, Mapping):
        return False
    values = logprobs.get("token_logprobs")
    if isinstance(logprobs.get("content"), list):
        values = [item.get("logprob") for item in logprobs["content"] if isinstance(item, Mapping)]
    return isinstance(values, list) and any(isinstance(value, np.floating) for value in values)


def error_text(error: Any) -> str:
    """What the report of an error says, in one line."""
    said = error.get("message", error) if isinstance(error, Mapping) else error
    return " ".join(str(said).split())[:500]
