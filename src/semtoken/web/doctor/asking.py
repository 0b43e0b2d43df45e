"""One server over HTTP: questions in each shape, and the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from semtoken.core.engine_tokens import TopStep
from semtoken.errors import BackendError, SemtokenError
from semtoken.replies import Reply, ReplyStream, read_reply
from semtoken.replies.formats import ProbeQuestion, Shape
from semtoken.support.http_client import HttpClient, HttpReply

REFUSALS = (400, 422)
TOO_MANY = 429


@dataclass(frozen=True)
class ProbeReply:
    """A reply to a test request, or the reason why it could not be read."""

    answer: HttpReply
    parsed_reply: Reply | None
    reason: str | None = None

    @property
    def steps(self) -> tuple[TopStep, ...]:
        """All steps of the reply's first choice; none if it could not be read."""
        if self.parsed_reply is None:
            return ()
        return tuple(step for segment in self.parsed_reply.choices[0].segments for step in segment.steps)

    @property
    def most(self) -> int:
        """The largest number of log-probabilities that a token came with besides its own."""
        return max((len(step.top) for step in self.steps), default=0)

    @property
    def problem(self) -> str | None:
        """The reason why the first choice's lists give no score; None if they give one, or could not be read."""
        parts = () if self.parsed_reply is None or not self.steps else self.parsed_reply.choices[0].segments
        return next((part.problem for part in parts if part.problem), None)


def taken(reply: HttpReply) -> HttpReply:
    """A reply as it is; `BackendError` if the server takes no more requests, however long the client has waited."""
    if reply.status == TOO_MANY:
        raise BackendError(f"{reply.url} takes no more requests for now ({reply.reason}). Try again later.")
    return reply


class Asker:
    """Asks one model of the server at an address, and learns which optional fields it does not take."""

    def __init__(self, client: HttpClient, base_url: str, model: str) -> None:
        self._client = client
        self.base_url = base_url
        self.model = model
        self.requests = 0
        self._renamed: dict[str, str | None] = {}

    def ask(self, shape: type[Shape], question: ProbeQuestion) -> ProbeReply:
        """Ask a question in a shape; `BackendError` if the server cannot be reached, is silent or takes no more."""
        while True:
            body = self._body(shape, question)
            answer = self._post(shape, body)
            if not self._learns(answer, body):
                return _read(answer, partial(read_reply, temperature=question.temperature))

    def stream(self, shape: type[Shape], question: ProbeQuestion) -> ProbeReply:
        """Ask a question in a shape for a stream; returns what the whole stream says."""

        def read(body: bytes) -> Reply:
            stream = ReplyStream(temperature=question.temperature)
            stream.feed(body)
            return stream.finish()

        return _read(self._post(shape, self._body(shape, question) | {"stream": True}), read)

    def _post(self, shape: type[Shape], body: Mapping[str, Any]) -> HttpReply:
        """Send a request, to the root of the server if engines have the shape at a page of their own there."""
        self.requests += 1
        address = self.base_url if shape.below_v1 else self.base_url.removesuffix("/v1")
        return taken(self._client.post(address + shape.path, body))

    def _body(self, shape: type[Shape], question: ProbeQuestion) -> dict[str, Any]:
        """The body of a question without the fields that were rejected, or with others in their place."""
        body = shape.body(replace(question, model=self.model))
        names = {name: self._renamed.get(name, name) for name in body}
        return {new: body[name] for name, new in names.items() if new is not None}

    def _learns(self, answer: HttpReply, body: Mapping[str, Any]) -> bool:
        """Return True if a refusal names a field that can be left out or spelled otherwise."""
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
        """True if the server has not refused a temperature so far."""
        return "temperature" not in self._renamed


def _read(answer: HttpReply, read: Callable[[bytes], Reply]) -> ProbeReply:
    if not answer.ok:
        return ProbeReply(answer, None, answer.reason)
    try:
        return ProbeReply(answer, read(answer.body))
    except SemtokenError as error:
        return ProbeReply(answer, None, str(error))
