"""The settings that a proxy is given when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from semtoken.choices import Distribution
from semtoken.errors import InvalidInputError
from semtoken.replies.formats import served_shapes
from semtoken.support.files.safe_files import MEBIBYTE
from semtoken.support.inputs import one_of, split_address
from semtoken.web.callers import LOOPBACK_HOSTS


@dataclass(frozen=True)
class ProxySettings:
    """The settings of one proxy."""

    upstream: str
    """Address of the server behind the proxy: `http(s)://host[:port][/path]`, with or without `/v1` at its end."""
    top_logprobs: int = 20
    """The number of log-probabilities to ask for at each token; an upstream that gives fewer is asked for fewer."""
    methods: tuple[str, ...] = ()
    """Further methods of one pass, whose scores every block holds; a request may name others."""
    token_ids: bool = False
    """True to ask for token ids as vLLM and SGLang give them, which takes a vocabulary. Others may refuse."""
    distribution: Distribution | None = None
    """The distribution behind the upstream's log-probabilities, where its replies do not show it."""
    proxy_for: str | None = None
    """The upstream's model, where the clusters come from another one with the same tokenizer."""
    allowed_hosts: tuple[str, ...] = LOOPBACK_HOSTS
    """Names under which clients may reach the proxy; "*" for all. See `semtoken.web.callers`."""
    allowed_origins: tuple[str, ...] = ()
    """Pages of other sites that may call it from a browser, such as https://chat.example.org; "*" for all."""
    hold: float = 0.25
    """Seconds that a piece of a stream may be held back, so that the last one carries the final score. 0: none is."""
    decisions: str = "auto"
    """The treatment of typed questions: `pass` (the upstream answers them), the name of a shape (they are asked as
    texts in it), or `auto`: passed on where the upstream has a route for them, else asked as texts."""
    decision_requests: int = 8
    """The most requests of one proxy process that may ask typed questions as texts at one time."""
    decision_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of these requests, such as {"chat_template_kwargs": {"enable_thinking": false}}."""

    max_request_bytes: int = 32 * MEBIBYTE
    """Requests of more bytes than this are rejected (413)."""
    max_scored_bytes: int = 64 * MEBIBYTE
    """Replies, and events of a stream, of more bytes than this pass unscored."""
    max_scored_tokens: int = 32_768
    """Answers of more tokens than this pass unscored."""
    max_scoring_seconds: float = 30.0
    """Seconds that reading and scoring one reply may take; the rest of it passes unscored."""
    scoring_threads: int = 2
    """The number of threads that score replies."""
    scoring_queue: int = 64
    """The most pieces of work that may wait for these threads; further ones pass unscored."""

    max_connections: int = 1000
    """The most requests that may be under way at one time; further ones are rejected (503)."""
    max_connections_per_client: int = 500
    """The most requests of one address that may be under way at one time; further ones are rejected (429)."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection with the upstream."""
    read_timeout: float = 600.0
    """Seconds to wait for the next piece of the upstream's answer."""
    body_timeout: float = 120.0
    """Seconds that a client has for the body of a request."""
    request_timeout: float = 3600.0
    """Seconds that a request may take from its beginning to the end of its answer."""

    def __post_init__(self) -> None:
        parts = split_address(self.upstream)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInputError(
                f"The upstream must be an address such as http://127.0.0.1:8000, got {self.upstream!r}."
            )
        if self.top_logprobs < 1:
            raise InvalidInputError(f"top_logprobs must be at least 1, got {self.top_logprobs}.")
        ways = ("auto", "pass", *(shape.name for shape in served_shapes()))
        if self.decisions not in ways:
            raise InvalidInputError(f"decisions must be one of {', '.join(ways)}, got {self.decisions!r:.60}.")
        if self.distribution is not None:
            one_of("distribution", self.distribution, get_args(Distribution))
        if self.decision_requests < 1:
            raise InvalidInputError(f"decision_requests must be at least 1, got {self.decision_requests}.")
        if self.hold < 0:
            raise InvalidInputError(f"hold must be at least 0, got {self.hold}.")
        for name in (setting.name for setting in fields(self)):
            limits = name.startswith(("max_", "scoring_")) or name.endswith("_timeout")
            if limits and not getattr(self, name) > 0:
                raise InvalidInputError(f"{name} must be positive, got {getattr(self, name)}.")

    @property
    def base(self) -> str:
        """The upstream's address without `/v1` and slashes at its end: requests bring their own path."""
        return self.upstream.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def shown_upstream(self) -> str:
        """The upstream's address for people: without a password."""
        parts = split_address(self.base)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
