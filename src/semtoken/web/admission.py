"""How many requests run at one time, in all and of one client; what comes beyond is refused before any work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from semtoken.web.wire import ApiError


class Admission:
    """Counts the requests that run.

    Parameters
    ----------
    most
        Requests at one time.
    most_per_client
        Of them, those of one address.
    """

    def __init__(self, most: int, most_per_client: int) -> None:
        self._most = most
        self._most_per_client = most_per_client
        self._running: Counter[str] = Counter()

    @contextmanager
    def admitted(self, address: str) -> Iterator[None]:
        """Count a request of a client among those that run.

        Raises
        ------
        ApiError
            There are too many: 503, or 429 where they are those of one client.
        """
        if self._running.total() >= self._most:
            raise ApiError(
                503,
                "Too many requests run at this time. Try again later.",
                kind="overloaded_error",
                code="overloaded",
                retry_after=1,
            )
        if self._running[address] >= self._most_per_client:
            raise ApiError(429, "Too many requests of yours run.", code="too_many_requests", retry_after=1)
        self._running[address] += 1
        try:
            yield
        finally:
            self._running[address] -= 1
            if not self._running[address]:
                del self._running[address]


class Admitted:
    """An ASGI application in front of another one, which answers as many POST requests at one time as are admitted.

    Parameters
    ----------
    app
        The application.
    admission
        Counts its requests.
    """

    def __init__(self, app: Any, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on, or answer 503 or 429."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        try:
            with self._admission.admitted(str(client[0]) if client else ""):
                await self._app(scope, receive, send)
        except ApiError as error:
            await error.response()(scope, receive, send)
