"""The two formats of typed decisions over HTTP: where they are asked, and errors in each one's own shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from semtoken.decisions import AnsweredQuestion
from semtoken.decisions.questions import Question
from semtoken.decisions.wire import DecisionRequest, WireError, openai, systemone
from semtoken.decisions.wire.extension import answers_in
from semtoken.web.wire import ApiError


@dataclass(frozen=True)
class WireFormat:
    """One of the two formats of typed questions, with its functions."""

    path: str
    """The path below `/v1` at which servers answer in this format."""
    parse: Callable[[bytes], DecisionRequest]
    reply: Callable[..., dict[str, Any]]
    read_answer: Callable[[Question, Any], Sequence[float] | None]
    error: Callable[[ApiError], JSONResponse]
    """Makes the reply that reports a failure, in the format's own shape."""
    refusal: Callable[[WireError], JSONResponse]
    """Makes the reply to a request that the format does not allow."""

    def answers(self, asked: DecisionRequest, reply: Any) -> list[AnsweredQuestion]:
        """The answers in another server's reply; raises `InvalidInput` where they are none."""
        return answers_in(asked.questions, asked.places, reply, self.read_answer)


def _openai_refusal(error: WireError) -> JSONResponse:
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.place).lstrip(".")
    return ApiError(400, error.message, param=param or None, code=error.kind).response()


def _systemone_error(error: ApiError) -> JSONResponse:
    headers = None if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return JSONResponse({"detail": error.message}, error.status, headers)


DECISIONS = WireFormat("/decisions", openai.parse, openai.reply, openai.read_answer, ApiError.response, _openai_refusal)
SYSTEM_ONE = WireFormat(
    "/systemone",
    systemone.parse,
    systemone.reply,
    systemone.read_answer,
    _systemone_error,
    lambda error: JSONResponse({"detail": systemone.as_detail(error)}, 422),
)
WIRE_FORMATS = (DECISIONS, SYSTEM_ONE)


def wire_at(path: str) -> WireFormat | None:
    """The format in which servers answer at a path; None if there is none.

    >>> wire_at("/openai/v1/decisions") is DECISIONS, wire_at("/v1/models")
    (True, None)
    """
    return next((wire for wire in WIRE_FORMATS if path.endswith(f"/v1{wire.path}")), None)
