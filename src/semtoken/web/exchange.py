"""The route by which a server takes another calibrator."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.gate import Gate
from semtoken.web.guarded import guarded
from semtoken.web.running import is_one_of_several, tell_the_others
from semtoken.web.wire import ApiError


def add_exchange(app: Any, calibrators: CalibratorSlot, gate: Gate) -> None:
    """Add POST /semtoken/calibrator, which takes `{"action": "reload"}` or `{"action": "back"}` with the token.

    Of several processes the one that gets the request tells the others, which follow within moments.

    Parameters
    ----------
    app
        The server (FastAPI).
    calibrators
        Holds the calibrator that decides.
    gate
        Knows the token.
    """

    def work(body: dict[str, Any]) -> dict[str, Any]:
        actions = {"reload": calibrators.reload, "back": calibrators.back}
        action = body.get("action")
        if not isinstance(action, str) or action not in actions:
            raise ApiError(400, 'Send {"action": "reload"} or {"action": "back"}.', param="action")
        if action == "back" and is_one_of_several():
            raise ApiError(
                400,
                "This server has several processes, which cannot go back together. Put the former calibrator in the "
                "place of this one (`semtoken journal calibrators URL --take CHECKSUM -o FOLDER --overwrite` writes "
                'what the journal has kept of it), and send {"action": "reload"}.',
            )
        told = actions[action]()
        tell_the_others()
        current = calibrators.current
        return {"told": told, "calibrator": None if current is None else current.checksum}

    async def exchange(request: Request) -> Response:
        return await guarded(request, gate, work, needs_token=True)

    app.add_route("/semtoken/calibrator", exchange, methods=["POST"])
