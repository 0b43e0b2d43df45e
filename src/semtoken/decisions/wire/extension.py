"""What both formats share: the request as questions about a state, errors, and semtoken's own key."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semtoken.decisions.answers import AnsweredQuestion, plain
from semtoken.decisions.options import ReadingOptions
from semtoken.decisions.questions import Question
from semtoken.errors import InvalidInput
from semtoken.support.extras import require

require("pydantic", extra="serve")

from pydantic_core import from_json  # noqa: E402

KEY = "semtoken"
MOST_ORDERS = 255

FormatName = Literal["decisions", "systemone"]


class WireError(InvalidInput):
    """A request that a format does not allow.

    Parameters
    ----------
    message
        What is wrong, in the format's own words.
    place
        Where: names of fields and numbers of items.
    kind
        A short name for programs, such as "missing" or "value_error".
    """

    def __init__(self, message: str, place: Sequence[str | int] = (), kind: str = "value_error") -> None:
        super().__init__(message)
        self.message = message
        self.place = tuple(place)
        self.kind = kind


@dataclass(frozen=True)
class DecisionRequest:
    """A request of either format, checked."""

    format: FormatName
    model: str | None
    state: str
    """As the model reads it."""
    questions: tuple[Question, ...]
    names: tuple[str | None, ...]
    """What the client calls each question; None where it gave no name."""
    reading: ReadingOptions | None
    """How the request wants probabilities to be read; None: as the server likes."""
    body: Mapping[str, Any]
    """The request as it came, without semtoken's key."""


def body_of(data: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of a request.

    Raises
    ------
    WireError
        It is none: `json_invalid` or `dict_type`.
    """
    if isinstance(data, Mapping):
        return dict(data)
    try:
        found = from_json(data.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise WireError(f"The body of the request is not JSON: {error}.", kind="json_invalid") from error
    if not isinstance(found, dict):
        raise WireError("The body of the request must be a JSON object.", kind="dict_type")
    return found


def extension_of(value: Any) -> ReadingOptions | None:
    """The field `semtoken` of a request, such as `{"reading": "words", "orders": 2}`; orders may be "all".

    Raises
    ------
    WireError
        It holds something else.
    """
    if value is None:
        return None
    wrong = f'semtoken may hold "reading": "labels" or "words", and "orders": 1 to {MOST_ORDERS}, or "all".'
    if not isinstance(value, dict) or not set(value) <= {"reading", "orders"}:
        raise WireError(wrong, (KEY,))
    given = {**value, **({"orders": None} if value.get("orders") == "all" else {})}
    try:
        found = ReadingOptions(**given)
    except (InvalidInput, TypeError) as error:
        raise WireError(wrong, (KEY,)) from error
    if found.orders is not None and found.orders > MOST_ORDERS:
        raise WireError(wrong, (KEY,))
    return found


def block(answer: AnsweredQuestion, options: ReadingOptions | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """What stands under semtoken's key of an answer."""
    how = {} if options is None else {"reading": options.reading, "orders": options.orders or "all"}
    return {**how, **plain(answer), **more}
