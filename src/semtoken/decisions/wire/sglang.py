"""`POST /v1/decisions` as SGLang has it: questions with an id, answers by that id, yes or no as `yes_no`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from semtoken.decisions.answers import Answer
from semtoken.decisions.questions import Choice, Option, Predicate, Question, Score, as_text
from semtoken.decisions.wire.extension import (
    RequestForm,
    StrictForm,
    WireError,
    WireRequest,
    named,
    option_keys,
    parsed,
)
from semtoken.support.extras import require

require("pydantic", extra="serve")

from pydantic import Field  # noqa: E402

MOST_QUESTIONS = 400
Content: TypeAlias = str | dict[str, Any] | list[Any]


class SGLangOption(StrictForm):
    """An option of a choice."""

    name: str
    description: Content | None = None


class SGLangChoice(StrictForm):
    """A question with the answer that is one of several options."""

    id: str
    type: Literal["choice"]
    question: Content
    options: list[SGLangOption] = Field(min_length=2, max_length=255)


class SGLangScore(StrictForm):
    """A question with the answer that is one of several levels."""

    id: str
    type: Literal["score"]
    question: Content
    levels: list[Content] = Field(min_length=2, max_length=10)


class SGLangYesNo(StrictForm):
    """A question with the answer yes or no."""

    id: str
    type: Literal["yes_no"]
    question: Content
    yes: Content | None = None
    no: Content | None = None


Form: TypeAlias = SGLangChoice | SGLangScore | SGLangYesNo


class SGLangRequest(RequestForm):
    """The body of a request; how the chat template is filled is up to the server behind."""

    input: Content
    questions: list[Annotated[Form, Field(discriminator="type")]] = Field(min_length=1, max_length=MOST_QUESTIONS)
    prompt_format_version: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_prompt_token_ids: bool | None = None

    def asked(self) -> list[Question]:
        """The questions, named by their ids; `WireError` if two have the same."""
        if len({form.id for form in self.questions}) < len(self.questions):
            raise WireError("Two questions have the same id.", ("questions",))
        questions = []
        for number, form in enumerate(self.questions):
            text = as_text(form.question)
            with named("questions", number):
                questions.append(_question(form, text))
        return questions

    def about(self) -> str:
        """The input as the model reads it."""
        return as_text(self.input)


def _question(form: Form, text: str) -> Question:
    match form:
        case SGLangYesNo():
            return Predicate(text, as_text(form.yes), as_text(form.no), form.id)
        case SGLangChoice():
            options = [Option(option.name, option.name, as_text(option.description)) for option in form.options]
            return Choice(text, options, form.id)
        case SGLangScore():
            return Score(text, [Option(number, as_text(level)) for number, level in enumerate(form.levels)], form.id)


def is_meant(body: Any) -> bool:
    """Return True if the body of a request to `/v1/decisions` is in SGLang's shape: its questions have ids."""
    questions = body.get("questions") if isinstance(body, Mapping) else None
    first = questions[0] if isinstance(questions, list) and questions else None
    return isinstance(first, Mapping) and "instructions" not in first and ("id" in first or "question" in first)


def parse(data: bytes | Mapping[str, Any]) -> WireRequest:
    """Parse and check a request in SGLang's shape; `WireError` if it is in another, or two questions have one id."""
    return parsed(data, SGLangRequest)


def reply(model: str, answers: Any, input_tokens: int) -> dict[str, Any]:
    """The reply in SGLang's shape with some answers."""
    usage = {"prompt_tokens": input_tokens, "completion_tokens": 0, "total_tokens": input_tokens}
    return {"object": "decisions", "model": model, "prompt_format_version": 1, "answers": answers, "usage": usage}


def written_answer(answer: Answer) -> dict[str, Any]:
    """One answer in SGLang's shape, without the key `semtoken`."""
    written: dict[str, Any] = {
        "type": _kind(answer.question),
        "probabilities": dict(zip(_keys(answer.question), answer.probabilities, strict=True)),
    }
    if answer.option_mass is not None:
        written["label_mass"] = answer.option_mass
    if answer.question.kind == "choice":
        return {**written, "choice": answer.question.options[answer.best].name}
    return {**written, "score": answer.score} if answer.question.kind == "score" else written


def read_answer(question: Question, given: Any) -> tuple[float, ...]:
    """The probabilities of one answer of another server: what `answers_in` calls."""
    if given["type"] != _kind(question):
        raise ValueError(given["type"])
    return tuple(float(given["probabilities"][key]) for key in _keys(question))


def body(state: Any, questions: Mapping[str, Question]) -> dict[str, Any]:
    """A request in SGLang's shape, without the model's name."""
    return {"input": state, "questions": [written_question(question, name) for name, question in questions.items()]}


def written_question(question: Question, name: str) -> dict[str, Any]:
    """One question in SGLang's shape; values of a choice that are no texts are written as texts."""
    common: dict[str, Any] = {"id": name, "type": _kind(question), "question": question.instructions}
    described = [option.description or None for option in question.options]
    if question.kind == "predicate":
        given = zip(("yes", "no"), described, strict=True)
        return {**common, **{key: text for key, text in given if text is not None}}
    if question.kind == "choice":
        pairs = zip(option_keys(question), described, strict=True)
        return {**common, "options": [{"name": key, **({"description": d} if d else {})} for key, d in pairs]}
    return {**common, "levels": [option.line for option in question.options]}


def _kind(question: Question) -> str:
    return "yes_no" if question.kind == "predicate" else question.kind


def _keys(question: Question) -> list[str]:
    return ["yes", "no"] if question.kind == "predicate" else option_keys(question)
