"""`POST /v1/decisions`: a list of questions about an input, as in the openai package (3.54)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from semtoken.decisions.answers import Answer
from semtoken.decisions.questions import Choice, Option, Predicate, Question, Score, as_text
from semtoken.decisions.wire.extension import (
    RequestForm,
    StrictForm,
    WireError,
    WireRequest,
    named,
    parsed,
    validated,
)
from semtoken.errors import InvalidInputError
from semtoken.support.extras import require
from semtoken.support.files.strict_json import dump_json
from semtoken.support.plain_values import json_or_none

require("pydantic", extra="serve")

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, TypeAdapter  # noqa: E402

MOST_QUESTIONS = 400
MOST_ITEMS = 4096
NO_IMAGES = "This server reads text only: leave images out."


class _Loose(BaseModel):
    """Further fields, such as breakpoints of a prompt cache, change nothing here."""

    model_config = ConfigDict(extra="ignore", strict=True)


class TextPart(_Loose):
    """A part of a message that is text."""

    type: Literal["input_text", "output_text"]
    text: str


class RefusalPart(_Loose):
    """A part of an assistant's message that declines to answer."""

    type: Literal["refusal"]
    text: str = Field(alias="refusal")


class JsonPart(_Loose):
    """A JSON object, or a list of them."""

    type: Literal["input_json"]
    text: dict[str, Any] | list[dict[str, Any]] = Field(alias="data")


class ImagePart(_Loose):
    """An image, which this server refuses, since it reads text only."""

    type: Literal["input_image"]


Part: TypeAlias = Annotated[TextPart | RefusalPart | JsonPart | ImagePart, Field(discriminator="type")]
TextOrParts: TypeAlias = str | Annotated[list[Part], Field(max_length=MOST_ITEMS)]


def _text(parts: str | list[Part]) -> str:
    """The text that the model reads, from a text or its parts; `InvalidInputError` if a part is an image."""
    if isinstance(parts, str):
        return parts
    texts = []
    for part in parts:
        if isinstance(part, ImagePart):
            raise InvalidInputError(NO_IMAGES)
        texts.append(part.text if isinstance(part.text, str) else as_text(part.text))
    return "\n".join(texts)


class InputMessage(_Loose):
    """A message of the user, the assistant, the system or the developer."""

    type: Literal["message"] = "message"
    role: Literal["user", "developer", "system", "assistant"]
    content: TextOrParts


class FunctionCall(_Loose):
    """A call of a function: its arguments are JSON in a text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class CustomToolCall(_Loose):
    """A call of a custom tool."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class ToolOutput(_Loose):
    """The result of a call of a tool."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: TextOrParts


Item: TypeAlias = InputMessage | FunctionCall | CustomToolCall | ToolOutput
_ITEM: TypeAdapter[Item] = TypeAdapter(Annotated[Item, Field(discriminator="type")])


def _as_read(item: Item) -> dict[str, Any]:
    """The item as the model reads it."""
    if isinstance(item, InputMessage):
        return {"role": item.role, "content": _text(item.content)}
    if isinstance(item, ToolOutput):
        return {"type": item.type, "call_id": item.call_id, "output": _text(item.output)}
    written = item.model_dump()
    name = "arguments" if isinstance(item, FunctionCall) else "input"
    return {**written, name: _as_json(written[name])}


class PredicateForm(StrictForm):
    """A question with the answer yes or no."""

    type: Literal["predicate"]
    instructions: TextOrParts
    name: str | None = None


class ChoiceValue(StrictForm):
    """An option: a text, or true or false."""

    value: StrictStr | StrictBool
    description: str | None = None


class ChoiceForm(StrictForm):
    """A question with the answer that is one of several options."""

    type: Literal["choice"]
    instructions: TextOrParts
    choices: list[ChoiceValue] = Field(min_length=2, max_length=255)
    name: str | None = None


class ScoreLevel(StrictForm):
    """One level of a score; levels are listed from the lowest to the highest."""

    label: str
    description: str | None = None


class ScoreForm(StrictForm):
    """A question with the answer that is one of several ordered levels."""

    type: Literal["score"]
    instructions: TextOrParts
    levels: list[ScoreLevel] = Field(min_length=2, max_length=10)
    name: str | None = None


QuestionForm: TypeAlias = Annotated[PredicateForm | ChoiceForm | ScoreForm, Field(discriminator="type")]
_QUESTION: TypeAdapter[Any] = TypeAdapter(QuestionForm)


class DecisionsRequest(RequestForm):
    """The body of a request to `/v1/decisions`: the state, and the questions about it."""

    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_ITEMS)]
    questions: list[QuestionForm] = Field(min_length=1, max_length=MOST_QUESTIONS)
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    def asked(self) -> list[Question]:
        """The questions, with their names where they have any."""
        return [_question(form, "questions", number) for number, form in enumerate(self.questions)]

    def about(self) -> str:
        """The input as the model reads it: a text as it is, one message of the user as its text, all else as JSON.

        JSON keeps the items apart whatever their texts hold.
        """
        if isinstance(self.input, str):
            return as_text(self.input)
        items: list[Item] = []
        for number, given_item in enumerate(self.input):
            # The type of a message may be left out, and pydantic needs one to choose among the items.
            typed = {"type": "message", **given_item} if isinstance(given_item, Mapping) else given_item
            items.append(validated(_ITEM.validate_python, typed, ("input", number)))
        _check_calls(items)
        if len(items) == 1 and isinstance(items[0], InputMessage) and items[0].role == "user":
            return as_text(_text(items[0].content))
        return as_text([_as_read(item) for item in items])


def parse(data: bytes | Mapping[str, Any]) -> WireRequest:
    """Parse and check a request in OpenAI's format.

    `WireError` if the body does not have it, `InvalidInputError` if it holds images, which this server does not read.
    """
    return parsed(data, DecisionsRequest)


def read_question(given: Mapping[str, Any], name: str | None = None) -> Question:
    """Make one question from its dictionary, `{"type": "predicate", "instructions": ...}`; raises `WireError`."""
    question = {"name": name, **given} if name is not None else given
    return _question(validated(_QUESTION.validate_python, question))


def with_listed_options(question: Mapping[str, Any]) -> dict[str, Any]:
    """A question whose options stand as OpenAI lists them.

    Written by hand, choices and levels may be their values alone, or a table of values with descriptions.

    >>> with_listed_options({"choices": {"calm": None, "angry": "Upset."}})["choices"]
    [{'value': 'calm', 'description': None}, {'value': 'angry', 'description': 'Upset.'}]
    """
    listed: dict[str, Any] = {}
    for options, value in (("choices", "value"), ("levels", "label")):
        given = question.get(options)
        if isinstance(given, Mapping):
            listed[options] = [{value: name, "description": text} for name, text in given.items()]
        elif isinstance(given, list | tuple):
            listed[options] = [option if isinstance(option, Mapping) else {value: option} for option in given]
    return {**question, **listed}


def _question(form: PredicateForm | ChoiceForm | ScoreForm, *place: str | int) -> Question:
    instructions = _text(form.instructions)  # an image in it is no fault of the question's form
    with named(*place):
        match form:
            case PredicateForm():
                return Predicate(instructions, name=form.name)
            case ChoiceForm():
                options = [Option(one.value, as_text(one.value), one.description or "") for one in form.choices]
                return Choice(instructions, options, form.name)
            case ScoreForm():
                levels = [Option(number, one.label, one.description or "") for number, one in enumerate(form.levels)]
                return Score(instructions, levels, form.name)


def _check_calls(items: Sequence[Item]) -> None:
    """An output must name a call that came before it, of its own kind."""
    calls: set[tuple[str, str]] = set()
    for number, item in enumerate(items):
        if isinstance(item, FunctionCall | CustomToolCall):
            calls.add((f"{item.type}_output", item.call_id))
        elif isinstance(item, ToolOutput) and (item.type, item.call_id) not in calls:
            raise WireError(f"No call before has the call_id {item.call_id!r:.60}.", ("input", number, "call_id"))


def _as_json(text: str) -> Any:
    """Arguments of a call as the JSON that they are, so that they are not escaped twice."""
    arguments = json_or_none(text)
    return arguments if isinstance(arguments, dict) else text


def reply(model: str, answers: Any, input_tokens: int) -> dict[str, Any]:
    """The reply in OpenAI's format with some answers."""
    usage = {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens,
    }
    return {"model": model, "answers": answers, "usage": usage}


def written_answer(answer: Answer) -> dict[str, Any]:
    """One answer in OpenAI's format, without the key `semtoken`."""
    name = answer.question.name
    if answer.refusal is not None:
        return {"type": "refusal", "name": name}
    options, probabilities = answer.question.options, answer.probabilities
    if answer.question.kind == "predicate":
        return {"type": "predicate", "name": name, "probability": answer.probability}
    if answer.question.kind == "choice":
        listed = [{"value": o.value, "probability": p} for o, p in zip(options, probabilities, strict=True)]
        chosen: dict[str, Any] = {"choice": answer.value}
    else:
        pairs = enumerate(zip(options, probabilities, strict=True))
        listed = [{"value": i, "label": option.name, "probability": p} for i, (option, p) in pairs]
        chosen = {"score": answer.score}
    confidence = answer.confidence
    return {"type": answer.question.kind, "name": name, **chosen, "confidence": confidence, "probabilities": listed}


def read_answer(question: Question, given: Any) -> tuple[float, ...] | None:
    """The probabilities of one answer of another server, None for a refusal: what `answers_in` calls."""
    if given["type"] == "refusal":
        return None
    if given["type"] != question.kind:
        raise ValueError(given["type"])
    if question.kind == "predicate":
        p = float(given["probability"])
        return p, 1.0 - p
    # With the type, since true and 1 are one key of a dictionary.
    listed = {(type(entry["value"]), entry["value"]): float(entry["probability"]) for entry in given["probabilities"]}
    return tuple(listed[type(option.value), option.value] for option in question.options)


def body(state: Any, questions: Mapping[str, Question]) -> dict[str, Any]:
    """A request in OpenAI's format, without the model's name."""
    asked = [written_question(question, name) for name, question in questions.items()]
    return {"input": state if isinstance(state, str) else dump_json(state).decode(), "questions": asked}


def written_question(question: Question, name: str) -> dict[str, Any]:
    """One question in OpenAI's format."""
    if question.kind == "predicate":
        yes, no = question.options
        # This format has no place for when the answer is yes or no, so that follows the instructions.
        described = [f"{option.name}: {option.description}" for option in (yes, no) if option.description]
        text = "\n".join([question.instructions, *described])
        return {"type": "predicate", "instructions": text, "name": name}
    common = {"type": question.kind, "instructions": question.instructions, "name": name}
    described_options = [
        {"description": option.description} if option.description else {} for option in question.options
    ]
    pairs = zip(question.options, described_options, strict=True)
    if question.kind == "choice":
        return {**common, "choices": [{"value": option.value, **more} for option, more in pairs]}
    return {**common, "levels": [{"label": option.name, **more} for option, more in pairs]}
