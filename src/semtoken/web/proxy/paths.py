"""Rules for the paths of requests, however they are spelled: those that leave the upstream, give answers, are ours."""

from __future__ import annotations

import re
from unicodedata import normalize
from urllib.parse import unquote, unquote_to_bytes

from semtoken.web.wire import ApiError

DECODED = 3
"""The number of times that a path is decoded to see what it may mean: servers behind gateways decode more than once."""
ANSWERING = frozenset(
    {"batch", "batches", "chat", "conversations", "edits", "infer", "infill", "interactions", "invocations", "messages"}
    | {"predict", "responses", "slots", "threads"}
)
"""Segments of the paths at which servers give answers, besides those that hold "completion" or "generat"."""


def check_target(target: bytes) -> None:
    """Check that a path stays below the upstream's.

    `ApiError` if it does not begin with a slash, or has a fragment or a segment "." or "..", in whatever spelling.
    """
    # HTTP allows a whole address here, and an HTTP client would go to that one.
    if not target.startswith(b"/") or b"#" in target:
        raise ApiError(400, "The proxy forwards to its upstream only: ask for a path.", code="bad_target")
    path = target.partition(b"?")[0]
    for _ in range(DECODED):
        segments = re.split(rb"[/\\]", path)
        # Java's servers take what follows a semicolon for parameters and drop it.
        if any(segment.partition(b";")[0] in (b".", b"..") for segment in segments):
            raise ApiError(400, 'A path must not have the segments "." and "..".', code="bad_target")
        path = unquote_to_bytes(path)


def shows_answers(path: str) -> bool:
    """Return True if a server might take a path, in any spelling that servers accept, for one that answers prompts.

    >>> shows_answers("/v1/Chat/completions%20;x/"), shows_answers("/v1/embeddings")
    (True, False)
    """
    for _ in range(DECODED):
        path = unquote(path)
    # Servers differ in which of these they take for equal, so the loosest one decides.
    segments = re.split(r"[/\\]", normalize("NFKC", path).casefold())
    names = ["".join(filter(str.isalpha, segment.partition(";")[0])) for segment in segments]
    return any(name in ANSWERING or "completion" in name or "generat" in name for name in names)


def is_own(path: str) -> bool:
    """True if a path, in any spelling, is below `/semtoken`: requests there may carry the token of this proxy's own
    routes, which the upstream must not see, whether or not there is such a route.

    >>> is_own("/semtoken/review"), is_own("//%73emtoken;x/%2e"), is_own("/v1/models")
    (True, True, False)
    """
    for _ in range(DECODED):
        path = unquote(path)
    segments = filter(None, re.split(r"[/\\]", normalize("NFKC", path).casefold()))
    return next(segments, "").partition(";")[0].strip() == "semtoken"
