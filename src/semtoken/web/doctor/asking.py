"""Requests in the forms that servers understand, and replies read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from semtoken.errors import SemtokenError
from semtoken.payloads import Payload, PayloadStream, read_payload
from semtoken.top_logprobs import TopStep
from semtoken.web.doctor.connection import Answer, Connection

PageName = Literal["chat", "completions", "responses", "generate", "completion"]
PATHS: Mapping[PageName, str] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "generate": "/generate",
    "completion": "/completion",
}
OF_ENGINES: frozenset[PageName] = frozenset({"generate", "completion"})
"""Pages that lie beside `/v1`."""
REFUSALS = (400, 422)


@dataclass(frozen=True)
class Question:
    """What is asked for."""

    prompt: str
    max_tokens: int = 1
    top: int | None = None
    """Log-probabilities a token; None: none are asked for."""
    temperature: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields."""


@dataclass(frozen=True)
class Reply:
    """What came: read, or the reason why not."""

    answer: Answer
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

    def ask(self, page: PageName, question: Question) -> Reply:
        """The reply to a question.

        Raises
        ------
        BackendError
            The server cannot be reached or is silent.
        """
        while True:
            body = self._taken(self._body(page, question))
            self.requests += 1
            answer = self.connection.post(PATHS[page], body, at_root=page in OF_ENGINES)
            if not self._learns(answer, body):
                return _read(answer, question.temperature)

    def stream(self, page: PageName, question: Question) -> Reply:
        """The reply to a question, streamed."""
        body = self._taken(self._body(page, question)) | {"stream": True}
        self.requests += 1
        answer, pieces = self.connection.stream(PATHS[page], body)
        if not answer.ok:
            return Reply(answer, None, answer.reason)
        stream = PayloadStream(temperature=question.temperature)
        try:
            for piece in pieces:
                stream.feed(piece)
            return Reply(answer, stream.finish())
        except SemtokenError as error:
            return Reply(answer, None, str(error))

    def _body(self, page: PageName, question: Question) -> dict[str, Any]:
        body = _BODIES[page](question) | dict(question.extra)
        if page not in OF_ENGINES:
            body["model"] = self.model
            if question.temperature is not None:
                body["temperature"] = question.temperature
        return body

    def _taken(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without the fields that were refused, or with others in their place."""
        names = {name: self._renamed.get(name, name) for name in body}
        return {new: body[name] for name, new in names.items() if new is not None}

    def _learns(self, answer: Answer, body: Mapping[str, Any]) -> bool:
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


def _read(answer: Answer, temperature: float | None) -> Reply:
    if not answer.ok:
        return Reply(answer, None, answer.reason)
    try:
        return Reply(answer, read_payload(answer.body, temperature=temperature))
    except SemtokenError as error:
        return Reply(answer, None, str(error))


def _chat(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": question.prompt}]}
    body["max_tokens"] = question.max_tokens
    return body if question.top is None else body | {"logprobs": True, "top_logprobs": question.top}


def _completions(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"prompt": question.prompt, "max_tokens": question.max_tokens}
    return body if question.top is None else body | {"logprobs": question.top}


def _responses(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"input": question.prompt, "max_output_tokens": max(question.max_tokens, 16)}
    if question.top is None:
        return body
    return body | {"include": ["message.output_text.logprobs"], "top_logprobs": question.top}


def _generate(question: Question) -> dict[str, Any]:
    sampling: dict[str, Any] = {"max_new_tokens": question.max_tokens}
    if question.temperature is not None:
        sampling["temperature"] = question.temperature
    body: dict[str, Any] = {"text": question.prompt, "sampling_params": sampling}
    if question.top is None:
        return body
    return body | {"return_logprob": True, "top_logprobs_num": question.top, "return_text_in_logprobs": True}


def _completion(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"prompt": question.prompt, "n_predict": question.max_tokens}
    if question.temperature is not None:
        body["temperature"] = question.temperature
    return body if question.top is None else body | {"n_probs": question.top}


_BODIES = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
    "generate": _generate,
    "completion": _completion,
}
