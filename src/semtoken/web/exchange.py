"""The routes by which a server takes another calibrator, of answers or of typed decisions."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.gate import Gate
from semtoken.web.guarded import guarded
from semtoken.web.running import is_one_of_several, tell_the_others
from semtoken.web.wire import ApiError

FROM_JOURNAL = (
    " (`semtoken journal calibrators URL --take CHECKSUM -o FOLDER --overwrite` writes what the journal has kept of it)"
)


def add_exchange(
    app: Any, path: str, calibrators: CalibratorSlot[Any], gate: Gate, *, kept_by_journal: bool = False
) -> None:
    """Add a route that takes POST with `{"action": "reload"}` or `{"action": "back"}` and the token.

    Of several processes the one that gets the request tells the others, which follow within moments.

    Parameters
    ----------
    app
        The server (FastAPI).
    path
        Of the route.
    calibrators
        Holds the calibrator that decides.
    gate
        Knows the token.
    kept_by_journal
        Whether a journal keeps the calibrators that were in use, so that a former one can be had from it.
    """
    where = FROM_JOURNAL if kept_by_journal else ""

    def work(body: dict[str, Any]) -> dict[str, Any]:
        actions = {"reload": calibrators.reload, "back": calibrators.back}
        action = body.get("action")
        if not isinstance(action, str) or action not in actions:
            raise ApiError(400, 'Send {"action": "reload"} or {"action": "back"}.', param="action")
        if action == "back" and is_one_of_several():
            raise ApiError(
                400,
                "This server has several processes, which cannot go back together. Put the former calibrator in the "
                f'place of this one{where}, and send {{"action": "reload"}}.',
            )
        told = actions[action]()
        tell_the_others()
        current = calibrators.current
        return {"told": told, "calibrator": None if current is None else current.checksum}

    async def exchange(request: Request) -> Response:
        return await guarded(request, gate, work, needs_token=True)

    app.add_route(path, exchange, methods=["POST"])
