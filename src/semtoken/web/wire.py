"""The messages of both servers on the wire: errors in the shapes of OpenAI and of typed questions, and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import JSONResponse

from semtoken.decisions.wire import WireError, systemone
from semtoken.decisions.wire.shapes import SYSTEM_ONE, QuestionShape

DONE = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream"
JSON_LINES = "application/x-ndjson"
"""The stream of Ollama's own routes."""


class ApiError(Exception):
    """A request that is answered with an error: an HTTP status, and a message on what was wrong and what to do.

    `kind` is OpenAI's `type`, such as "invalid_request_error", `param` the field that is at fault, `code` a short name
    for programs, such as "model_not_found". After `retry_after` seconds the request may be sent again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's APIs spell it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self, body: Mapping[str, Any] | None = None) -> JSONResponse:
        """The whole answer as a response of HTTP, with another body than OpenAI's if one is given."""
        headers = None if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return JSONResponse(body or self.body(), self.status, headers)


def event(value: Any) -> bytes:
    """A server-sent event that carries a JSON value."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def person_of(body: Mapping[str, Any]) -> str | None:
    """The tag of a person in a request, from OpenAI's fields `safety_identifier` or `user`."""
    tag = body.get("safety_identifier") or body.get("user")
    return tag if isinstance(tag, str) else None


def failure_of(shape: QuestionShape, error: ApiError) -> JSONResponse:
    """The reply that reports a failure."""
    return error.response({"detail": error.message} if shape is SYSTEM_ONE else None)


def refusal_of(shape: QuestionShape, error: WireError) -> JSONResponse:
    """The reply to a request that the shape does not allow."""
    if shape is SYSTEM_ONE:
        return JSONResponse({"detail": systemone.as_detail(error)}, 422)
    return ApiError(400, error.message, param=place_in(error.place) or None, code=error.kind).response()


def place_in(path: Sequence[str | int]) -> str:
    """A place in a request as its sender finds it, such as `messages[0].content`; empty for the whole request."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
