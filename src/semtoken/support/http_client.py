"""The one HTTP client of everything that asks a server: busy servers are waited for, and keys are never shown.

    with HttpClient(url, key=key) as client:
        values = client.post(f"{url}/chat/completions", body).json()

Several threads may use it at a time. A reply is bounded after decompression. A redirect is not followed, since it would
take the key elsewhere. Requests to this machine go through no proxy of the environment.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from threading import Event
from types import TracebackType
from typing import Any
from urllib.parse import SplitResult

from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.extras import require
from semtoken.support.inputs import shown_address, split_address
from semtoken.support.plain_values import json_or_none
from semtoken.support.text import error_text

AT_ONCE = 8
"""Requests to one server that are under way at a time."""
TIMEOUT = 600.0
"""Seconds that a server may be silent."""
LONGEST_REPLY = 64 * 2**20
"""Most bytes of a reply, after decompression."""
ENCODINGS = ("", "identity", "gzip", "deflate")
"""The encodings that a reply may have: 64 KiB of these become 66 MB at most, of others gigabytes."""
MISSING_PAGE = (404, 405, 501)


@dataclass(frozen=True)
class Retries:
    """The failures after which a request is sent again, and how often.

    Before each further try a half, one, two, four and then eight seconds pass, or as many as the server asks for
    (`Retry-After`). A server that asks for more than `longest` is not waited for.
    """

    most: int = 8
    statuses: frozenset[int] = frozenset({429, 503})
    lost: bool = False
    """True if a request is repeated whose connection was lost or silent: only one without an effect may be."""
    longest: float = 60.0


WHILE_BUSY = Retries()
"""Only what the server did not begin: it had too much to do (429), or was loading its model (503)."""


@dataclass(frozen=True)
class HttpReply:
    """A server's reply: its status, its body, in which the key is never shown, and its headers."""

    url: str
    """The address that was asked, as messages may show it."""
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if the server answered with success."""
        return self.status == 200

    @property
    def missing(self) -> bool:
        """True if the server has no such endpoint."""
        return self.status in MISSING_PAGE

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    @property
    def values(self) -> Any:
        """The body parsed as JSON; None if it is not JSON."""
        return json_or_none(self.body)

    @property
    def is_page(self) -> bool:
        """True if it is a web page for people and not what was asked for."""
        kind = self.headers.get("content-type", "").lower()
        return "html" in kind or self.body[:200].lstrip().lower().startswith((b"<!doctype html", b"<html"))

    @property
    def reason(self) -> str:
        """The server's reason for a refusal, on one line."""
        if self.is_page:
            return f"HTTP {self.status}: a web page"
        if 300 <= self.status < 400 and (place := self.headers.get("location")):
            return f"HTTP {self.status}: it sends requests on to {place[:200]}. Give that address, if you trust it"
        values = self.values
        said = values.get("error", values.get("detail", values)) if isinstance(values, Mapping) else values
        text = error_text(said) if said is not None else self.text[:200].strip()
        return f"HTTP {self.status}" + (f": {text[:200]}" if text else "")

    def json(self) -> Any:
        """The body of a successful reply parsed as JSON; `BackendError` if it is none, with the server's reason."""
        if not self.ok:
            raise BackendError(f"{self.url} gave no answer: {self.reason}")
        values = self.values
        if values is None and self.body.strip() != b"null":
            kind = "a web page (HTML)" if self.is_page else f"no JSON: {self.text[:100]!r}"
            raise BackendError(f"{self.url} gave no answer but {kind}. Is that the address of an API?")
        return values


class HttpClient:
    """Asks one server. `InvalidInputError` if its address is not one of HTTP, or the key cannot be one."""

    def __init__(
        self,
        address: str,
        *,
        key: str | None = None,
        timeout: float = TIMEOUT,
        at_once: int = AT_ONCE,
        retries: Retries = WHILE_BUSY,
        longest_reply: int = LONGEST_REPLY,
        keep_alive: bool = True,
        within: float = math.inf,
        before: Callable[[], Any] = lambda: None,
    ) -> None:
        """`key` is sent with every request; `before` is called before each one, to slow them down.

        `timeout` is how long the server may be silent, `within` how long a whole reply may take, in seconds.
        """
        parts = _http_address(address)
        self._httpx = require("httpx", extra="serve")
        self._shown, self._timeout, self._longest = shown_address(address), timeout, longest_reply
        self._within = within
        self._retries, self._before, self._stopping = retries, before, Event()
        self._key = (key or "").strip()
        # A line end would begin another header, and the errors of HTTP libraries show the value that they refuse.
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise InvalidInputError("The key for the server holds a space or a character that no key has.")
        headers = {"accept-encoding": "identity"} | ({"authorization": f"Bearer {self._key}"} if self._key else {})
        self._client = self._httpx.Client(
            # No limit on the wait for a free connection: the requests before it may take as long as they need.
            timeout=self._httpx.Timeout(timeout, pool=None),
            headers=headers,
            limits=self._httpx.Limits(max_connections=at_once, max_keepalive_connections=None if keep_alive else 0),
            trust_env=not is_this_machine(parts.hostname or ""),
        )

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def stop_waiting(self) -> None:
        """End all waits for a busy server: requests that wait end with the reply that they have."""
        self._stopping.set()

    def get(self, url: str) -> HttpReply:
        """GET an address of the server; raises as `post`."""
        return self._asked("GET", url, None)

    def post(self, url: str, body: Mapping[str, Any]) -> HttpReply:
        """POST a JSON body to an address of the server; a status that says no is a reply, too.

        `BackendError` if the server cannot be reached, is silent or sends too much, `InvalidInputError` if the body is
        no JSON.
        """
        try:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"The request cannot be written as JSON: {error}.") from error
        return self._asked("POST", url, content)

    def _asked(self, method: str, url: str, content: bytes | None) -> HttpReply:
        tenacity = require("tenacity", extra="serve")
        retries, growing = self._retries, tenacity.wait_exponential(multiplier=0.5, max=8)

        def is_busy(reply: HttpReply) -> bool:
            return reply.status in retries.statuses and _asked_wait(reply.headers) <= retries.longest

        def wait(state: Any) -> float:
            failed = state.outcome.failed
            asked = 0.0 if failed else _asked_wait(state.outcome.result().headers)
            return asked or float(growing(state))

        again = tenacity.retry_if_result(is_busy)
        if retries.lost:
            again |= tenacity.retry_if_exception_type(_Lost)
        trying = tenacity.Retrying(
            retry=again,
            wait=wait,
            stop=tenacity.stop_after_attempt(retries.most + 1) | tenacity.stop_when_event_set(self._stopping),
            sleep=tenacity.sleep_using_event(self._stopping),
            retry_error_callback=lambda state: state.outcome.result(),  # the last reply or failure, as it is
        )
        reply: HttpReply = trying(self._sent, method, url, content)
        return reply

    def _sent(self, method: str, url: str, content: bytes | None) -> HttpReply:
        self._before()
        kind = {} if content is None else {"content-type": "application/json"}
        with self._explained(), self._client.stream(method, url, content=content, headers=kind) as reply:
            encoding = reply.headers.get("content-encoding", "").strip().lower()
            if encoding not in ENCODINGS:
                raise BackendError(f"{self._shown} sent a reply encoded as {encoding[:40]!r}, which was not asked for.")
            body = b"".join(self._pieces(reply))
        headers = {name.lower(): self._without_key(value) for name, value in reply.headers.items()}
        if self._key:  # it must not be shown, whatever the server sends back
            body = body.replace(self._key.encode(), b"[key]")
        return HttpReply(shown_address(url), reply.status_code, body, headers)

    def _pieces(self, reply: Any) -> Iterator[bytes]:
        size, begun = 0, time.monotonic()
        for piece in reply.iter_bytes():
            if time.monotonic() - begun > self._within:
                raise BackendError(f"{self._shown} took more than {self._within:g} seconds for one reply.")
            size += len(piece)
            if size > self._longest:
                raise BackendError(f"{self._shown} sent more than {self._longest // 2**20} MiB for one reply.")
            yield piece

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Failures of the connection as one sentence without the key."""
        try:
            yield
        except self._httpx.TimeoutException as error:
            raise _Lost(
                f"{self._shown} was silent for {self._timeout:g} seconds. Is it busy, or still loading its model?"
            ) from error
        except self._httpx.ConnectError as error:
            raise _Lost(
                f"{self._shown} cannot be reached ({error}). Is the server running, and is the address right?"
            ) from error
        except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            said = self._without_key(str(error)) or type(error).__name__
            raise _Lost(f"{self._shown} broke the connection off ({said}).") from None


class _Lost(BackendError):
    """A request got no reply."""


def checked_base_url(url: str) -> str:
    """An address of an API that may be written to files, without a slash at its end.

    `InvalidInputError` if it is not one of HTTP, or holds a user name, a password or parameters.
    """
    parts = _http_address(url)
    if parts.username or parts.password or parts.query:
        raise InvalidInputError(
            f"The address of the endpoint at {parts.hostname} holds a password or parameters. It is written to reports "
            "and files: put the key into an environment variable and name that."
        )
    return url.rstrip("/")


def is_this_machine(host: str) -> bool:
    """Return True if a host is surely this machine: what is sent to it must go through no proxy.

    >>> [is_this_machine(host) for host in ("localhost", "127.3.2.1", "::1", "example.com")]
    [True, True, True, False]
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def key_from(variable: str) -> str | None:
    """The key in an environment variable; None if it is not set or empty."""
    return os.environ.get(variable, "").strip() or None


def _http_address(url: str) -> SplitResult:
    parts = split_address(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInputError(f"The address of the endpoint must be like http://127.0.0.1:8000/v1; got {url!r:.200}.")
    return parts


def _asked_wait(headers: Mapping[str, str]) -> float:
    """The seconds that a busy server asks to wait: a number, or the time until a date; 0 if it does not say."""
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said) if said else 0.0
    except ValueError:
        try:
            seconds = parsedate_to_datetime(said).timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
