"""TGI's `/generate` and `/generate_stream`: `generated_text` with `details.tokens` and `details.top_tokens`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from semtoken.core.engine_tokens.spellings import steps_from_columns
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.replies.formats.base import Delta, Engine, HiddenFields, Place, Shape
from semtoken.replies.formats.fields import RawReply, value_at
from semtoken.support.splice import Change, Drop, Keep, Path
from semtoken.support.untrusted import as_object


class TGIGenerate(Shape):
    """The shape of Text Generation Inference; SageMaker wraps it in a list."""

    name = "tgi"
    path = "/generate"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"tgi": "tgi"}
    ask = '"parameters": {"details": true, "top_n_tokens": 5}'
    ends = ("eos_token", "length")
    one_segment = True
    prompts = ("inputs",)
    limit_at = ("parameters", "max_new_tokens")
    temperature_at = ("parameters", "temperature")
    top_at = ("parameters", "top_n_tokens")
    switch_at = ("parameters", "details")
    stops_at = (("parameters", "stop"),)
    marks = (("generated_text",),)
    chunk_marks = (("token", "logprob"),)
    texts = {"answer": (("generated_text",),)}  # noqa: RUF012
    numbers_at = (("details",),)
    tops_at = (("details", "top_tokens"),)
    tops_in = ()
    end_at = (("details", "finish_reason"), ("stop_reason",))
    """The second is watsonx.ai's."""
    done_at = ("generated_text",)
    count_at = ("details", "generated_tokens")

    @classmethod
    def _place(cls, path: Path, choice: RawReply, number: int) -> Place:
        ended = cls.is_ended(choice)  # `index` counts tokens
        return Place(number, path, ended, goes_on=not ended)

    @classmethod
    def hiding(cls, reply: Any, hidden: HiddenFields) -> Iterator[Change]:
        """Changes that take out the details, or shorten the lists of best tokens."""
        yield from super().hiding(reply, hidden)
        if isinstance(reply, Mapping) and "token" in reply:
            yield Keep(("top_tokens",), range(hidden.kept)) if hidden.kept else Drop(("top_tokens",))

    def steps(self, choice: RawReply) -> StepList:
        """The tokens of the details, with their best ones."""
        tokens = value_at(choice, ("details", "tokens"), choice.get("generated_tokens"))  # watsonx.ai has them outside
        tops = value_at(choice, ("details", "top_tokens")) or None
        return StepList() if tokens is None else steps_from_columns(tokens, tops, "details.tokens")

    def deltas(self, reply: RawReply, position: int = 0) -> Iterator[Delta]:
        """The answer of a reply, or the token of an event."""
        if "token" not in reply:
            yield from super().deltas({**reply, "index": position}, position)
            return
        token = as_object(reply["token"], "token")
        # A terminator is a token, and no part of the text.
        text = "" if token.get("special") else str(token.get("text", ""))
        steps = steps_from_columns([token], [reply.get("top_tokens")], "token")
        end = self.end_of(reply)
        yield Delta(0, {"answer": text} if text else {}, steps, finish_reason=end, ended=self.is_ended(reply))


class TGIStream(TGIGenerate):
    """The shape of Text Generation Inference at the path of its streams."""

    name = "tgi-stream"
    path = "/generate_stream"
    formats: ClassVar[Mapping[Engine, str]] = {"tgi": "tgi-stream"}

    @classmethod
    def streams(cls, body: RawReply) -> bool:
        """Return True if a request asks for a stream: at this path always."""
        return True
