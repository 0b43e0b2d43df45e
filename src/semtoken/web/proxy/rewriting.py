"""Requests that are scored: what the client asked for, and what the upstream is asked for in its place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.payloads.formats import HiddenFields, Shape
from semtoken.payloads.splice import document, set_members, without
from semtoken.results.blocks import KEY
from semtoken.web.block import BlockOptions, read_options
from semtoken.web.wire import person_of

LONGEST_FORM = 500
_LIMIT = re.compile(
    r"(?:<=|≤|at most|up to|less than or equal to|no more than|(?:maximum|max|limit)(?: \w+){0,3})"
    r"\s*(?:is|of|:|=)?\s*(\d{1,4})(?![\d.]*\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class AnswerRequest:
    """A request whose answer can be scored, with the body that the upstream gets."""

    shape: type[Shape]
    """The API that the request asks."""
    body: Mapping[str, Any]
    """What the client sent, without the field `semtoken`."""
    sent: bytes
    """The request as it goes to the upstream where nothing more is asked for."""
    options: BlockOptions
    """What the client wants the `semtoken` block to hold."""
    kept: int | None
    """How many log-probabilities of other tokens the client asked for at each step besides the chosen token's; None: it
    asked for none at all."""

    @property
    def endpoint(self) -> str:
        """The name of the endpoint in metrics."""
        return self.shape.name

    @property
    def form(self) -> str:
        """The features of a request on which an upstream's refusal may depend: model, fields and switches."""
        model = self.body.get("model")
        fields = (
            f"{name}={value}" if isinstance(value, bool | None) else name for name, value in sorted(self.body.items())
        )
        return f"{model if isinstance(model, str) else ''} {' '.join(fields)}"[:LONGEST_FORM]

    @property
    def temperature(self) -> float | None:
        """The temperature, if the request names one."""
        return self.shape.temperature(self.body)

    @property
    def obstacle(self) -> str | None:
        """The reason why the answer can never be scored, or None."""
        return self.shape.obstacle(self.body)

    def about(self, choice: int) -> dict[str, Any]:
        """What the journal stores of the request: prompt, last text, model and the person's tag."""
        try:
            prompt = self.shape.prompt(self.body, choice)
        except InvalidInput:
            prompt = None
        model = self.body.get("model")
        return {
            "prompt": prompt,
            "question": self.question(choice) or None,
            "model": model if isinstance(model, str) else None,
            "person": person_of(self.body),
        }

    def question(self, choice: int) -> str:
        """The question of a choice: the prompt, or the last message of a chat; "" if it is not known."""
        try:
            prompt = self.shape.prompt(self.body, choice)
        except InvalidInput:
            return ""
        last = prompt[-1] if isinstance(prompt, list) else prompt
        said = last.get("content") if isinstance(last, Mapping) else last
        return said if isinstance(said, str) else ""

    def asking(self, top: int, *, token_ids: bool) -> bytes:
        """The request to the upstream, which asks for `top` log-probabilities for each token or more."""
        text = self.sent.decode()
        return set_members(text, document(text), self.shape.asking(self.body, top, token_ids=token_ids)).encode()

    def hidden(self, *, token_ids: bool) -> HiddenFields:
        """The fields of the reply that the client did not ask for."""
        return HiddenFields(self.kept, token_ids, self.body)


def read_request(shape: type[Shape], body: bytes) -> AnswerRequest | None:
    """Parse a request; None for one that we do not understand, which the upstream is to judge.

    Raises
    ------
    ApiError
        The field `semtoken`, which is ours, holds something other than its options.
    """
    try:
        text = body.decode()
        found = _loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    marked = KEY in found
    wanted = read_options(found.pop(KEY, None)) if marked else BlockOptions(running=False)
    try:
        kept = shape.requested(found)
    except InvalidInput:
        return None
    sent = without(text, document(text), KEY).encode() if marked else body
    return AnswerRequest(shape, found, sent, wanted, kept)


def _loads(body: str) -> Any:
    """JSON, of which every number is one."""

    def number(digits: str) -> float:
        value = float(digits)
        if value in (float("inf"), -float("inf")):
            raise ValueError(f"{digits} is too large for a number")
        return value

    return json.loads(body, parse_float=number, parse_constant=_no_constant)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def lower_limit(message: str, asked: int) -> int | None:
    """The largest number of log-probabilities that an upstream's refusal allows, or None."""
    numbers = (int(found[1]) for found in _LIMIT.finditer(message))
    return max((number for number in numbers if 0 < number < asked), default=None)
