"""Audio transcriptions: `text` with `logprobs`; in chunks typed events. And KoboldCpp's `results`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from semtoken.engine_tokens.spellings import steps_from_items
from semtoken.engine_tokens.top_steps import StepList
from semtoken.payloads.formats.base import Delta, Engine, Reply, Shape
from semtoken.payloads.formats.openai_choices import steps_of_logprobs

EVENTS = "transcript.text."


class Transcription(Shape):
    """The shape of OpenAI's `/audio/transcriptions`, whose tokens have no alternatives."""

    name = "transcription"
    formats: ClassVar[Mapping[Engine, str]] = {"openai": "openai-transcription"}
    ask = '"include[]": "logprobs", "response_format": "json"'
    marks = (("text",), ("logprobs",))
    texts = {"answer": (("text",),)}  # noqa: RUF012
    numbers_at = (("logprobs",),)

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """Whether there is a text with a list of log-probabilities, and nothing of a client's result or an engine's."""
        return super().detects(replies) and not {"finishReason", "token_ids"} & replies[0].keys()

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """Whether the type of an event is one of a transcript."""
        return str(chunk.get("type", "")).startswith(EVENTS)

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """What an event adds; the last one repeats the whole."""
        self.note_reply(chunk)
        steps = steps_from_items(chunk.get("logprobs") or [], "logprobs")
        if chunk.get("type") == f"{EVENTS}delta":
            yield Delta(0, {"answer": str(chunk.get("delta", ""))}, steps)
        elif chunk.get("type") == f"{EVENTS}done":
            known = self.sums[0] if self.sums else None
            text = {} if known is not None and known.texts else self.said(chunk)
            yield Delta(0, text, StepList() if known is not None and known.steps else steps, ended=True)


class KoboldResults(Shape):
    """The shape of KoboldCpp's own replies as they are saved."""

    name = "kobold"
    formats: ClassVar[Mapping[Engine, str]] = {"koboldcpp": "koboldcpp"}
    ask = '"logprobs": true'
    one_segment = True
    choices_at = ("results",)
    marks = (("results", 0, "text"),)
    texts = {"answer": (("text",),)}  # noqa: RUF012
    numbers_at = (("logprobs",),)
    count_at = ("completion_tokens",)

    def steps(self, choice: Reply) -> StepList:
        """Items of a chat, or the lists of legacy completions."""
        return steps_of_logprobs(choice.get("logprobs") or {}, "logprobs")
