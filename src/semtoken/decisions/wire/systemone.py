"""`POST /v1/systemone`: questions by name about a state, as `transformers serve` answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from semtoken.decisions.answers import Answer
from semtoken.decisions.questions import Choice, Option, Predicate, Question, Score, as_text
from semtoken.decisions.wire.extension import (
    RequestForm,
    StrictForm,
    WireError,
    WireRequest,
    option_keys,
    parsed,
    validated,
)
from semtoken.errors import InvalidInputError
from semtoken.support.extras import require

require("pydantic", extra="serve")

from pydantic import Field  # noqa: E402

MOST_QUESTIONS = 64
MOST_ASSETS = 4
NO_IMAGES = "This server reads text only: leave the assets out."

Content: TypeAlias = str | dict[str, Any] | list[Any]


class NoulQuestion(StrictForm):
    """A question for yes or no, such as {"type": "noul", "instructions": "Is this spam?", "criteria": {"true":
    "Ads"}}.
    """

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: dict[Literal["true", "false"], Content | None] | None = None


class ChoiceQuestion(StrictForm):
    """A question for one option, such as {"type": "choice", "instructions": "The tone?", "criteria": {"calm":
    null}}.
    """

    type: Literal["choice"]
    criteria: dict[str, Content | None]
    instructions: Content | None = None


class ScoreQuestion(StrictForm):
    """A question for a level, such as {"type": "score", "instructions": "How urgent is it?", "criteria": ["Can wait",
    "Today"]}.
    """

    type: Literal["score"]
    criteria: list[Content]
    instructions: Content | None = None


_FORMS: Mapping[str, type[NoulQuestion | ChoiceQuestion | ScoreQuestion]] = {
    "noul": NoulQuestion,
    "choice": ChoiceQuestion,
    "score": ScoreQuestion,
}


class SystemOneRequest(RequestForm):
    """A whole request; its questions are checked later, one by one."""

    state: Content
    questions: dict[str, dict[str, Any]] = Field(min_length=1, max_length=MOST_QUESTIONS)
    assets: dict[str, dict[str, Any]] = Field(default_factory=dict, max_length=MOST_ASSETS)

    def asked(self) -> list[Question]:
        """The questions by name; `InvalidInputError` if there are images with them."""
        if self.assets:
            raise InvalidInputError(NO_IMAGES)
        return read_questions(self.questions)

    def about(self) -> str:
        """The state as the model reads it."""
        return as_text(self.state)


def parse(data: bytes | Mapping[str, Any]) -> WireRequest:
    """Parse and check a request in System One's format.

    `WireError` if the body does not have it (`as_detail` says so as transformers does), `InvalidInputError` if it holds
    images, which this server does not read.
    """
    return parsed(data, SystemOneRequest)


def read_questions(questions: Mapping[str, Any]) -> list[Question]:
    """The questions of a request; one `WireError` for all that are wrong, with an example of a right one."""
    read, errors = [], []
    for name, question in questions.items():
        try:
            read.append(read_question(name, question))
        except InvalidInputError as error:
            errors.append(str(error))
    if errors:
        raise WireError("\n".join(errors), ("questions",))
    return read


def read_question(name: str, question: Any) -> Question:
    """Make one question from its fields; raises `InvalidInputError` with an example if they are wrong."""
    kind = question.get("type") if isinstance(question, Mapping) else None
    form = _FORMS.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise InvalidInputError(
            f"Question {name!r}: `type` must be one of {', '.join(_FORMS)}, got {ascii(kind)[:60]}."
        )
    try:
        return _question(validated(form.model_validate, question), name)
    except WireError as error:
        where = ".".join(map(str, error.place))
        message = f"Question {name!r}: {where}: {error.message} (a {kind} question looks like {_example(form)})"
        raise InvalidInputError(message) from error
    except InvalidInputError as error:
        raise InvalidInputError(f"Question {name!r}: {error}") from error


def _example(form: type[StrictForm]) -> str:
    """The example in the description of a form, on one line."""
    return " ".join(str(form.__doc__).split()).partition("such as ")[2].removesuffix(".")


def _question(form: NoulQuestion | ChoiceQuestion | ScoreQuestion, name: str) -> Question:
    instructions = as_text(form.instructions)
    match form:
        case NoulQuestion():
            criteria = form.criteria or {}
            return Predicate(instructions, as_text(criteria.get("true")), as_text(criteria.get("false")), name)
        case ChoiceQuestion():
            options = [Option(value, value, as_text(content)) for value, content in form.criteria.items()]
            return Choice(instructions, options, name)
        case ScoreQuestion():
            levels = [Option(number, as_text(level)) for number, level in enumerate(form.criteria)]
            return Score(instructions, levels, name)


def reply(model: str, answers: Any, input_tokens: int) -> dict[str, Any]:
    """The reply in System One's format with some answers."""
    return {"model": model, "answers": answers, "usage": {"input_tokens": input_tokens, "output_tokens": 0}}


def written_answer(answer: Answer, criteria: Any = None) -> dict[str, Any]:
    """One answer in System One's format, without the key `semtoken`.

    `criteria` are the levels of a score as the request spelled them; without them those of the question are shown.
    """
    question = answer.question
    if question.kind == "predicate":
        return {"type": "noul", "noul": answer.probability}
    by_option = dict(zip(option_keys(question), answer.probabilities, strict=True))
    if question.kind == "choice":
        best = question.options[answer.best].name
        return {"type": "choice", "choice": best, "confidence": answer.confidence, "probabilities": by_option}
    levels = criteria if isinstance(criteria, list) else [option.line for option in question.options]
    return {
        "type": "score",
        "score": answer.score,
        "legend": {str(i): level for i, level in enumerate(levels)},
        "confidence": answer.confidence,
        "probabilities": by_option,
    }


def read_answer(question: Question, given: Any) -> tuple[float, ...]:
    """The probabilities of one answer of another server: what `answers_in` calls."""
    kind = "noul" if question.kind == "predicate" else question.kind
    if given.get("type", kind) != kind:
        raise ValueError(given["type"])
    if question.kind == "predicate":
        p = float(given["noul"])
        return p, 1.0 - p
    return tuple(float(given["probabilities"][key]) for key in option_keys(question))


def body(state: Any, questions: Mapping[str, Question]) -> dict[str, Any]:
    """A request in System One's format, without the model's name."""
    return {"state": state, "questions": {name: written_question(question) for name, question in questions.items()}}


def written_question(question: Question) -> dict[str, Any]:
    """One question in System One's format; values of a choice that are no texts are written as texts."""
    common: dict[str, Any] = {"instructions": question.instructions}
    if question.kind == "predicate":
        yes, no = question.options
        criteria = {"true": yes.description or None, "false": no.description or None}
        return {"type": "noul", **common, **({"criteria": criteria} if any(criteria.values()) else {})}
    if question.kind == "choice":
        pairs = zip(option_keys(question), question.options, strict=True)
        return {"type": "choice", **common, "criteria": {key: option.description or None for key, option in pairs}}
    return {"type": "score", **common, "criteria": [option.line for option in question.options]}


def as_detail(error: WireError) -> list[dict[str, Any]]:
    """The fault of a request as FastAPI lists it in a reply with status 422."""
    return [{"loc": ["body", *error.place], "msg": error.message, "type": error.kind}]
