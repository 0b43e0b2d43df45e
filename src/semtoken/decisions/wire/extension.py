"""Everything that all formats share: requests as questions about a state, errors, others' answers, semtoken's key."""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from semtoken.decisions.answers import Answer, plain, unanswered
from semtoken.decisions.questions import Question, ReadingOptions
from semtoken.decisions.records import chosen_value, intervals, share
from semtoken.errors import InvalidInputError
from semtoken.support.extras import require
from semtoken.support.inputs import first_repeated

require("pydantic", extra="serve")

from pydantic import BaseModel, ConfigDict, ValidationError  # noqa: E402
from pydantic_core import from_json  # noqa: E402

KEY = "semtoken"
MOST_ORDERS = 255
ROUNDED = 0.01
"""The largest difference of two equal numbers of a server that rounds to two decimals."""
PASSED_ON = ("reading", "orders", "flags")
"""Fields of another server's own block that are passed on unchanged."""
DECLINED = "The server declined to answer."


class WireError(InvalidInputError):
    """A request that the format does not allow: the reason in the format's own words, and where in the request it is.

    The `message` is the reason. The `place` is names of fields and numbers of items, the `kind` a short name for
    programs, such as "missing".
    """

    def __init__(self, message: str, place: Sequence[str | int] = (), kind: str = "value_error") -> None:
        super().__init__(message)
        self.message = message
        self.place = tuple(place)
        self.kind = kind


class StrictForm(BaseModel):
    """The base of request forms: exactly these fields with these types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RequestForm(StrictForm):
    """The base of whole requests, which say what is asked in them."""

    model: str | None = None

    def asked(self) -> list[Question]:
        """The questions, with the names that the client gave them; `WireError` or `InvalidInputError` if one cannot be
        asked.
        """
        raise NotImplementedError

    def about(self) -> str:
        """The state as the model reads it; errors as those of `asked`."""
        raise NotImplementedError


@contextmanager
def named(*place: str | int) -> Iterator[None]:
    """Errors inside the block name this place in the request."""
    try:
        yield
    except WireError:
        raise
    except InvalidInputError as error:
        raise WireError(str(error), place) from error


def validated(validate: Callable[[Any], Any], value: Any, place: Sequence[str | int] = ()) -> Any:
    """Check a part of a request; raises `WireError` with the first fault and its place."""
    try:
        return validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise WireError(_message(first), (*place, *first["loc"]), first["type"]) from error


def _message(fault: Any) -> str:
    """The message about a fault that pydantic found, without the words that only its users know."""
    facts = fault.get("ctx", {})
    match fault["type"]:
        case "model_type":
            return "Input should be an object"
        case "union_tag_not_found":
            return f"Input needs the field {facts['discriminator']}"
        case "union_tag_invalid":
            return f"{facts['discriminator']} is {facts['tag']!r:.60}, and should be one of {facts['expected_tags']}"
        case _:
            return str(fault["msg"])


@dataclass(frozen=True)
class WireRequest:
    """A request for typed questions in one of the formats, checked."""

    model: str | None
    """The model that the request names; None: it names none."""
    state: str
    """The state as the model reads it."""
    questions: tuple[Question, ...]
    reading: ReadingOptions | None
    """The way in which the request wants probabilities to be read; None: as the server likes."""
    body: Mapping[str, Any]
    """The request as it came, without semtoken's key."""

    @property
    def names(self) -> tuple[str | None, ...]:
        """The client's name for each question; None where it gave none."""
        return tuple(question.name for question in self.questions)


def body_of(data: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """Parse the JSON object of a request; `WireError` (`json_invalid` or `dict_type`) if the body is none."""
    if isinstance(data, Mapping):
        return dict(data)
    try:
        # Some clients write this mark, and JSON does not allow it. Without NaN, which JSON does not know either.
        body = from_json(data.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise WireError(f"The body of the request is not JSON: {error}.", kind="json_invalid") from error
    if not isinstance(body, dict):
        raise WireError("The body of the request must be a JSON object.", kind="dict_type")
    return body


def parsed(data: bytes | Mapping[str, Any], form: type[RequestForm]) -> WireRequest:
    """Parse and check a request that has a form; errors as those of `body_of`, `extension_of` and the form."""
    body = body_of(data)
    options = extension_of(body.pop(KEY, None))
    request = validated(form.model_validate, body)
    questions = tuple(request.asked())
    return WireRequest(request.model, request.about(), questions, options, body)


def extension_of(value: Any) -> ReadingOptions | None:
    """Read the field `semtoken` of a request, such as `{"reading": "words", "orders": 2}`; orders may be "all".

    `WireError` if the field holds anything else.
    """
    if value is None:
        return None
    wrong = f'semtoken may hold "reading": "labels" or "words", and "orders": 1 to {MOST_ORDERS}, or "all".'
    if not isinstance(value, dict) or not set(value) <= {"reading", "orders"}:
        raise WireError(wrong, (KEY,))
    try:
        options = ReadingOptions.read(value)
    except InvalidInputError as error:
        raise WireError(wrong, (KEY,)) from error
    if options.orders is not None and options.orders > MOST_ORDERS:
        raise WireError(wrong, (KEY,))
    return options


def answers_in(
    questions: Sequence[Question],
    places: Sequence[Sequence[str | int]],
    reply: Any,
    read: Callable[[Question, Any], Sequence[float] | None],
) -> list[Answer]:
    """The answers in another server's reply, with the fields under the key `semtoken`.

    `places` say where each stands, such as `("answers", 0)`; `read` gives the probabilities of one in the question's
    order, None for a refusal. `InvalidInputError` if the reply does not hold answers to these questions, also for what
    `read` raises.
    """
    answers = []
    model = reply.get("model") if isinstance(reply, Mapping) else None
    model = model if isinstance(model, str) and model else None
    for question, (name, key) in zip(questions, places, strict=True):
        try:
            given = reply[name][key]
        except (KeyError, IndexError, TypeError) as error:
            raise InvalidInputError(f"The reply has no answer {key!a}.") from error
        try:
            probabilities = read(question, given)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"The server's answer is not one to this question: {given!s:.80}.") from error
        if probabilities is None:
            answers.append(unanswered(question, DECLINED))
            continue
        # Each of n rounded numbers may be off by half of its last digit.
        rounding = ROUNDED * max(1.0, len(probabilities) / 2)
        if not (all(0 <= p <= 1 for p in probabilities) and math.isclose(sum(probabilities), 1, abs_tol=rounding)):
            raise InvalidInputError(f"The answer {key!a} has other numbers than probabilities that sum to 1.")
        own = _own_block(given)
        mass, spread = _mass(own, given, reply, key), share(own.get("order_spread"))
        bounds = intervals(own.get("bounds"), len(probabilities)) or rounded_bounds(probabilities)
        named = given.get("choice") if question.kind == "choice" else None
        choice = None if named is None else chosen_value(question, probabilities, named)
        answers.append(Answer(question, tuple(probabilities), mass, spread, bounds, choice=choice, model=model))
    return answers


def rounded_bounds(probabilities: Sequence[float]) -> tuple[tuple[float, float], ...] | None:
    """Intervals for rounded probabilities: half of their last digit to both sides, in [0, 1].

    None if they have more than four decimals. At least two are assumed, since 0.5 may be 0.50.

    >>> rounded_bounds([0.97, 0.03]), rounded_bounds([0.123456, 0.876544])
    (((0.965, 0.975), (0.025, 0.035)), None)
    """
    # Servers that round to more are exact enough to be taken as they are.
    for decimals in (2, 3, 4):
        if all(math.isclose(p, round(p, decimals), rel_tol=0, abs_tol=1e-9) for p in probabilities):
            half = 0.5 * 10.0**-decimals
            return tuple((max(0.0, round(p - half, 6)), min(1.0, round(p + half, 6))) for p in probabilities)
    return None


def _mass(own: Mapping[str, Any], given: Mapping[str, Any], reply: Mapping[str, Any], key: str | int) -> float | None:
    """The allowed mass of an answer, if the server gives it: semtoken and SGLang with the answer, vLLM apart."""
    diagnostics = reply.get("diagnostics")
    apart = diagnostics.get(key) if isinstance(diagnostics, Mapping) else None
    places = (own.get("option_mass"), given.get("label_mass"), given.get("option_mass"))
    last = apart.get("label_mass") if isinstance(apart, Mapping) else None
    return next((mass for mass in map(share, (*places, last)) if mass is not None), None)


def block_beside(given: Any, answer: Answer, more: Mapping[str, Any]) -> dict[str, Any]:
    """The block next to another server's answer: the fields of its own block that are passed on, what the answer says,
    and `more`. If the server defines confidence in another way, both definitions are given.
    """
    own = _own_block(given)
    passed = {name: own[name] for name in PASSED_ON if name in own}
    return {**passed, **plain(answer), **_other_confidence(given, answer), **more}


def _other_confidence(given: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """The confidence of this package, and what the server's is, where the two differ by more than rounding."""
    theirs = share(given.get("confidence"))
    if theirs is None or answer.refusal is not None or abs(theirs - answer.confidence) <= ROUNDED:
        return {}
    best, n = max(answer.probabilities), len(answer.probabilities)
    entropy = -math.fsum(p * math.log(p) for p in answer.probabilities if p > 0)
    known = {
        "the chosen option's share of the model's whole vocabulary": best * (answer.option_mass or math.nan),
        "one minus the entropy of the options, divided by its maximum": 1 - entropy / math.log(n) if n > 1 else 1.0,
        "the chosen option's probability": best,
    }
    meaning = next((what for what, value in known.items() if abs(theirs - value) <= ROUNDED), "not said by the server")
    note = (
        f"The server's confidence is {meaning}. This one is how far the options are from equally probable, as "
        "transformers defines it. Neither is the probability of being right."
    )
    return {"confidence": answer.confidence, "confidence_note": note}


def _own_block(given: Mapping[str, Any]) -> Mapping[str, Any]:
    own = given.get(KEY)
    return own if isinstance(own, Mapping) else {}


def block(answer: Answer, options: ReadingOptions | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """The object under the key `semtoken` of an answer: how it was read, what limits its figures, and `more`."""
    return {**({} if options is None else options.values()), **plain(answer), **more}


def option_keys(question: Question) -> list[str]:
    """The keys of a question's options in a JSON object: names of a choice's options, numbers of levels from 0.

    `InvalidInputError` if two options have one name, as true and "true" have.
    """
    keys = [option.name if question.kind == "choice" else str(i) for i, option in enumerate(question.options)]
    if twice := first_repeated(keys):
        raise InvalidInputError(
            f"Two options of the question {question.instructions!r:.60} are named {twice!r:.60}, and this format knows "
            "options by their names alone. Name one otherwise, or ask at /v1/decisions in OpenAI's format."
        )
    return keys
