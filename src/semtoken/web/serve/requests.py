"""Requests in OpenAI's two forms, checked field by field."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PrivateAttr, Tag, ValidationError
from pydantic_core import from_json

from semtoken.support.questions import question_of
from semtoken.web.block import BlockOptions, read_options
from semtoken.web.wire import ApiError, person_of, place_in

MOST_CHOICES = 16
MOST_STOPS = 16
MOST_MESSAGES = 4096

IGNORED = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
    | {"parallel_tool_calls", "verbosity", "reasoning_effort"}
)
"""Fields of a request that are ignored, since they change no answer of this server."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
}
"""Fields that would change the answer, with the values that do not. All others are rejected, not ignored."""


def _form_of(value: Any) -> str:
    """The form that a prompt is meant to have, so that an error speaks of that one."""
    if not isinstance(value, list):
        return "text"
    first = value[0] if value else ""
    return "tokens" if isinstance(first, int) else "lists of tokens" if isinstance(first, list) else "list"


def _one_or_list(value: Any) -> str:
    return "list" if isinstance(value, list) else "text"


TAGGED = frozenset({"content", "prompt", "stop"})
"""Fields that may have several forms."""
Text: TypeAlias = Annotated[str, Tag("text")]
Stop: TypeAlias = Annotated[
    Text | Annotated[list[str], Field(max_length=MOST_STOPS, fail_fast=True), Tag("list")], Discriminator(_one_or_list)
]
Tokens: TypeAlias = Annotated[list[int], Field(min_length=1, fail_fast=True)]
Prompts: TypeAlias = Annotated[
    Text
    | Annotated[Tokens, Tag("tokens")]
    | Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES, fail_fast=True), Tag("list")]
    | Annotated[list[Tokens], Field(min_length=1, max_length=MOST_CHOICES, fail_fast=True), Tag("lists of tokens")],
    Discriminator(_form_of),
]


class ChatText(BaseModel):
    """A text in a message."""

    type: Literal["text"]
    text: str


class ImageAddress(BaseModel):
    """The address of an image: a data URL, as nothing is fetched."""

    url: str


class ChatImage(BaseModel):
    """An image in a message."""

    type: Literal["image_url"]
    image_url: ImageAddress


ContentPart: TypeAlias = Annotated[ChatText | ChatImage, Field(discriminator="type")]


class Message(BaseModel):
    """A message of a chat, with its role."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: (
        Annotated[Text | Annotated[list[ContentPart], Field(fail_fast=True), Tag("list")], Discriminator(_one_or_list)]
        | None
    ) = None

    @property
    def text(self) -> str:
        """The text of the message, its parts joined; empty if it has none."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content if isinstance(part, ChatText))
        return self.content or ""

    def for_template(self) -> dict[str, Any]:
        """The message as a chat template reads it: its text, or its parts where one of them is an image."""
        parts = self.content if isinstance(self.content, list) else []
        if not any(isinstance(part, ChatImage) for part in parts):
            return {"role": self.role, "content": self.text}
        return {"role": self.role, "content": [part.model_dump() for part in parts]}


class StreamOptions(BaseModel):
    """The field `stream_options` of a request: what a stream holds beside the answer."""

    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = None


class GenerationRequest(BaseModel):
    """The common fields of the two kinds of requests."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: int | None = None
    stop: Stop | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_tokens_as_token_ids: bool = False
    return_token_ids: bool = False
    semtoken: Any = None

    prompt_field: ClassVar[str]
    top_field: ClassVar[str]
    """The field that says how many log-probabilities are shown."""
    usual_tokens: ClassVar[int]
    """The longest answer to a request that names no length."""

    _person: str | None = PrivateAttr(None)

    @property
    def person(self) -> str | None:
        """The tag of a person in the request, by which the journal can find that person's entries."""
        return self._person

    @property
    def limit(self) -> int | None:
        """The largest number of tokens that the request allows for an answer; None if it does not say."""
        return self.max_tokens

    def question(self, choice: int) -> str | None:
        """The question of a choice, where the form of the request shows it; otherwise None."""
        return question_of(self.model_dump(include={self.prompt_field, "n"}), choice)

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer."""
        listed = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in listed if text)

    @property
    def shows_usage(self) -> bool:
        """True if a stream ends with the numbers of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @cached_property
    def block(self) -> BlockOptions:
        """The options of the semtoken blocks."""
        return read_options(self.semtoken)


class ChatRequest(GenerationRequest):
    """The body of POST /v1/chat/completions."""

    prompt_field = "messages"
    top_field = "top_logprobs"
    usual_tokens = 256

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None

    @property
    def limit(self) -> int | None:
        """The largest number of tokens that the request allows for an answer; None if it does not say."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def top(self) -> int | None:
        """Best tokens to show at each step; None: no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(GenerationRequest):
    """The body of POST /v1/completions."""

    prompt_field = "prompt"
    top_field = "logprobs"
    usual_tokens = 16  # as OpenAI has it

    prompt: Prompts
    logprobs: Annotated[int, Field(ge=0)] | None = None

    @property
    def top(self) -> int | None:
        """Best tokens to show at each step; None: no log-probabilities."""
        return self.logprobs

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """One prompt or several, as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt


AnyRequest: TypeAlias = ChatRequest | CompletionRequest


def parse(form: type[AnyRequest], body: bytes) -> AnyRequest:
    """Parse and check the body of a request; `ApiError` (400) names the field that is at fault."""
    try:
        fields = from_json(body.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)  # refuses half characters, too
    except ValueError as error:
        raise ApiError(400, f"The body of the request is not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise ApiError(400, "The body of the request must be a JSON object.")
    # Fields that would change the answer are refused rather than ignored, so that no client takes it for what it asked.
    for name, accepted in NEUTRAL.items():
        if fields.get(name) is not None and fields[name] not in accepted:
            raise ApiError(
                400,
                f"'{name}' is not supported by semtoken serve; leave it out.",
                param=name,
                code="unsupported_parameter",
            )
    try:
        request = form.model_validate({k: v for k, v in fields.items() if k not in IGNORED and k not in NEUTRAL})
    except ValidationError as error:
        raise _explained(error) from error
    request._person = person_of(fields)
    _ = request.block  # read now, so that what is wrong with it is reported before anything is generated
    return request


def _explained(error: ValidationError) -> ApiError:
    """The first thing that is wrong, as OpenAI words it."""
    first = error.errors(include_url=False)[0]
    param, place = str(first["loc"][0]) if first["loc"] else None, place_in(_without_tags(first["loc"]))
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"Unrecognized request argument supplied: {place}", param=param)
    if first["type"] == "missing":
        return ApiError(400, f"Missing required parameter: '{place}'.", param=param, code="missing_required_parameter")
    return ApiError(400, f"Invalid '{place}': {first['msg']}.", param=param, code="invalid_value")


def _without_tags(location: Sequence[str | int]) -> list[str | int]:
    """The place of an error in a request, without the names of forms that pydantic puts behind what may have several:
    `TAGGED` fields, and parts of a message's content.
    """
    place: list[str | int] = []
    parts = iter(location)
    for part in parts:
        of_content = isinstance(part, int) and place[-1:] == ["content"]
        place.append(part)
        if part in TAGGED or of_content:
            next(parts, None)
    return place
