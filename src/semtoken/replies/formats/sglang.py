"""SGLang's `/generate`: `text` with `meta_info.{output_token_logprobs, output_top_logprobs}`, one or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.core.engine_tokens.spellings import steps_from_triples
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.replies.formats.base import Delta, Engine, Shape
from semtoken.replies.formats.fields import RawReply, index_of, merged
from semtoken.support.untrusted import as_list, as_object, optional, text_or_empty

META = "meta_info"
LISTS = ("output_token_logprobs", "output_top_logprobs")
ASKED_FOR = (*LISTS, "input_token_logprobs", "input_top_logprobs", "output_token_logprobs_length")


class SGLangGenerate(Shape):
    """The shape of SGLang's own `/generate`."""

    name = "generate"
    path = "/generate"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"sglang": "sglang"}
    ask = '"return_logprob": true, "top_logprobs_num": 20'
    one_segment = True
    prompts = ("text", "input_ids")
    limit_at = ("sampling_params", "max_new_tokens")
    temperature_at = ("sampling_params", "temperature")
    top_at = ("top_logprobs_num",)
    switch_at = ("return_logprob",)
    stops_at = tuple(("sampling_params", name) for name in ("stop", "stop_token_ids", "stop_regex"))
    copies_at = ("sampling_params", "n")
    marks = ((META,),)
    texts = {"answer": (("text",),)}  # noqa: RUF012
    numbers_at = tuple((META, name) for name in ASKED_FOR)
    tops_at = ((META, "output_top_logprobs"), (META, "input_top_logprobs"))
    tops_in = ()
    showing = (("output_ids",), (META, "output_token_ids_logprobs"), (META, "hidden_states"))
    end_at = ((META, "finish_reason"),)
    count_at = (META, "completion_tokens")
    read_at = (META, "prompt_tokens")

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, RawReply] = {}
        """The last chunk of each choice."""
        self._repeats = True
        """Chunks repeat what came before, instead of adding to it: a setting of the server."""

    @classmethod
    def asking(cls, body: RawReply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The numbers; the texts of tokens too, if the client does not see them."""
        texts = {"return_text_in_logprobs": True} if cls.requested(body) is None else {}
        return super().asking(body, top) | texts

    def steps(self, choice: RawReply) -> StepList:
        """The triples of the answer."""
        meta = as_object(choice.get(META), META)
        chosen, tops = (meta.get(name, meta.get(name.replace("output", "decode"))) for name in LISTS)  # as of 2024
        return StepList() if chosen is None else steps_from_triples(chosen, tops, META)

    def deltas(self, reply: RawReply, position: int = 0) -> Iterator[Delta]:
        """The delta of a reply or a chunk, whether or not the chunk repeats the text before it."""
        index = index_of(reply, position)
        before, self._seen[index] = self._seen.get(index), reply
        if before is not None:
            # Once a chunk does not begin with the one before, the server sends increments, as it then does to the end.
            self._repeats = self._repeats and _begins(reply, before)
            reply = _behind(reply, before) if self._repeats else reply
        yield from super().deltas(reply, position)


def _lists(chunk: RawReply) -> list[Sequence[Any] | None]:
    meta = as_object(chunk.get(META, {}), META)
    return [optional(as_list, meta.get(name), f"{META}.{name}") for name in LISTS]


def _begins(now: RawReply, before: RawReply) -> bool:
    pairs = zip(_lists(now), _lists(before), strict=True)
    return text_or_empty(now.get("text"), "text").startswith(before.get("text") or "") and all(
        b is None or (a is not None and list(a[: len(b)]) == list(b)) for a, b in pairs
    )


def _behind(now: RawReply, before: RawReply) -> RawReply:
    """The content that a chunk adds to the chunk before, which it repeats."""
    added = {**now, "text": text_or_empty(now.get("text"), "text")[len(before.get("text") or "") :]}
    for name, a, b in zip(LISTS, _lists(now), _lists(before), strict=True):
        added = added if a is None else merged(added, (META, name), a[len(b or ()) :])
    return added
