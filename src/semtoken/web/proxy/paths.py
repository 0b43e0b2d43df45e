"""Paths of requests: which ones leave the upstream's, and which ones may show an answer."""

from __future__ import annotations

import re
from unicodedata import normalize
from urllib.parse import unquote, unquote_to_bytes

from semtoken.web.wire import ApiError

DECODED = 3
"""Times that a path is decoded to see what it may mean: servers behind gateways decode more than once."""
ANSWERING = frozenset(
    {"chat", "conversations", "generate", "generatestream", "infill", "invocations", "messages", "responses"}
    | {"slots", "threads"}
)
"""Segments of the paths at which servers give answers, besides those that hold "completion"."""


def check_target(target: bytes) -> None:
    """Check that a path stays below the upstream's.

    Raises
    ------
    ApiError
        It does not begin with a slash, or has a fragment or a segment "." or "..", in whatever spelling.
    """
    if not target.startswith(b"/") or b"#" in target:
        raise ApiError(400, "The proxy forwards to its upstream only: ask for a path.", code="bad_target")
    path = target.partition(b"?")[0]
    for _ in range(DECODED):
        segments = re.split(rb"[/\\]", path)
        if any(segment.partition(b";")[0] in (b".", b"..") for segment in segments):
            raise ApiError(400, 'A path must not have the segments "." and "..".', code="bad_target")
        path = unquote_to_bytes(path)


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
