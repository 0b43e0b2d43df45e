"""Who may use the routes that read and write the journal: this machine, or whoever has the server's token."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from semtoken.web.hosts import LOOPBACK_HOSTS
from semtoken.web.wire import ApiError

HOW = "Set SEMTOKEN_TOKEN where the server starts, and send it as `Authorization: Bearer TOKEN`."


@dataclass(frozen=True)
class Gate:
    """The rule of one server."""

    token: str | None = field(default=None, repr=False)
    """None: nobody but this machine may pass."""
    loopback_only: bool = False
    """The server answers to names of this machine only, so that no other one can reach it."""

    def check(self, scope: Mapping[str, Any], *, writes: bool = False, needs_token: bool = False) -> None:
        """Let a request pass, or refuse it.

        Parameters
        ----------
        scope
            ASGI's, of the request.
        writes
            It changes something: a browser may send it for this server's own page only.
        needs_token
            Being on this machine is not enough.

        Raises
        ------
        ApiError
            401 or 403, with what to do.
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
        return hmac.compare_digest(given.strip().encode(), self.token.encode())


def _check_origin(headers: Mapping[str, str], *, has_token: bool) -> None:
    """Refuse what a browser sends for a page that is not this server's own."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ApiError(403, "Only this server's own page may write.", code="foreign_origin")
    if origin is None and has_token:
        return  # a program, no browser
    if not host or origin not in (f"http://{host}", f"https://{host}"):
        raise ApiError(403, "Only this server's own page may write; programs need the token.", code="foreign_origin")
