"""Small JSON routes behind a gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from semtoken.errors import SemtokenError
from semtoken.web.gate import Gate
from semtoken.web.wire import ApiError

LONGEST_BODY = 2**14
NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


async def guarded(
    request: Request, gate: Gate, work: Callable[[dict[str, Any]], dict[str, Any]], *, needs_token: bool = False
) -> Response:
    """Answer a request in a thread, or say why not.

    Parameters
    ----------
    request
        A POST request has a JSON object.
    gate
        Who may pass.
    work
        Takes the object and makes that of the reply; a `SemtokenError` becomes an answer with status 400.
    needs_token
        See `Gate.check`.
    """
    writes = request.method == "POST"
    try:
        gate.check(request.scope, writes=writes, needs_token=needs_token)
        body = await _body(request) if writes else {}
        return JSONResponse(await to_thread.run_sync(work, body), headers=NO_STORE)
    except ApiError as error:
        return error.response()
    except SemtokenError as error:
        return ApiError(400, str(error)).response()


async def _body(request: Request) -> dict[str, Any]:
    if "application/json" not in request.headers.get("content-type", ""):
        raise ApiError(415, "Send JSON (Content-Type: application/json).")
    raw = b""
    async for piece in request.stream():
        raw += piece
        if len(raw) > LONGEST_BODY:
            raise ApiError(413, f"The request is larger than {LONGEST_BODY:,} bytes.")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "The body of the request is not JSON.") from error
    if not isinstance(found, dict):
        raise ApiError(400, "The body of the request must be a JSON object.")
    return found
