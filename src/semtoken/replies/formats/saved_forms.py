"""Forms in which replies are saved and no server is asked here: Gemini's, those of clients, and of transcriptions.

Gemini's and Vertex AI's `generateContent` has `candidates` with `logprobsResult`, in JSON or as Python's client.
LangChain saves messages, the AI SDK results. Audio transcriptions have `text` with `logprobs`, in chunks typed events;
KoboldCpp has `results`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.choices import SegmentKind
from semtoken.core.engine_tokens.spellings import steps_from_columns, steps_from_dicts, steps_from_items
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.replies.formats.base import Delta, Engine, Shape
from semtoken.replies.formats.fields import RawReply, arguments_as_json, end_in_words, value_at
from semtoken.support.plain_values import json_or_none
from semtoken.support.splice import Path
from semtoken.support.untrusted import as_list, as_object, text_or_empty

META = "response_metadata"
AI = (None, "ai", "AIMessageChunk")
"""Types of messages that a model wrote. Those of others have empty metadata."""


class LangChainMessage(Shape):
    """The shape of LangChain's messages, dumped or serialized (`"lc": 1`)."""

    name = "langchain"
    formats: ClassVar[Mapping[Engine, str]] = {"langchain": "langchain-message"}
    ask = "ChatOpenAI(logprobs=True, top_logprobs=20), or model.bind(logprobs=True, top_logprobs=20)"
    divided = True
    marks = ((META,),)
    texts = {"reasoning": (("additional_kwargs", "reasoning_content"),), "answer": (("content",),)}  # noqa: RUF012
    numbers_at = ((META, "logprobs"), (META, "logprobs_result"))
    end_at = ((META, "finish_reason"),)

    @classmethod
    def choices(cls, reply: Any) -> Sequence[tuple[int, Path, RawReply]]:
        """The message itself, or what is below `kwargs` of a serialized one."""
        below: Path = ("kwargs",) if isinstance(reply.get("kwargs"), Mapping) else ()
        return [(0, below, value_at(reply, below))]

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if the message has metadata of a response."""
        both = (fields for fields in (replies[0], replies[0].get("kwargs")) if isinstance(fields, Mapping))
        return any(fields.get(META) or (META in fields and fields.get("type") in AI) for fields in both)

    @classmethod
    def starts(cls, chunk: RawReply) -> bool:
        """Return True if the chunk has metadata of a response."""
        return cls.detects([chunk])

    @classmethod
    def numbers(cls, choice: RawReply) -> Any:
        """The log-probabilities in the metadata, or in the blocks of the content, as OpenAI's Responses come."""
        if listed := super().numbers(choice):
            return listed
        content = choice.get("content")
        blocks = [value_at(part, ("logprobs",)) for part in (content if isinstance(content, list) else ())]
        return [item for block in blocks if isinstance(block, list) for item in block]

    def steps(self, choice: RawReply) -> StepList:
        """The items, as OpenAI or Gemini gave them; the message names its model."""
        self.note(choice)
        return super().steps(choice)

    def calls(self, choice: RawReply) -> Mapping[int, tuple[str, str]]:
        """The calls of tools."""
        calls: dict[int, tuple[str, str]] = {}
        for i, given in enumerate(as_list(choice.get("tool_calls") or (), "tool_calls")):
            call = as_object(given, f"tool_calls[{i}]")
            calls[i] = str(call.get("name", "")), arguments_as_json(call.get("args", {}), f"tool_calls[{i}].args")
        return calls


class AISDKResult(Shape):
    """The shape of the AI SDK's results, whose names are in camel case."""

    name = "ai-sdk"
    formats: ClassVar[Mapping[Engine, str]] = {"ai-sdk": "ai-sdk"}
    ask = "providerOptions: { openai: { logprobs: 20 } }"
    divided = True
    marks = (("text",), ("finishReason",))
    texts = {"reasoning": (("reasoningText",),), "answer": (("text",),)}  # noqa: RUF012
    numbers_at = (
        ("providerMetadata", "openai", "logprobs"),
        ("providerMetadata", "azure", "logprobs"),
        ("experimental_providerMetadata", "openai", "logprobs"),
        ("logprobs",),
        ("tokenLikelihoods",),
    )
    """The last is that of Oracle's cloud, whose older texts stand beside a `finishReason`, too."""
    end_at = (("finishReason",),)

    @classmethod
    def numbers(cls, choice: RawReply) -> Any:
        """The log-probabilities of the provider; lists for each message that the model wrote are chained."""
        listed = super().numbers(choice)
        if not isinstance(listed, list):
            return listed
        return [item for part in listed for item in (part if isinstance(part, list) else [part])]


ENDS = (None, "STOP", "MAX_TOKENS", "SAFETY", "RECITATION")
"""The reasons of an end by their numbers, as Python's clients may save them."""
AVERAGE = (
    "The reply holds only Gemini's avgLogprobs: an average over the answer, from which no token can be scored. Ask "
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
    def said(cls, choice: RawReply) -> dict[SegmentKind, str]:
        """The parts of the content; those that are thoughts are the reasoning."""
        texts: dict[SegmentKind, str] = {}
        for part in as_list(value_at(choice, ("content", "parts")) or (), "content.parts"):
            kind: SegmentKind = "reasoning" if as_object(part, "content.parts").get("thought") else "answer"
            texts[kind] = texts.get(kind, "") + text_or_empty(part.get("text"), "content.parts.text")
        return {kind: text for kind, text in texts.items() if text}

    @classmethod
    def end_of(cls, choice: RawReply) -> str | None:
        """The reason of the end; enums of Python's client are written with their class."""
        given = either(choice, "finishReason")
        reason = end_in_words(ENDS[given] if type(given) is int and 0 <= given < len(ENDS) else given)
        # `<FinishReason.STOP: 'STOP'>` and `FinishReason.STOP` are the same as "STOP".
        return None if reason is None else reason.partition(":")[0].rpartition(".")[2]

    def steps(self, choice: RawReply) -> StepList:
        """The chosen candidates of each step, with the top candidates."""
        result = either(choice, "logprobsResult")
        chosen = either(result, "chosenCandidates")
        if chosen is None:
            return StepList(fault=AVERAGE if either(choice, "avgLogprobs") is not None else None)
        tops = either(result, "topCandidates") or None
        best = None if tops is None else [value_at(top, ("candidates",)) for top in as_list(tops, "topCandidates")]
        return steps_from_columns(chosen, best, "logprobsResult.chosenCandidates")


class EngineOutput(Shape):
    """The shape of engines' records in Python as JSON, such as vLLM's outputs, and of servers that pass them on."""

    name = "engine-output"
    formats: ClassVar[Mapping[Engine, str]] = {"engine": "engine-output"}
    ask = "SamplingParams(logprobs=20)"
    one_segment = True
    texts = {"answer": (("text",), ("generation",), ("text_output",))}  # noqa: RUF012
    numbers_at = (("logprobs",),)
    end_at = (("finish_reason",), ("stop_reason",))
    numbered = False

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if there is a text with a list of dicts by token id."""
        listed = cls._listed(replies[0])
        first = listed[0] if isinstance(listed, list) and listed else None
        ids = isinstance(first, Mapping) and bool(first) and all(str(key).isdecimal() for key in first)
        return ids and any(isinstance(value_at(replies[0], at), str) for at in cls.texts["answer"])

    @classmethod
    def starts(cls, chunk: RawReply) -> bool:
        """Return False: streams in this shape are not read."""
        return False

    @classmethod
    def _listed(cls, choice: RawReply) -> Any:
        listed = choice.get("logprobs")
        return json_or_none(listed) if isinstance(listed, str) else listed  # Triton gives them as a text

    def steps(self, choice: RawReply) -> StepList:
        """The dicts, by the ids of the written tokens where these are listed."""
        return steps_from_dicts(self._listed(choice), choice.get("token_ids"), "logprobs")


class CohereChat(Shape):
    """The shape of Cohere's chat, also in Oracle's cloud: log-probabilities by groups of tokens that share a text."""

    name = "cohere-chat"
    formats: ClassVar[Mapping[Engine, str]] = {"cohere": "cohere-chat"}
    ask = '"logprobs": true'
    one_segment = True
    texts = {"answer": (("message", "content"),)}  # noqa: RUF012
    numbers_at = (("logprobs",), ("logProbabilities",))
    end_at = (("finish_reason",), ("finishReason",))
    numbered = False

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if a message stands beside groups of tokens."""
        groups = next((value_at(replies[0], (*at, 0)) for at in cls.numbers_at if at[0] in replies[0]), None)
        is_group = isinstance(groups, Mapping) and either(groups, "tokenIds") is not None
        return is_group and isinstance(replies[0].get("message"), Mapping)

    @classmethod
    def starts(cls, chunk: RawReply) -> bool:
        """Return False: streams in this shape are not read."""
        return False

    @classmethod
    def said(cls, choice: RawReply) -> dict[SegmentKind, str]:
        """The text of the message, and the thinking in parts of its own before it."""
        parts = value_at(choice, ("message", "content"))
        thoughts = [value_at(part, ("thinking",)) for part in (parts if isinstance(parts, list) else ())]
        thinking = "".join(thought for thought in thoughts if isinstance(thought, str))
        return super().said(choice) | ({"reasoning": thinking} if thinking else {})

    def steps(self, choice: RawReply) -> StepList:
        """The tokens of all groups; those of a group of several are known by their ids alone."""
        items: list[dict[str, Any]] = []
        for i, group in enumerate(as_list(self.numbers(choice), "logprobs")):
            ids = as_list(either(group, "tokenIds"), f"logprobs[{i}].token_ids")
            given = value_at(group, ("logprobs",)) or either(group, "logProbabilities")
            numbers = as_list([] if given is None else given, f"logprobs[{i}].logprobs")
            if len(ids) != len(numbers):
                return StepList(fault=f"logprobs[{i}] has {len(ids)} token_ids and {len(numbers)} logprobs.")
            text = {"token": value_at(group, ("text",))} if len(ids) == 1 else {}
            items += [{"id": token, "logprob": number, **text} for token, number in zip(ids, numbers, strict=True)]
        return steps_from_items(items, "logprobs")


EVENTS = ("transcript.text.", "conversation.item.input_audio_transcription.")
"""The beginnings of the types of events: of transcriptions, and of what the Realtime API hears."""


class Transcription(Shape):
    """The shape of OpenAI's `/audio/transcriptions`, whose tokens have no alternatives."""

    name = "transcription"
    formats: ClassVar[Mapping[Engine, str]] = {"openai": "openai-transcription"}
    ask = '"include[]": "logprobs", "response_format": "json"'
    is_telling = False
    marks = (("text",), ("logprobs",))
    texts = {"answer": (("text",), ("transcript",))}  # noqa: RUF012
    numbers_at = (("logprobs",),)

    def __init__(self) -> None:
        super().__init__()
        self._has_text = self._has_steps = False
        """True if events have brought any."""

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """True if there is a text with a list of log-probabilities, and nothing of a client's result or an engine's."""
        return super().detects(replies) and not {"finishReason", "token_ids"} & replies[0].keys()

    @classmethod
    def starts(cls, chunk: RawReply) -> bool:
        """Return True if the type of an event is one of a transcript."""
        return str(chunk.get("type", "")).startswith(EVENTS)

    def deltas(self, reply: RawReply, position: int = 0) -> Iterator[Delta]:
        """The content that an event adds; the last event repeats the whole."""
        event = str(reply.get("type", ""))
        if not event.startswith(EVENTS):
            yield from super().deltas(reply, position)
            return
        self.note(reply)
        steps = steps_from_items(reply.get("logprobs") or [], "logprobs")
        if event.endswith(".delta"):
            yield Delta(0, {"answer": str(reply.get("delta", ""))}, steps)
            self._has_text, self._has_steps = True, self._has_steps or bool(steps.steps)
        elif event.endswith((".done", ".completed")):
            # The last event repeats the text, which would then count twice.
            text = {} if self._has_text else self.said(reply)
            yield Delta(0, text, StepList() if self._has_steps else steps, ended=True)


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
