"""What a proxy is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from semtoken.errors import InvalidInput

MEBIBYTE = 2**20


@dataclass(frozen=True)
class ProxySettings:
    """The settings of one proxy."""

    upstream: str
    """Address of the server behind it: `http(s)://host[:port][/path]`, with or without `/v1` at its end."""
    top_logprobs: int = 20
    """How many best log-probabilities a token to ask for; an upstream that gives fewer is asked for fewer."""
    token_ids: bool = False
    """Ask for token ids in the way of vLLM and SGLang. Other servers may refuse the fields."""
    proxy_for: str | None = None
    """The upstream's model, where the clusters come from another one with the same tokenizer."""
    max_request_bytes: int = 32 * MEBIBYTE
    """Longer requests are refused (413)."""
    max_scored_bytes: int = 64 * MEBIBYTE
    """Replies or events of a stream that are longer pass unscored."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection with the upstream."""
    read_timeout: float = 600.0
    """Seconds to wait for the next piece of its answer."""
    max_connections: int = 1000
    """Connections with the upstream at one time; more requests wait."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.upstream)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"The upstream must be an address such as http://127.0.0.1:8000, got {self.upstream!r}.")
        if self.top_logprobs < 1:
            raise InvalidInput(f"top_logprobs must be at least 1, got {self.top_logprobs}.")
        for name in ("max_request_bytes", "max_scored_bytes", "connect_timeout", "read_timeout", "max_connections"):
            if getattr(self, name) <= 0:
                raise InvalidInput(f"{name} must be positive, got {getattr(self, name)}.")

    @property
    def base(self) -> str:
        """The upstream's address without `/v1` and slashes at its end: requests bring their own path."""
        return self.upstream.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def shown_upstream(self) -> str:
        """The upstream's address for people: without a password."""
        parts = urlsplit(self.base)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
