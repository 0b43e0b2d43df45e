"""SGLang's `/generate`: `text` with `meta_info.{output_token_logprobs, output_top_logprobs}`, one or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from semtoken.engine_tokens.spellings import steps_from_triples
from semtoken.engine_tokens.top_steps import StepList, as_list, as_object, as_text, optional, text_or_empty
from semtoken.errors import InvalidInput
from semtoken.payloads.formats.base import (
    Delta,
    Engine,
    HiddenFields,
    Place,
    ProbeQuestion,
    Reply,
    Shape,
    as_many,
    count_at,
    count_of,
    index_of,
    one_each,
    ones,
)
from semtoken.payloads.formats.openai_choices import text_or_ids
from semtoken.payloads.splice import Change, Drop, Keep, Path, Replace

LISTS = ("output_token_logprobs", "output_top_logprobs")
TOP_LISTS = ("output_top_logprobs", "input_top_logprobs")
ASKED_FOR = (*LISTS, "input_token_logprobs", "input_top_logprobs", "output_token_logprobs_length")
SHOWING = (*LISTS, "output_token_ids_logprobs", "hidden_states", "output_ids")


@dataclass(frozen=True)
class _ChunksSoFar:
    """What the chunks of one choice have brought."""

    text: str = ""
    lists: tuple[Sequence[Any] | None, ...] = (None, None)


class SGLangGenerate(Shape):
    """The shape of SGLang's own `/generate`."""

    name = "generate"
    path = "/generate"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"sglang": "sglang"}
    ask = '"return_logprob": true, "top_logprobs_num": 20'
    one_segment = True

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, _ChunksSoFar] = {}
        self._repeats = True
        """Chunks repeat what came before, instead of adding to it: a setting of the server."""

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """Whether a reply has a field `meta_info`."""
        return "meta_info" in replies[0]

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """Whether a chunk has a field `meta_info`."""
        return "meta_info" in chunk

    @classmethod
    def request(cls, question: ProbeQuestion) -> dict[str, Any]:
        """The body of a request whose answer continues the prompt of the question."""
        sampling: dict[str, Any] = {"max_new_tokens": question.max_tokens}
        if question.temperature is not None:
            sampling["temperature"] = question.temperature
        return {"text": question.prompt, "sampling_params": sampling}

    @classmethod
    def requested(cls, body: Reply) -> int | None:
        """The number in `top_logprobs_num` if `return_logprob` is true; else None."""
        if "text" not in body and "input_ids" not in body:
            raise InvalidInput("The request has neither text nor input_ids.")
        switch, top = body.get("return_logprob"), count_of(body.get("top_logprobs_num"), "top_logprobs_num")
        if not isinstance(switch, bool | None):
            raise InvalidInput("return_logprob must be true or false.")
        return (top or 0) if switch else None

    @classmethod
    def asking(cls, body: Reply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The fields `return_logprob` and `top_logprobs_num`; texts of tokens are asked for if the client does not see
        them.
        """
        own = cls.requested(body)
        texts = {"return_text_in_logprobs": True} if own is None else {}
        return {"return_logprob": True, "top_logprobs_num": as_many(top, own), **texts}

    @classmethod
    def temperature(cls, body: Reply) -> float | None:
        """The temperature that the sampling parameters of a request name, None if they name none."""
        return super().temperature(_sampling(body))

    @classmethod
    def has_stop_texts(cls, body: Reply) -> bool:
        """Whether a request names texts, ids or patterns that end the answer."""
        return any(_sampling(body).get(name) for name in ("stop", "stop_token_ids", "stop_regex"))

    @classmethod
    def prompt(cls, body: Reply, choice: int) -> str | list[Any]:
        """The text or ids of a choice's prompt; `n` choices in a row belong to each prompt."""
        each = _sampling(body).get("n") or 1
        number = choice // each if isinstance(each, int) and each > 0 else choice
        return text_or_ids(body.get("text", body.get("input_ids")), number)

    @classmethod
    def places(cls, reply: Any) -> Sequence[Place] | None:
        """The place of the reply itself, or of each reply of a batch."""
        return one_each(reply, lambda one: isinstance(one.get("meta_info"), Mapping), _place)

    @classmethod
    def hiding(cls, reply: Any, hidden: HiddenFields) -> Iterator[Change]:
        """Changes that take the lists out, or shorten them to the tokens that the client asked for."""
        for path, one in ones(reply):
            meta: Path = (*path, "meta_info")
            if hidden.kept is None:
                yield from (Drop((*meta, name)) for name in ASKED_FOR)
            elif not hidden.kept:
                yield from (Drop((*meta, name)) for name in TOP_LISTS)
            else:
                for name in TOP_LISTS:
                    steps = one["meta_info"].get(name)
                    count = len(steps) if isinstance(steps, list) else 0
                    yield from (Keep((*meta, name, i), range(hidden.kept)) for i in range(count))

    @classmethod
    def withholding(cls, reply: Any, place: Place, text: str) -> Iterator[Change]:
        """Changes that replace the text and take its tokens out."""
        yield Replace((*place.path, "text"), text)
        yield Replace((*place.path, "output_ids"), [])
        yield from (Drop((*place.path, "meta_info", name)) for name in SHOWING)

    @classmethod
    def prompt_tokens(cls, reply: Any) -> int | None:
        """The count in `meta_info.prompt_tokens`."""
        return count_at(reply, "meta_info", "prompt_tokens")

    def whole(self, replies: Sequence[Reply]) -> Iterator[Delta]:
        """The delta of each reply, which is one choice."""
        for position, reply in enumerate(replies):
            meta = as_object(reply.get("meta_info"), "meta_info")
            yield _delta(index_of(reply, "", position), text_or_empty(reply.get("text"), "text"), meta, _lists(meta))

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """The delta of a chunk, whether or not the chunk repeats the text before it."""
        index = index_of(chunk, "")
        meta = as_object(chunk.get("meta_info"), "meta_info")
        seen = self._seen.get(index, _ChunksSoFar())
        now = _ChunksSoFar(text_or_empty(chunk.get("text"), "text"), _lists(meta))
        self._repeats = self._repeats and _begins(now, seen)
        if self._repeats:
            self._seen[index] = now
            text = now.text[len(seen.text) :]
            lists = tuple(None if a is None else a[len(b or ()) :] for a, b in zip(now.lists, seen.lists, strict=True))
        else:
            text, lists = now.text, now.lists
        yield _delta(index, text, meta, lists)


def _begins(now: _ChunksSoFar, before: _ChunksSoFar) -> bool:
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


def _sampling(body: Reply) -> Reply:
    found = body.get("sampling_params")
    return found if isinstance(found, Mapping) else {}


def _place(one: Reply, path: Path, number: int) -> Place:
    index, ended = one.get("index", number), one["meta_info"].get("finish_reason") is not None
    goes_on = not ended and isinstance(one.get("text"), str) and bool(one["text"])
    return Place(index if isinstance(index, int) else None, path, ended, goes_on)
