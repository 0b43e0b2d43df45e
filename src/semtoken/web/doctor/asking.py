"""One server over HTTP: questions in each shape and the replies, with a time limit and a key that is never shown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from semtoken.engine_tokens import TopStep
from semtoken.errors import BackendError, InvalidInput, SemtokenError
from semtoken.payloads import Payload, PayloadStream, read_payload
from semtoken.payloads.formats import ProbeQuestion, Shape
from semtoken.payloads.formats.base import error_text
from semtoken.support.extras import require
from semtoken.support.inputs import split_address

LONGEST_REPLY = 256 * 2**20
MISSING_PAGE = (404, 405, 501)


@dataclass(frozen=True)
class HttpReply:
    """What the server answered: its status, its body, in which the key is never shown, and its headers."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the server answered with success."""
        return self.status == 200

    @property
    def missing(self) -> bool:
        """Whether the server has no such endpoint."""
        return self.status in MISSING_PAGE

    @property
    def values(self) -> Any:
        """The body parsed as JSON; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def reason(self) -> str:
        """The server's reason for a refusal, on one line."""
        values = self.values
        said = values.get("error", values.get("detail", values)) if isinstance(values, Mapping) else values
        text = error_text(said) if said is not None else self.body[:200].decode("utf-8", "replace").strip()
        return f"HTTP {self.status}" + (f": {text[:200]}" if text else "")


class Connection:
    """A connection to the server that is examined, at an address of HTTP without password and parameters."""

    def __init__(self, base_url: str, *, key_env: str = "OPENAI_API_KEY", timeout: float = 30.0) -> None:
        parts = split_address(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"The address must be like http://127.0.0.1:8000/v1; got {base_url!r}.")
        if parts.username or parts.password or parts.query:
            raise InvalidInput(
                f"The address at {parts.hostname} holds a password or parameters. It is shown in reports: put the key "
                "into an environment variable and name that with --key-env."
            )
        self.base_url = base_url.rstrip("/")
        self._httpx = require("httpx", extra="serve")
        self._key = os.environ.get(key_env, "").strip()
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        # A connection for each request: what one of them breaks does no harm to the next.
        limits = self._httpx.Limits(max_keepalive_connections=0)
        direct = parts.hostname == "localhost" or parts.hostname == "::1" or parts.hostname.startswith("127.")
        self._client = self._httpx.Client(
            timeout=timeout,
            headers=headers,
            limits=limits,
            trust_env=not direct,  # what is sent to this machine, the key too, goes through no proxy
        )
        self._timeout = timeout

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    @property
    def root(self) -> str:
        """The address without `/v1`, where engines have pages of their own."""
        return self.base_url.removesuffix("/v1")

    def get(self, path: str) -> HttpReply:
        """GET a path below `base_url`."""
        return self._sent("GET", self.base_url + path)[0]

    def post(self, path: str, body: Mapping[str, Any], *, at_root: bool = False) -> HttpReply:
        """POST a JSON body to a path below `base_url`, or with `at_root` below the engine's root."""
        return self._sent("POST", (self.root if at_root else self.base_url) + path, body)[0]

    def stream(self, path: str, body: Mapping[str, Any]) -> tuple[HttpReply, list[bytes]]:
        """Ask for a stream; returns the reply with the pieces in which its body came."""
        return self._sent("POST", self.base_url + path, body)

    def _sent(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> tuple[HttpReply, list[bytes]]:
        with self._explain_failures(), self._client.stream(method, url, json=body) as reply:
            pieces = list(self._pieces(reply))
        shown = b"".join(pieces)
        if self._key:  # it must not be shown, whatever the server sends back
            shown = shown.replace(self._key.encode(), b"[key]")
        return HttpReply(reply.status_code, shown, reply.headers), pieces

    def _pieces(self, reply: Any) -> Iterator[bytes]:
        size = 0
        for piece in reply.iter_bytes():
            size += len(piece)
            if size > LONGEST_REPLY:
                raise BackendError(f"{self.base_url} sent more than {LONGEST_REPLY // 2**20} MiB for one short reply.")
            yield piece

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        try:
            yield
        except self._httpx.TimeoutException as error:
            raise BackendError(
                f"{self.base_url} was silent for {self._timeout:g} seconds. Is it busy, or still loading its model? "
                "Give it longer with --timeout."
            ) from error
        except self._httpx.ConnectError as error:
            raise BackendError(
                f"{self.base_url} cannot be reached ({error}). Is the server running, and is the address right?"
            ) from error
        except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            raise BackendError(
                f"{self.base_url} broke the connection off ({error or type(error).__name__})."
            ) from error


REFUSALS = (400, 422)


@dataclass(frozen=True)
class ProbeReply:
    """A reply to a test request, or the reason why it could not be read."""

    answer: HttpReply
    payload: Payload | None
    reason: str | None = None

    @property
    def steps(self) -> tuple[TopStep, ...]:
        """All steps of the reply's first choice; none if it could not be read."""
        if self.payload is None:
            return ()
        return tuple(step for segment in self.payload.choices[0].segments for step in segment.steps)

    @property
    def problem(self) -> str | None:
        """Why the first choice's lists give no score; None if they give one, or could not be read."""
        parts = () if self.payload is None or not self.steps else self.payload.choices[0].segments
        return next((part.problem for part in parts if part.problem), None)


class Asker:
    """Asks one model of a server, and learns which optional fields it does not take."""

    def __init__(self, connection: Connection, model: str) -> None:
        self.connection = connection
        self.model = model
        self.requests = 0
        self._renamed: dict[str, str | None] = {}

    def ask(self, shape: type[Shape], question: ProbeQuestion) -> ProbeReply:
        """Ask a question in a shape; `BackendError` if the server cannot be reached or is silent."""
        while True:
            body = self._body(shape, question)
            self.requests += 1
            answer = self.connection.post(shape.path, body, at_root=not shape.below_v1)
            if not self._learns(answer, body):
                return _read(answer, question.temperature)

    def stream(self, shape: type[Shape], question: ProbeQuestion) -> ProbeReply:
        """Ask a question in a shape for a stream; returns what the whole stream says."""
        self.requests += 1
        answer, pieces = self.connection.stream(shape.path, self._body(shape, question) | {"stream": True})
        if not answer.ok:
            return ProbeReply(answer, None, answer.reason)
        stream = PayloadStream(temperature=question.temperature)
        try:
            for piece in pieces:
                stream.feed(piece)
            return ProbeReply(answer, stream.finish())
        except SemtokenError as error:
            return ProbeReply(answer, None, str(error))

    def _body(self, shape: type[Shape], question: ProbeQuestion) -> dict[str, Any]:
        """The body of a question without the fields that were refused, or with others in their place."""
        body = shape.body(replace(question, model=self.model))
        names = {name: self._renamed.get(name, name) for name in body}
        return {new: body[name] for name, new in names.items() if new is not None}

    def _learns(self, answer: HttpReply, body: Mapping[str, Any]) -> bool:
        """Whether a refusal names a field that can be left out or spelled otherwise."""
        if answer.status not in REFUSALS:
            return False
        reason = answer.reason
        if "max_tokens" in body and "max_completion_tokens" in reason:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return True
        for name in ("temperature", "seed"):
            if name in body and name in reason:
                self._renamed[name] = None
                return True
        return False

    @property
    def takes_temperature(self) -> bool:
        """Whether the server has not refused a temperature so far."""
        return "temperature" not in self._renamed


def _read(answer: HttpReply, temperature: float | None) -> ProbeReply:
    if not answer.ok:
        return ProbeReply(answer, None, answer.reason)
    try:
        return ProbeReply(answer, read_payload(answer.body, temperature=temperature))
    except SemtokenError as error:
        return ProbeReply(answer, None, str(error))
