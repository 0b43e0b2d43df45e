"""The registry of shapes, and finding the shape of a reply or a chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.replies.formats.base import Engine, Shape
from semtoken.replies.formats.fields import MISSING, RawReply, dotted, value_at
from semtoken.replies.formats.llama_cpp import LlamaCppCompletion
from semtoken.replies.formats.ollama import OllamaChat, OllamaGenerate
from semtoken.replies.formats.openai_choices import OpenAIChat, OpenAICompletions
from semtoken.replies.formats.openai_responses import OpenAIResponses
from semtoken.replies.formats.saved_forms import EVENTS as TRANSCRIPTS
from semtoken.replies.formats.saved_forms import (
    AISDKResult,
    CohereChat,
    EngineOutput,
    GeminiCandidates,
    KoboldResults,
    LangChainMessage,
    Transcription,
)
from semtoken.replies.formats.sglang import SGLangGenerate
from semtoken.replies.formats.tgi import TGIGenerate, TGIStream
from semtoken.support.extras import REPLY_SHAPES, installed
from semtoken.support.inputs import text
from semtoken.support.splice import Path

SHAPES: tuple[type[Shape], ...] = (
    OpenAIChat,
    OpenAICompletions,
    OpenAIResponses,
    SGLangGenerate,
    LlamaCppCompletion,
    OllamaChat,
    OllamaGenerate,
    TGIGenerate,
    TGIStream,
    GeminiCandidates,
    LangChainMessage,
    AISDKResult,
    EngineOutput,
    CohereChat,
    Transcription,
    KoboldResults,
)
"""The shapes of this package; `known_shapes()` has those of installed packages, too."""


LOOSE = (
    "This is a part of a reply, or no text beside the tokens is what they spell: save the whole, with its `choices`, "
    "or give its items to `score_logprobs`."
)
OBJECT = (
    "This is an object of an engine in Python (vLLM, lmdeploy): give its `logprobs` to `score_logprobs` where it "
    "is made, or save the replies of the engine's server."
)
LLAMA_INDEX = (
    "This is LlamaIndex's form, which lists the best tokens of each step and not which of them were written: save "
    "`response.raw` too, which holds the reply of the server."
)
COHERE = (
    "This is Cohere's form, whose log-probabilities are of groups of tokens. Ask through its compatible API, which "
    "answers in OpenAI's."
)
FOREIGN: Mapping[Path, str] = {
    ("logprobs", "content"): LOOSE,
    ("logprobs", 0, "logprob"): LOOSE,
    ("content", 0, "logprob"): LOOSE,
    ("logprob",): LOOSE,
    ("outputs", 0, "token_ids"): OBJECT,
    ("token_ids",): OBJECT,
    ("choices", 0, "token_ids"): "This is the form of vLLM's /inference/v1/generate, which holds ids of tokens and no "
    "text: ask /v1/chat/completions or /v1/completions.",
    ("promptFeedback",): "Gemini declined the prompt: there is no answer to score.",
    ("logprobs", 0, 0, "logprob"): LLAMA_INDEX,
    ("completion_message",): "This is Llama Stack's form, which lists numbers by token under `logprobs_by_token`: ask "
    "its endpoint that is compatible with OpenAI's.",
    ("resps",): "This is a sample of lm-eval (EleutherAI's harness): it holds sums of given options and no tokens.",
    ("attributes", "gen_ai.system"): "This is an event of OpenTelemetry, which has no log-probabilities.",
    ("segments", 0, "avg_logprob"): "These are Whisper's averages of segments, from which no token can be scored. "
    'Ask gpt-4o-transcribe for "include[]": "logprobs", with "response_format": "json".',
    ("stop_sequence",): "This is Anthropic's form, which has no log-probabilities: ask a model elsewhere for them.",
    ("text_output",): "This is Triton's own form, whose numbers name no tokens: ask its OpenAI frontend.",
    ("logprobs", 0, "token_ids"): COHERE,
    ("message", "content", 0, "text"): COHERE,
    ("generations",): "This is LangChain's LLMResult without messages: save the message, "
    "`result.generations[0][0].message`.",
    ("data", 0, "embedding"): "These are embeddings, which have no log-probabilities.",
    ("results", 0, "category_scores"): "This is a moderation, whose scores are of categories and no tokens.",
    ("output_file_id",): "This is the state of a batch, not its output: download the file that `output_file_id` names.",
    ("stopReason",): "This is the form of Bedrock's Converse, which has no log-probabilities.",
    ("nbformat",): "This is a notebook, and no cell prints a reply as JSON: print `reply.model_dump_json()`.",
    ("logprobs", 0): "Its `logprobs` do not name their tokens, or have no form that is known: save the server's reply.",
    ("results", "results", 0, "response", "logProbs"): "promptfoo keeps the numbers without their tokens: save `raw`.",
    ("detail",): "This is a server's report of an error, not a reply: see its 'detail'.",
}
"""Advice on values that are no replies, by a place that they have: their nature, and what to ask for instead."""


@dataclass(frozen=True)
class Format:
    """A shape together with the engine that uses it."""

    name: str
    """The name of the format, as `score_reply(format=...)` takes it."""
    shape: type[Shape]
    """The shape of its replies."""
    engine: Engine
    """The engine that gives them."""


@cache
def known_shapes() -> tuple[type[Shape], ...]:
    """All shapes, those of this package first. No reply has two of them, and `semtoken doctor` asks in this order.

    Packages are loaded by the first call, not by an import: a package may import this module while it is loaded.
    """
    return (*SHAPES, *installed(REPLY_SHAPES).values())


@cache
def served_shapes() -> tuple[type[Shape], ...]:
    """The shapes in which servers answer at a path; the others are forms in which replies are saved."""
    return tuple(shape for shape in known_shapes() if shape.path)


@cache
def known_formats() -> Mapping[str, Format]:
    """Name of a format -> the shape together with the engine that uses it."""
    formats = (Format(name, shape, engine) for shape in known_shapes() for engine, name in shape.formats.items())
    return MappingProxyType({known.name: known for known in formats})


def format_named(name: str) -> Format:
    """The format with this name; `InvalidInputError` if there is none."""
    if not isinstance(name, str) or name not in known_formats():
        raise InvalidInputError(f"There is no format {name!r}. Use one of: {', '.join(known_formats())}.")
    return known_formats()[name]


def shape_at(path: str) -> type[Shape] | None:
    """The shape in which servers answer at a path; None if there is none.

    >>> shape_at("/openai/deployments/x/chat/completions"), shape_at("/v1/embeddings")
    (<class 'semtoken.replies.formats.openai_choices.OpenAIChat'>, None)
    """
    return next(iter(shapes_at(path)), None)


def shapes_at(path: str) -> list[type[Shape]]:
    """The shapes in which servers answer at a path; where there are several, the request decides."""
    shapes = [shape for shape in served_shapes() if text(path, "path").endswith(shape.path)]
    longest = max((len(shape.path) for shape in shapes), default=0)
    return [shape for shape in shapes if len(shape.path) == longest]


def shape_of_reply(replies: Sequence[RawReply]) -> type[Shape]:
    """The shape of a whole reply (several: a batch), by its fields; `InvalidInputError` if it has none of the known
    ones.
    """
    shape = shape_of(replies)
    if shape is None:
        raise _unknown("reply", replies[0])
    return shape


def shape_of(replies: Sequence[RawReply]) -> type[Shape] | None:
    """The shape of a whole reply (several: a batch), by its fields; None if it has none of the known ones."""
    for shape in known_shapes():
        if shape.detects(replies):
            return shape
    return None


def is_whole(value: RawReply) -> bool:
    """Return True if it is a reply whose choices have all ended."""
    shape = shape_of([value])
    places = (shape.places(value) if shape is not None else None) or ()
    return bool(places) and all(place.ended for place in places)


EVENT_STREAMS = ("response.", *TRANSCRIPTS)
"""Beginnings of the types of events that are chunks of a stream."""
STREAM_ENDS = (
    *(f"response.{end}" for end in ("completed", "incomplete", "failed")),
    *(f"{begin}{end}" for begin in TRANSCRIPTS for end in ("done", "completed")),
)
"""Types of the events that end a stream."""
CHUNK_MARKS: Mapping[Path, Path] = {
    ("token", "logprob"): (),
    ("meta_info", "id"): ("meta_info", "id"),
    ("candidates", 0, "content"): ("responseId",),
}
"""A place that chunks of an engine's own streams have, and that of the name which all chunks of a stream share."""


LANGCHAIN = "AIMessageChunk"
"""The type of LangChain's chunks, and of the sum of all of them."""
LEGACY = "text_completion"
ENDLESS = (LANGCHAIN, LEGACY, "responseId")
"""Kinds of streams in which a chunk may be a whole reply, though it does not say why it ended."""


def stream_of(value: RawReply) -> tuple[str, Any] | None:
    """The name that all chunks of a stream share, for a value that may be one of them; None for any other.

    The last chunk of some streams has the form of a whole reply (`ends_stream`): it belongs to those before it.
    """
    kind, named = value.get("type"), value.get("object")
    if isinstance(kind, str) and kind.startswith(EVENT_STREAMS):
        return "type", kind.partition(".")[0]
    # Chunks of legacy completions are named as whole replies, which have the reason of their end.
    if named == LEGACY and value_at(value, ("choices", 0, "finish_reason"), MISSING) is not MISSING:
        return LEGACY, value.get("id")
    if str(named).endswith(".chunk"):
        return "id", value.get("id")
    if kind == LANGCHAIN:
        return LANGCHAIN, value.get("id")
    if isinstance(value.get("done"), bool) and not {"message", "response"}.isdisjoint(value):  # Ollama's
        return "done", value.get("model")
    if isinstance(value.get("stop"), bool) and isinstance(value.get("content"), str):  # llama.cpp's
        return "stop", value.get("id_slot", 0)
    own = (one for one in CHUNK_MARKS.items() if one[0][0] in value)  # mostly the first name decides
    found = (at for mark, at in own if value_at(value, mark, MISSING) is not MISSING)
    return next(((dotted(at), value_at(value, at) if at else 0) for at in found), None)


def is_chunk(value: Any) -> bool:
    """Return True if a value is a chunk of a stream, and no whole reply."""
    return isinstance(value, Mapping) and stream_of(value) is not None and (_is_event(value) or not is_whole(value))


def is_surely_streamed(value: RawReply) -> bool:
    """Return True if a value belongs to a stream even where it stands alone, since its kind is never a whole reply."""
    shared = stream_of(value)
    return shared is not None and shared[0] not in ENDLESS


def is_stream(chunks: Sequence[Any]) -> bool:
    """Return True if values that follow each other are the chunks of a stream rather than one reply."""
    shared = stream_of(chunks[0]) if is_chunk(chunks[0]) else None
    return shared is not None and (len(chunks) > 1 or shared[0] not in ENDLESS)


def ends_stream(value: RawReply) -> bool:
    """Return True if a chunk is the last one of its stream, or of each choice that it holds."""
    return value.get("type") in STREAM_ENDS if _is_event(value) else is_whole(value)


def begins_another(chunk: RawReply, first: RawReply, last: RawReply, ended: Set[str]) -> bool:
    """Return True if a chunk belongs to another stream than those before it, of which the first and the last are given.

    `ended` are their choices that have ended: some servers give all streams one id.
    """
    shared = stream_of(first)
    if shared is None:
        return True
    if chunk.get("choices") == [] and "choices" in last:  # the usage, under whatever id
        return False
    if stream_of(chunk) != shared or not ended.isdisjoint(choices_of(chunk)):
        return True
    if "choices" in chunk or not ends_stream(last):
        return False
    # After the end of the answer chunks may come that add nothing to it, such as the one with the usage.
    return _is_event(chunk) or _writes(chunk) or ends_stream(chunk)


def choices_of(chunk: RawReply, *, ended: bool = False) -> set[str]:
    """The indexes of the choices of a chunk, or of those that end with it."""
    choices = chunk.get("choices")
    listed = [choice for choice in (choices if isinstance(choices, list) else ()) if isinstance(choice, Mapping)]
    return {str(choice.get("index")) for choice in listed if not ended or choice.get("finish_reason")}


def _is_event(value: RawReply) -> bool:
    return str(value.get("type")).startswith(EVENT_STREAMS)


def _writes(value: RawReply) -> bool:
    """Return True if a chunk has text of an answer."""
    shape = next((shape for shape in known_shapes() if shape.starts(value)), None)
    return shape is not None and any(place.goes_on for place in shape.places(value) or ())


def foreign(value: RawReply) -> str:
    """Advice on a value that is no reply: its nature, and what to ask for instead; empty if it is not known."""
    return next((advice for path, advice in FOREIGN.items() if value_at(value, path, MISSING) is not MISSING), "")


def _unknown(what: str, value: RawReply) -> InvalidInputError:
    if what != "reply" and shape_of([value]) is not None:
        return InvalidInputError("These are several whole replies, not chunks of a stream: score them one by one.")
    return InvalidInputError(
        foreign(value)
        or f"This is no {what} that semtoken understands: its fields are {', '.join(map(repr, value)) or 'none'}. "
        f"Understood are replies and streams of: {', '.join(known_formats())}."
    )


def shape_of_chunk(chunk: RawReply) -> type[Shape] | None:
    """The shape of a stream by a chunk; None if that could come in any, `InvalidInputError` if it has none that is
    known.
    """
    for shape in known_shapes():
        if shape.starts(chunk):
            return shape
    if chunk.get("choices") in ([], ()):
        return None
    raise _unknown("chunk of a stream", chunk)
