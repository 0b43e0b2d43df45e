"""The formats of typed decisions over HTTP: where they are asked, and errors in each one's own shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from semtoken.decisions import AnsweredQuestion
from semtoken.decisions.wire import DecisionRequest, WireError, openai, sglang, systemone
from semtoken.decisions.wire.extension import answers_in, body_of
from semtoken.decisions.wire.shapes import OPENAI, QuestionShape
from semtoken.decisions.wire.shapes import SGLANG as SGLANG_SHAPE
from semtoken.decisions.wire.shapes import SYSTEM_ONE as SYSTEM_ONE_SHAPE
from semtoken.web.wire import ApiError


@dataclass(frozen=True)
class WireFormat:
    """One of the formats of typed questions, with its functions."""

    shape: QuestionShape
    """How other servers are asked in this format."""
    parse: Callable[[Mapping[str, Any]], DecisionRequest]
    reply: Callable[..., dict[str, Any]]
    error: Callable[[ApiError], JSONResponse]
    """Makes the reply that reports a failure, in the format's own shape."""
    refusal: Callable[[WireError], JSONResponse]
    """Makes the reply to a request that the format does not allow."""

    @property
    def path(self) -> str:
        """The path below `/v1` at which servers answer in this format."""
        return self.shape.path

    def answers(self, asked: DecisionRequest, reply: Any) -> list[AnsweredQuestion]:
        """The answers in another server's reply; raises `InvalidInput` where they are none."""
        return answers_in(asked.questions, asked.places, reply, self.shape.read_answer)


def _openai_refusal(error: WireError) -> JSONResponse:
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.place).lstrip(".")
    return ApiError(400, error.message, param=param or None, code=error.kind).response()


def _systemone_error(error: ApiError) -> JSONResponse:
    headers = None if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return JSONResponse({"detail": error.message}, error.status, headers)


DECISIONS = WireFormat(OPENAI, openai.parse, openai.reply, ApiError.response, _openai_refusal)
SGLANG = WireFormat(SGLANG_SHAPE, sglang.parse, sglang.reply, ApiError.response, _openai_refusal)
SYSTEM_ONE = WireFormat(
    SYSTEM_ONE_SHAPE,
    systemone.parse,
    systemone.reply,
    _systemone_error,
    lambda error: JSONResponse({"detail": systemone.as_detail(error)}, 422),
)
WIRE_FORMATS = (DECISIONS, SYSTEM_ONE)
"""One for each path; at that of decisions the body says which of two it is."""


def wire_at(path: str) -> WireFormat | None:
    """The format in which servers answer at a path; None if there is none.

    >>> wire_at("/openai/v1/decisions") is DECISIONS, wire_at("/v1/models")
    (True, None)
    """
    return next((wire for wire in WIRE_FORMATS if path.endswith(f"/v1{wire.path}")), None)


def parsed_request(wire: WireFormat, body: bytes) -> tuple[WireFormat, DecisionRequest]:
    """A request at the path of a format, with the format that it is in: SGLang's, if its questions have ids.

    Raises
    ------
    WireError
        The body does not have the format. `InvalidInput` where it has, but cannot be answered.
    """
    parts = body_of(body)
    spoken = SGLANG if wire is DECISIONS and sglang.is_meant(parts) else wire
    return spoken, spoken.parse(parts)
