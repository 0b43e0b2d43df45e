"""Requests that are scored: what the client asked for, and what the upstream is asked for in its place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from unicodedata import normalize
from urllib.parse import unquote

from semtoken.web.block import BlockOptions, read_options
from semtoken.web.proxy.editing import ALL, Hidden
from semtoken.web.proxy.splice import document, set_members, without

Endpoint = Literal["chat", "completions"]
LONGEST_SHAPE = 500
DECODED = 3
"""Times that a path is decoded to see what it may mean: servers behind gateways decode more than once."""
ANSWERING = frozenset(
    {"chat", "conversations", "generate", "generatestream", "infill", "invocations", "messages", "responses"}
    | {"slots", "threads"}
)
"""Segments of the paths at which servers give answers, besides those that hold "completion"."""
_LIMIT = re.compile(
    r"(?:<=|≤|at most|up to|less than or equal to|no more than|(?:maximum|max|limit)(?: \w+){0,3})"
    r"\s*(?:is|of|:|=)?\s*(\d{1,4})(?![\d.]*\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Asked:
    """A request for an answer that can be scored."""

    endpoint: Endpoint
    body: Mapping[str, Any]
    """What the client sent, without the field `semtoken`."""
    sent: bytes
    """The same as it goes to the upstream where nothing is asked for beyond it."""
    options: BlockOptions
    """What the client wants of the block."""
    kept: int | None
    """Log-probabilities a token that the client asked for besides the chosen token's; None: it asked for none."""

    @property
    def model(self) -> str:
        """The model's name, "" if there is none."""
        name = self.body.get("model")
        return name if isinstance(name, str) else ""

    @property
    def shape(self) -> str:
        """What an upstream's refusal may depend on: the model, the fields of the request, and its switches."""
        fields = (
            f"{name}={value}" if isinstance(value, bool | None) else name for name, value in sorted(self.body.items())
        )
        return f"{self.model} {' '.join(fields)}"[:LONGEST_SHAPE]

    @property
    def temperature(self) -> float | None:
        """The temperature, if the request names one."""
        value = self.body.get("temperature")
        return value if isinstance(value, int | float) else None

    @property
    def obstacle(self) -> str | None:
        """Why the answer cannot be scored whatever the upstream sends, or None."""
        if self.body.get("echo"):
            return "With echo the reply repeats the prompt; ask without it to have the answer scored."
        return None

    def asking(self, top: int, *, token_ids: bool) -> bytes:
        """The request that asks for `top` log-probabilities a token, or more if the client does.

        Ids spelled as token texts ("token_id:7") are asked for only where the client does not see the texts.
        """
        wanted = -1 if self.kept == ALL else max(top, self.kept or 0)
        ours = {"logprobs": True, "top_logprobs": wanted} if self.endpoint == "chat" else {"logprobs": wanted}
        ids: dict[str, Any] = {"return_token_ids": True} if token_ids else {}
        if token_ids and self.kept is None:
            ids["return_tokens_as_token_ids"] = True
        text = self.sent.decode()
        return set_members(text, document(text), ours | ids).encode()

    def hidden(self, *, token_ids: bool) -> Hidden:
        """What of the reply to `asking` the client did not ask for."""
        return Hidden(self.kept, token_ids and not self.body.get("return_token_ids"))


def endpoint_of(path: str) -> Endpoint | None:
    """Which kind of answer is to be had at a path, None for all others."""
    if path.endswith("/chat/completions"):
        return "chat"
    return "completions" if path.endswith("/completions") else None


def shows_answers(path: str) -> bool:
    """Whether some server might take a path for one where answers are to be had, in whatever spelling.

    Servers drop slashes at the end, parameters of segments and blanks, decode more than once, and fold letters.

    >>> shows_answers("/v1/Chat/completions%20;x/"), shows_answers("/v1/embeddings")
    (True, False)
    """
    for _ in range(DECODED):
        path = unquote(path)
    segments = re.split(r"[/\\]", normalize("NFKC", path).casefold())
    names = ["".join(filter(str.isalpha, segment.partition(";")[0])) for segment in segments]
    return any(name in ANSWERING or "completion" in name for name in names)


def read_request(endpoint: Endpoint, body: bytes) -> Asked | None:
    """The request, or None if it is nothing that we understand: the upstream is to judge it.

    Raises
    ------
    ApiError
        The field `semtoken`, which is ours, holds something else than is known.
    """
    try:
        text = body.decode()
        found = _loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    marked = "semtoken" in found
    wanted = read_options(found.pop("semtoken", None)) if marked else BlockOptions(running=False)
    kept = _kept_in_chat(found) if endpoint == "chat" else _kept_in_completion(found)
    if kept == "unknown":
        return None
    sent = without(text, document(text), "semtoken").encode() if marked else body
    return Asked(endpoint, found, sent, wanted, kept)


def _kept_in_chat(body: Mapping[str, Any]) -> int | Literal["unknown"] | None:
    switch, top = body.get("logprobs"), body.get("top_logprobs")
    if not isinstance(switch, bool | None) or not (top is None or type(top) is int):
        return "unknown"
    if not switch:
        return None if top is None else "unknown"  # an error, which the upstream is to tell
    return ALL if top == -1 else top or 0


def _kept_in_completion(body: Mapping[str, Any]) -> int | Literal["unknown"] | None:
    top = body.get("logprobs")
    if top is None:
        return None
    if type(top) is not int:
        return "unknown"
    return ALL if top == -1 else top


def _loads(body: str) -> Any:
    """JSON, of which every number is one."""

    def number(digits: str) -> float:
        value = float(digits)
        if value in (float("inf"), -float("inf")):
            raise ValueError(f"{digits} is too large for a number")
        return value

    return json.loads(body, parse_float=number, parse_constant=_no_constant)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def lower_limit(message: str, asked: int) -> int | None:
    """The number of log-probabilities that an upstream's refusal names as its most, or None."""
    numbers = (int(found[1]) for found in _LIMIT.finditer(message))
    return max((number for number in numbers if 0 < number < asked), default=None)
