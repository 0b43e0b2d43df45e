"""llama.cpp's `/completion`: `content` with `completion_probabilities`, one reply or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from semtoken.engine_tokens.spellings import steps_from_items
from semtoken.engine_tokens.values import as_text, optional, text_or_empty
from semtoken.payloads.formats.base import Delta, Engine, ProbeQuestion, Reply, Shape, index_of
from semtoken.payloads.segments import RawChoice
from semtoken.results import Distribution


class LlamaCppCompletion(Shape):
    """llama.cpp's own shape."""

    name = "completion"
    path = "/completion"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"llama-cpp": "llama-cpp"}
    ask = '"n_probs": 20'

    def __init__(self) -> None:
        super().__init__()
        self._post_sampling = False
        """The probabilities are those after the samplers (`post_sampling_probs`)."""
        self._model: str | None = None

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """It has probabilities or says how it stopped."""
        first = replies[0]
        return "completion_probabilities" in first or ("content" in first and "stop" in first)

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """It says whether it stopped."""
        return "content" in chunk and "stop" in chunk

    @classmethod
    def body(cls, question: ProbeQuestion) -> dict[str, Any]:
        """A request that continues the prompt."""
        body: dict[str, Any] = {"prompt": question.prompt, "n_predict": question.max_tokens}
        if question.temperature is not None:
            body["temperature"] = question.temperature
        return body if question.top is None else body | {"n_probs": question.top}

    def whole(self, replies: Sequence[Reply]) -> Iterator[Delta]:
        """One choice a reply."""
        for position, reply in enumerate(replies):
            yield self._delta(reply, index_of(reply, "", position), ended=True)

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """What a chunk adds."""
        yield self._delta(chunk, index_of(chunk, ""), ended=chunk.get("stop") is True)

    def _delta(self, reply: Reply, index: int, *, ended: bool) -> Delta:
        items = reply.get("completion_probabilities", reply.get("probs"))
        steps = steps_from_items([] if items is None else items, "completion_probabilities")
        self._post_sampling |= any("prob" in item for item in items or ())
        self._model = optional(as_text, reply.get("model"), "model") or self._model
        text = text_or_empty(reply.get("content"), "content")
        finish = optional(as_text, reply.get("stop_type"), "stop_type")
        return Delta(index, {"answer": text} if text else {}, steps, finish_reason=finish, ended=ended)

    def raw_choice(self, index: int) -> RawChoice:
        """One of the choices so far, which is one answer."""
        return replace(super().raw_choice(index), one_segment=True)

    @property
    def model(self) -> str | None:
        """The model's name, if the reply gives it."""
        return self._model

    def distribution(self, engine: Engine, temperature: float | None, *, masked: bool) -> Distribution:
        """After the samplers where that was asked for."""
        return super().distribution(engine, temperature, masked=masked or self._post_sampling)
