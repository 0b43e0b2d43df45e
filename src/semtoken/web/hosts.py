"""Who may call a server that asks for no password: the names it answers to, and the pages that may use it.

A page of another site can make a browser send requests to a server on its own machine, under the server's name or,
by a name of its own that points there, under that. Such requests carry a foreign `Origin` or `Host`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from semtoken.web.wire import ApiError

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Any]

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
ANY = "*"


class HostGuard:
    """An ASGI application in front of another one, which sees only requests under allowed names.

    Parameters
    ----------
    app
        The application.
    hosts
        Names (without ports) that `Host` may have; "*" for all.
    origins
        Values that `Origin` may have besides the allowed hosts' own; "*" for all.
    """

    def __init__(self, app: App, hosts: Sequence[str], origins: Sequence[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] == "http" and (refused := self._refusal(scope)) is not None:
            await refused.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Message) -> ApiError | None:
        hosts, origins = (
            [value.decode("latin-1") for key, value in scope["headers"] if key == name] for name in (b"host", b"origin")
        )
        foreign = [host for host in hosts if host and host_name(host) not in self._hosts]
        if ANY not in self._hosts and foreign:
            return ApiError(403, f"This server does not answer to the name {foreign[0][:100]!r}.", code="foreign_host")
        if not all(self._may_call(origin.lower(), hosts[0] if hosts else "") for origin in origins):
            return ApiError(403, "This server takes no requests from pages of other sites.", code="foreign_origin")
        return None

    def _may_call(self, origin: str, host: str) -> bool:
        if ANY in self._origins or origin in self._origins:
            return True
        name = host_name(origin.partition("://")[2])
        return bool(name) and (name in self._hosts or name == host_name(host))


def host_name(host: str) -> str:
    """The name in a `Host` header, without the port; "" where there is none, or the header is malformed."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def hosts_for(bound_to: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """The names that a server answers to: those given; else the machine's own if only it can reach the server."""
    if allowed:
        return (*LOOPBACK_HOSTS, *allowed)
    return LOOPBACK_HOSTS if bound_to in LOOPBACK_HOSTS or bound_to.startswith("127.") else (ANY,)
