"""How requests for typed questions fail over HTTP, in the shape in which they were asked."""

from __future__ import annotations

from starlette.responses import JSONResponse

from semtoken.decisions.wire import WireError, systemone
from semtoken.decisions.wire.shapes import SYSTEM_ONE, QuestionShape
from semtoken.web.wire import ApiError


def failure_of(shape: QuestionShape, error: ApiError) -> JSONResponse:
    """The reply that reports a failure."""
    if shape is not SYSTEM_ONE:
        return error.response()
    headers = None if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return JSONResponse({"detail": error.message}, error.status, headers)


def refusal_of(shape: QuestionShape, error: WireError) -> JSONResponse:
    """The reply to a request that the shape does not allow."""
    if shape is SYSTEM_ONE:
        return JSONResponse({"detail": systemone.as_detail(error)}, 422)
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.place).lstrip(".")
    return ApiError(400, error.message, param=param or None, code=error.kind).response()
