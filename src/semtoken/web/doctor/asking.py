"""One server over HTTP: questions in each shape, and the replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from semtoken.core.engine_tokens import TopStep
from semtoken.errors import SemtokenError
from semtoken.replies import Reply, ReplyStream, read_reply
from semtoken.replies.formats import ProbeQuestion, Shape
from semtoken.support.http_client import HttpClient, HttpReply, checked_base_url, key_from

LONGEST_REPLY = 256 * 2**20
"""Most bytes of a reply: some servers list a whole vocabulary for every token."""


class Connection:
    """The server that is examined, at an address of HTTP without password and parameters."""

    def __init__(self, base_url: str, *, key_env: str = "OPENAI_API_KEY", timeout: float = 30.0) -> None:
        self.base_url = checked_base_url(base_url)
        # A connection for each request: what one of them breaks does no harm to the next.
        self._client = HttpClient(
            base_url, key=key_from(key_env), timeout=timeout, keep_alive=False, longest_reply=LONGEST_REPLY
        )

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
        return self._client.get(self.base_url + path)

    def post(self, path: str, body: Mapping[str, Any], *, at_root: bool = False) -> HttpReply:
        """POST a JSON body to a path below `base_url`, or with `at_root` below the engine's root."""
        return self._client.post((self.root if at_root else self.base_url) + path, body)


REFUSALS = (400, 422)


@dataclass(frozen=True)
class ProbeReply:
    """A reply to a test request, or the reason why it could not be read."""

    answer: HttpReply
    parsed_reply: Reply | None
    reason: str | None = None

    @property
    def steps(self) -> tuple[TopStep, ...]:
        """All steps of the reply's first choice; none if it could not be read."""
        if self.parsed_reply is None:
            return ()
        return tuple(step for segment in self.parsed_reply.choices[0].segments for step in segment.steps)

    @property
    def problem(self) -> str | None:
        """Why the first choice's lists give no score; None if they give one, or could not be read."""
        parts = () if self.parsed_reply is None or not self.steps else self.parsed_reply.choices[0].segments
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
        answer = self.connection.post(shape.path, self._body(shape, question) | {"stream": True})
        if not answer.ok:
            return ProbeReply(answer, None, answer.reason)
        stream = ReplyStream(temperature=question.temperature)
        try:
            for piece in answer.pieces:
                stream.feed(piece)
            return ProbeReply(answer, stream.finish())
        except SemtokenError as error:
            return ProbeReply(answer, None, str(error))

    def _body(self, shape: type[Shape], question: ProbeQuestion) -> dict[str, Any]:
        """The body of a question without the fields that were rejected, or with others in their place."""
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
        return ProbeReply(answer, read_reply(answer.body, temperature=temperature))
    except SemtokenError as error:
        return ProbeReply(answer, None, str(error))
