"""Requests in the shapes that servers understand, and replies read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from semtoken.engine_tokens import TopStep
from semtoken.errors import SemtokenError
from semtoken.payloads import Payload, PayloadStream, read_payload
from semtoken.payloads.formats import ProbeQuestion, Shape
from semtoken.web.doctor.connection import Connection, HttpReply

REFUSALS = (400, 422)


@dataclass(frozen=True)
class ProbeReply:
    """What came: read, or the reason why not."""

    answer: HttpReply
    payload: Payload | None
    reason: str | None = None

    @property
    def steps(self) -> tuple[TopStep, ...]:
        """All steps of its first choice."""
        if self.payload is None:
            return ()
        return tuple(step for segment in self.payload.choices[0].segments for step in segment.steps)


class Asker:
    """Asks one model of a server, and learns which optional fields it does not take."""

    def __init__(self, connection: Connection, model: str) -> None:
        self.connection = connection
        self.model = model
        self.requests = 0
        self._renamed: dict[str, str | None] = {}

    def ask(self, shape: type[Shape], question: ProbeQuestion) -> ProbeReply:
        """The reply to a question.

        Raises
        ------
        BackendError
            The server cannot be reached or is silent.
        """
        while True:
            body = self._taken(self._body(shape, question))
            self.requests += 1
            answer = self.connection.post(shape.path, body, at_root=not shape.below_v1)
            if not self._learns(answer, body):
                return _read(answer, question.temperature)

    def stream(self, shape: type[Shape], question: ProbeQuestion) -> ProbeReply:
        """The reply to a question, streamed."""
        body = self._taken(self._body(shape, question)) | {"stream": True}
        self.requests += 1
        answer, pieces = self.connection.stream(shape.path, body)
        if not answer.ok:
            return ProbeReply(answer, None, answer.reason)
        stream = PayloadStream(temperature=question.temperature)
        try:
            for piece in pieces:
                stream.feed(piece)
            return ProbeReply(answer, stream.finish())
        except SemtokenError as error:
            return ProbeReply(answer, None, str(error))

    def _body(self, shape: type[Shape], question: ProbeQuestion) -> dict[str, Any]:
        return shape.body(replace(question, model=self.model))

    def _taken(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without the fields that were refused, or with others in their place."""
        names = {name: self._renamed.get(name, name) for name in body}
        return {new: body[name] for name, new in names.items() if new is not None}

    def _learns(self, answer: HttpReply, body: Mapping[str, Any]) -> bool:
        """Whether a refusal names a field that can be left out or spelled otherwise."""
        if answer.status not in REFUSALS:
            return False
        reason = answer.reason
        if "max_tokens" in body and "max_completion_tokens" in reason:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return True
        for name in ("temperature", "seed"):
            if name in body and name in reason:
                self._renamed[name] = None
                return True
        return False

    @property
    def takes_temperature(self) -> bool:
        """The server has not refused one."""
        return "temperature" not in self._renamed


def _read(answer: HttpReply, temperature: float | None) -> ProbeReply:
    if not answer.ok:
        return ProbeReply(answer, None, answer.reason)
    try:
        return ProbeReply(answer, read_payload(answer.body, temperature=temperature))
    except SemtokenError as error:
        return ProbeReply(answer, None, str(error))
