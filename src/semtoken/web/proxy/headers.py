"""The headers of requests and answers, of which some belong to one connection only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade"}
)


def forwarded_headers(headers: Headers, *without: bytes) -> list[tuple[bytes, bytes]]:
    """The headers that are passed on, in order, without those of the connection and those named here."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    dropped = HOP_BY_HOP | named | set(without)
    return [(name, value) for name, value in headers if name.lower() not in dropped]
