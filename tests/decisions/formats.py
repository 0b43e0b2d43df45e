"""Whether a format of typed questions allows a request, by the packages whose formats they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from string import ascii_uppercase
from typing import Any

KNOWN = re.compile(
    r"more than [\d,]+ requests|cannot be told apart|surely among the tokens|no text|reads text only|same option twice|"
    r"must be unique|needs 1 to \d+ (options|levels)|No call before|lone surrogate|not JSON|than the context|too long|"
    r"does not (exist|serve)|model .* (is not|does not)|empty|tokens|Extra inputs|valid string|at (least|most)"
)
"""Reasons for which a request that its format allows may be refused."""


def permitted(path: str, data: bytes) -> bool | None:
    """Whether a format allows a request, by the packages whose formats they are; None where that is for us to say."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
        body = json.loads(text, parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    if not isinstance(body, dict):
        return False
    if (deep := _depth(body)) > 150:
        return None if deep < 250 else False
    fields = {"/v1/decisions": {"input", "safety_identifier", "prompt_cache_key", "prompt_cache_options"}}
    if set(body) - {"model", "questions", "semtoken"} - fields.get(path, {"state", "assets"}):
        return False
    if not isinstance(body.get("model"), str | None) or not _is_reading(body.get("semtoken")):
        return False
    return _permitted_decisions(body) if path == "/v1/decisions" else _permitted_systemone(body)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _depth(value: Any) -> int:
    """The depth to which a value of JSON is nested."""
    inside, depth = [value], 0
    while inside:
        depth += 1
        inside = [
            one
            for holder in inside
            if isinstance(holder, dict | list)
            for one in (holder.values() if isinstance(holder, dict) else holder)
        ]
    return depth


def _is_reading(given: Any) -> bool:
    if given is None:
        return True
    if not isinstance(given, dict) or set(given) - {"reading", "orders"}:
        return False
    orders = given.get("orders", 1)
    whole = type(orders) is int and 1 <= orders <= 255
    return given.get("reading", "labels") in ("labels", "words") and (orders in ("all", None) or whole)


def _permitted_decisions(body: Mapping[str, Any]) -> bool | None:
    from pydantic import ValidationError

    questions, state = body.get("questions"), body.get("input")
    if (
        not isinstance(questions, list)
        or not 1 <= len(questions) <= 400
        or not (isinstance(state, str | list) and state)
    ):
        return False if state != "" else None
    for question in questions:
        try:
            _drained(_sdk_question().validate_python(_without_nulls(question), strict=True))
        except ValidationError:
            return False
        if not _has_only_known_fields(question):
            return False
        options = question.get("choices") if question["type"] == "choice" else question.get("levels")
        most = 255 if question["type"] == "choice" else 10
        if question["type"] != "predicate" and (not isinstance(options, list) or not 2 <= len(options) <= most):
            return False
        values = [(type(one["value"]), one["value"]) for one in options or [] if "value" in one]
        if len(set(values)) < len(values):
            return False
    return True if isinstance(state, str) else None  # items of an input are read more widely than the package writes


def _has_only_known_fields(question: Mapping[str, Any]) -> bool:
    """Whether a question and its options have no fields but those of the package, which reads over further ones."""
    listed = {"predicate": None, "choice": "choices", "score": "levels"}[question["type"]]
    options = question.get(listed, []) if listed else []
    inside = all(set(one) <= {"value" if listed == "choices" else "label", "description"} for one in options)
    return inside and set(question) <= {"type", "instructions", "name", *([listed] if listed else [])}


@cache
def _sdk_question() -> Any:
    from openai.types.decision_create_params import Question
    from pydantic import TypeAdapter

    return TypeAdapter(Question)


def _without_nulls(value: Any) -> Any:
    """A question without the fields that are null, which we take for absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _drained(value: Any) -> None:
    """Check what pydantic checks only as it is read."""
    if isinstance(value, dict):
        for one in value.values():
            _drained(one)
    elif hasattr(value, "__next__") or isinstance(value, list):
        for one in value:
            _drained(one)


def _permitted_systemone(body: Mapping[str, Any]) -> bool | None:
    from transformers.decision import DecisionConfig
    from transformers.decision.template_utils import parse_questions

    questions, assets = body.get("questions"), body.get("assets", {})
    if not isinstance(body.get("state"), str | dict | list) or not isinstance(assets, dict):
        return False
    if not isinstance(questions, dict) or not 1 <= len(questions) <= 64:
        return False
    criteria = [one.get("criteria") for one in questions.values() if isinstance(one, dict)]
    most = {dict: len(ascii_uppercase), list: 10}
    if any(len(one) > most[type(one)] for one in criteria if isinstance(one, dict | list)):
        return None  # the letters of transformers' models and our levels end there
    try:
        parse_questions(questions, DecisionConfig())
    except (ValueError, TypeError):  # of a type that is a list
        return False
    return None if assets else True
