"""SGLang's `/generate`: `text` with `meta_info.{output_token_logprobs, output_top_logprobs}`, one or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from semtoken.engine_tokens.records import StepList
from semtoken.engine_tokens.spellings import steps_from_triples
from semtoken.engine_tokens.values import as_list, as_object, as_text, optional, text_or_empty
from semtoken.payloads.formats.base import Delta, Engine, ProbeQuestion, Reply, Shape, index_of
from semtoken.payloads.segments import RawChoice

LISTS = ("output_token_logprobs", "output_top_logprobs")


@dataclass(frozen=True)
class _Seen:
    """What the chunks of one choice have brought."""

    text: str = ""
    lists: tuple[Sequence[Any] | None, ...] = (None, None)


class SGLangGenerate(Shape):
    """SGLang's own shape."""

    name = "generate"
    path = "/generate"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"sglang": "sglang"}
    ask = '"return_logprob": true, "top_logprobs_num": 20'

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, _Seen] = {}
        self._repeats = True
        """Chunks repeat what came before, instead of adding to it: a setting of the server."""

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """It has facts about the generation."""
        return "meta_info" in replies[0]

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """It has facts about the generation."""
        return "meta_info" in chunk

    @classmethod
    def body(cls, question: ProbeQuestion) -> dict[str, Any]:
        """A request that continues the prompt."""
        sampling: dict[str, Any] = {"max_new_tokens": question.max_tokens}
        if question.temperature is not None:
            sampling["temperature"] = question.temperature
        body: dict[str, Any] = {"text": question.prompt, "sampling_params": sampling}
        if question.top is None:
            return body
        return body | {"return_logprob": True, "top_logprobs_num": question.top, "return_text_in_logprobs": True}

    def whole(self, replies: Sequence[Reply]) -> Iterator[Delta]:
        """One choice a reply."""
        for position, reply in enumerate(replies):
            meta = as_object(reply.get("meta_info"), "meta_info")
            yield _delta(index_of(reply, "", position), text_or_empty(reply.get("text"), "text"), meta, _lists(meta))

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """What a chunk adds, whether or not it repeats what came before."""
        index = index_of(chunk, "")
        meta = as_object(chunk.get("meta_info"), "meta_info")
        seen = self._seen.get(index, _Seen())
        now = _Seen(text_or_empty(chunk.get("text"), "text"), _lists(meta))
        self._repeats = self._repeats and _begins(now, seen)
        if self._repeats:
            self._seen[index] = now
            text = now.text[len(seen.text) :]
            lists = tuple(None if a is None else a[len(b or ()) :] for a, b in zip(now.lists, seen.lists, strict=True))
        else:
            text, lists = now.text, now.lists
        yield _delta(index, text, meta, lists)

    def raw_choice(self, index: int) -> RawChoice:
        """One of the choices so far, which is one answer."""
        return replace(super().raw_choice(index), one_segment=True)


def _begins(now: _Seen, before: _Seen) -> bool:
    pairs = zip(now.lists, before.lists, strict=True)
    return now.text.startswith(before.text) and all(
        b is None or (a is not None and list(a[: len(b)]) == list(b)) for a, b in pairs
    )


def _lists(meta: Reply) -> tuple[Sequence[Any] | None, ...]:
    return tuple(optional(as_list, meta.get(name), f"meta_info.{name}") for name in LISTS)


def _delta(index: int, text: str, meta: Reply, lists: tuple[Sequence[Any] | None, ...]) -> Delta:
    chosen, tops = lists
    steps = StepList() if chosen is None else steps_from_triples(chosen, tops, "meta_info")
    reason = meta.get("finish_reason")
    named = reason.get("type") if isinstance(reason, Mapping) else reason
    finish = optional(as_text, named, "meta_info.finish_reason")
    texts = {"answer": text} if text else {}
    return Delta(index, texts, steps, finish_reason=finish, ended=reason is not None)  # type: ignore[arg-type]
