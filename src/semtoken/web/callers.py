"""Rules for the callers of a server: the names that it answers to, the pages that may use it, and its token.

A page of another site can make a browser send requests to a server on its own machine, under the name of the server or,
by a name of its own that points there, under that. Such requests carry a foreign `Origin` or `Host`.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from semtoken.errors import SemtokenError
from semtoken.support.files.strict_json import parse_json
from semtoken.web.incoming import read_body
from semtoken.web.wire import ApiError

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
ANY = "*"


class HostGuard:
    """An ASGI application in front of another one, which sees only requests under allowed names, and from pages of
    these hosts or of allowed origins; "*" allows all.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], origins: Sequence[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] == "http" and (refused := self._refusal(scope)) is not None:
            await refused.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
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
        scheme, _, address = origin.partition("://")
        name = host_name(address)
        return bool(scheme and name) and (name in self._hosts or name == host_name(host))


def host_name(host: str) -> str:
    """The name in a `Host` header without the port; "" for a missing or malformed header."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and parts.username is None and (parts.port or 0) >= 0  # asking checks the port
        return (parts.hostname or "").lower() if whole else ""
    except ValueError:
        return ""


def hosts_for(bound_to: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """The names that a server answers to: this machine's own and the allowed ones. If none is allowed, and other
    machines can reach the server, it answers to any ("*").
    """
    if allowed:
        return (*LOOPBACK_HOSTS, *allowed)
    return LOOPBACK_HOSTS if bound_to in LOOPBACK_HOSTS or bound_to.startswith("127.") else (ANY,)


HOW = "Set SEMTOKEN_TOKEN where the server starts, and send it as `Authorization: Bearer TOKEN`."


@dataclass(frozen=True)
class Gate:
    """The rule that says which requests a server answers, by their token and origin."""

    token: str | None = field(default=None, repr=False)
    """The token that requests must carry. None: requests pass only from this machine, and only if `loopback_only`."""
    loopback_only: bool = False
    """True if the server answers to names of this machine only, so that no other one can reach it."""

    @classmethod
    def from_environment(cls) -> Gate:
        """The gate with the token in SEMTOKEN_TOKEN, if that is set."""
        return cls(os.environ.get("SEMTOKEN_TOKEN") or None)

    def check(self, scope: Mapping[str, Any], *, writes: bool = False, needs_token: bool = False) -> None:
        """Raise `ApiError` (401 or 403, with what to do) for a request that the rule refuses, by its ASGI scope.

        One that `writes` a browser may send for this server's own page only. `needs_token`: being on this machine is
        not enough.
        """
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        has_token = self._has_token(headers.get("authorization", ""))
        if not has_token and (self.token is not None or needs_token):
            raise ApiError(401, f"This needs the server's token. {HOW}", code="token_needed")
        client = scope.get("client")
        here = self.loopback_only and client is not None and client[0] in LOOPBACK_HOSTS
        if not has_token and not here:
            raise ApiError(403, f"Other machines may see the journal only with a token. {HOW}", code="token_needed")
        if writes:
            _check_origin(headers, has_token=has_token)

    def _has_token(self, authorization: str) -> bool:
        kind, _, given = authorization.partition(" ")
        if self.token is None or kind.lower() != "bearer":
            return False
        # In constant time: how long a comparison takes must not reveal how much of a token is right.
        return hmac.compare_digest(given.strip().encode(), self.token.encode())


def _check_origin(headers: Mapping[str, str], *, has_token: bool) -> None:
    """Refuse what a browser sends for a page that is not this server's own."""
    origin, host = headers.get("origin"), headers.get("host", "")
    # Browsers set this field themselves, and no page can change it.
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ApiError(403, "Only this server's own page may write.", code="foreign_origin")
    if origin is None and has_token:
        return  # a program, no browser
    if not host or origin not in (f"http://{host}", f"https://{host}"):
        raise ApiError(403, "Only this server's own page may write; programs need the token.", code="foreign_origin")


LONGEST_BODY = 2**14
SECONDS_FOR_BODY = 30.0
NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


async def answer_guarded(
    request: Request, gate: Gate, work: Callable[[dict[str, Any]], dict[str, Any]], *, needs_token: bool = False
) -> Response:
    """Answer a request in a thread if the gate lets it pass, else with an error.

    `work` takes the JSON object of a POST request and makes that of the reply; its `SemtokenError` has status 400.
    """
    writes = request.method == "POST"
    try:
        gate.check(request.scope, writes=writes, needs_token=needs_token)
        body = await _body(request) if writes else {}
        return JSONResponse(await anyio.to_thread.run_sync(work, body), headers=NO_STORE)
    except ApiError as error:
        return error.response()
    except SemtokenError as error:
        return ApiError(400, str(error)).response()


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"The request is larger than {limit:,} bytes.")


async def _body(request: Request) -> dict[str, Any]:
    if "application/json" not in request.headers.get("content-type", ""):
        raise ApiError(415, "Send JSON (Content-Type: application/json).")
    try:
        body = parse_json(await read_body(request.receive, LONGEST_BODY, SECONDS_FOR_BODY, refusal=_too_large))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "The body of the request is not JSON.") from error
    if not isinstance(body, dict):
        raise ApiError(400, "The body of the request must be a JSON object.")
    return body
