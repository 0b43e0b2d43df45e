"""The registry of shapes, and finding the shape of a reply or a chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from semtoken.errors import InvalidInputError
from semtoken.replies.formats.base import Engine, Shape
from semtoken.replies.formats.fields import MISSING, RawReply, value_at
from semtoken.replies.formats.llama_cpp import LlamaCppCompletion
from semtoken.replies.formats.ollama import OllamaChat, OllamaGenerate
from semtoken.replies.formats.openai_choices import OpenAIChat, OpenAICompletions
from semtoken.replies.formats.openai_responses import OpenAIResponses
from semtoken.replies.formats.saved_forms import (
    AISDKResult,
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
    Transcription,
    KoboldResults,
)
"""The shapes of this package; `known_shapes()` has those of installed packages, too."""


LOOSE = "This is a part of a reply: save the whole, with its `choices`, or give its items to `score_logprobs`."
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
    return next((shape for shape in known_shapes() if shape.detects(replies)), None)


def is_whole(value: RawReply) -> bool:
    """Return True if it is a reply whose choices have all ended."""
    shape = shape_of([value])
    places = (shape.places(value) if shape is not None else None) or ()
    return bool(places) and all(place.ended for place in places)


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
