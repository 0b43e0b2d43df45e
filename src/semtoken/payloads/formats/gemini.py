"""Gemini's and Vertex AI's `generateContent`: `candidates` with `logprobsResult`, in JSON or as Python's client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.spellings import steps_from_columns
from semtoken.engine_tokens.top_steps import StepList, as_list, as_object, text_or_empty
from semtoken.payloads.formats.base import Engine, Reply, Shape, end_in_words, value_at

ENDS = (None, "STOP", "MAX_TOKENS", "SAFETY", "RECITATION")
"""The reasons of an end by their numbers, as Python's clients may save them."""
AVERAGE = (
    "The reply holds Gemini's avgLogprobs alone: an average over the answer, from which no token can be scored. Ask "
    'for more: "generationConfig": {"responseLogprobs": true, "logprobs": 5}.'
)


def either(value: Any, name: str) -> Any:
    """A field by its name in JSON, or by that in Python's client."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return value_at(value, (name,)) if value_at(value, (name,)) is not None else value_at(value, (snake,))


class GeminiCandidates(Shape):
    """The shape of Gemini's replies as they are saved."""

    name = "gemini"
    formats: ClassVar[Mapping[Engine, str]] = {"gemini": "gemini"}
    ask = '"generationConfig": {"responseLogprobs": true, "logprobs": 5}'
    divided = True
    stops_at = (("generationConfig", "stopSequences"),)
    choices_at = ("candidates",)
    marks = (("candidates",),)
    texts = {"answer": (("content", "parts", 0, "text"),)}  # noqa: RUF012
    numbers_at = (("logprobsResult",), ("logprobs_result",))

    @classmethod
    def said(cls, choice: Reply) -> dict[SegmentKind, str]:
        """The parts of the content; those that are thoughts are the reasoning."""
        found: dict[SegmentKind, str] = {}
        for part in as_list(value_at(choice, ("content", "parts")) or (), "content.parts"):
            kind: SegmentKind = "reasoning" if as_object(part, "content.parts").get("thought") else "answer"
            found[kind] = found.get(kind, "") + text_or_empty(part.get("text"), "content.parts.text")
        return {kind: text for kind, text in found.items() if text}

    @classmethod
    def end_of(cls, choice: Reply) -> str | None:
        """The reason of the end; enums of Python's client are written with their class."""
        given = either(choice, "finishReason")
        reason = end_in_words(ENDS[given] if type(given) is int and 0 <= given < len(ENDS) else given)
        return None if reason is None else reason.partition(":")[0].rpartition(".")[2]

    def steps(self, choice: Reply) -> StepList:
        """The chosen candidates of each step, with the top candidates."""
        result = either(choice, "logprobsResult")
        chosen = either(result, "chosenCandidates")
        if chosen is None:
            return StepList(fault=AVERAGE if either(choice, "avgLogprobs") is not None else None)
        tops = either(result, "topCandidates") or None
        best = None if tops is None else [value_at(one, ("candidates",)) for one in as_list(tops, "topCandidates")]
        return steps_from_columns(chosen, best, "logprobsResult.chosenCandidates")
