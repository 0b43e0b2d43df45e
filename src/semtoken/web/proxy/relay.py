"""A whole answer of the upstream on its way to the client: untouched, or with an uncertainty added to each choice."""

from __future__ import annotations

import zlib
from functools import partial

from semtoken.web.limits import Busy
from semtoken.web.proxy.client import Client
from semtoken.web.proxy.editing import LocatedReply
from semtoken.web.proxy.scoring import ReplyScorer
from semtoken.web.proxy.unpacking import unpacked
from semtoken.web.proxy.upstream import BrokenOff, UpstreamAnswer, forwarded_headers
from semtoken.web.wire import ApiError

SHORT_REPLY = 2**16
"""Bytes of a whole reply from which on it is read in a thread.

A thread that reads a shorter one would not spare the others that time, since both hold the interpreter's lock, and
handing the work over costs a tenth of it. How long scoring takes depends on the tokens of the reply.
"""


async def relay_untouched(
    answer: UpstreamAnswer, client: Client, begun: bytes = b"", unscored: str | None = None
) -> None:
    """Pass the answer on unchanged, after the bytes that were read; `unscored` gives the reason in a header."""
    note = [] if unscored is None else [(b"semtoken-unscored", unscored.encode("ascii", "replace"))]
    await client.begin(answer.status, [*forwarded_headers(answer.headers), *note])
    await client.write(begun)
    while piece := await answer.piece():
        await client.write(piece)
    await client.end()


async def relay_reply(answer: UpstreamAnswer, client: Client, scorer: ReplyScorer) -> None:
    """Pass a JSON reply on with its scores, or unchanged if it is too long or cannot be read.

    Where only accepted answers may be shown, it raises `ApiError` rather than pass a reply on unchanged, and passes
    nothing on of one that is `BrokenOff`.
    """
    limit = scorer.settings.max_scored_bytes
    try:
        raw = await answer.whole(limit)
    except BrokenOff as error:
        if not scorer.decides:
            await client.begin(answer.status, forwarded_headers(answer.headers))
            await client.write(error.came)
        raise
    changed = None
    if len(raw) > limit:
        scorer.pass_on("too_large")
    else:
        changed = await _with_scores(raw, answer.encoding, scorer)
    if changed is not None:
        await send_changed(answer, client, changed)
    elif scorer.decides:
        raise held_back_error()
    else:
        await relay_untouched(answer, client, raw, scorer.gave_up)


async def _with_scores(raw: bytes, encoding: str, scorer: ReplyScorer) -> bytes | None:
    """The reply with its scores, or with the reason why it has none; None if it is to be passed on unchanged."""
    long = len(raw) >= SHORT_REPLY or encoding != "identity"
    read = partial(_read, raw, encoding, scorer)
    try:
        reply = await scorer.workers.run(read) if long else read()
    except Busy:
        scorer.pass_on("busy")
        return None
    if reply is None:
        return None
    await scorer.settle()
    edit = partial(_edited, reply, scorer)
    changed = await scorer.in_thread(edit) if long or scorer.takes_long else edit()
    return None if changed == reply.json.text else changed.encode()


def _read(raw: bytes, encoding: str, scorer: ReplyScorer) -> LocatedReply | None:
    """Read a reply and its log-probabilities; None if it cannot be read."""
    try:
        text = unpacked(raw, encoding, scorer.settings.max_scored_bytes).decode()
    except (ValueError, zlib.error):
        scorer.pass_on("encoded")
        return None
    try:
        reply = scorer.editor.read(text)
    except ValueError:
        return None
    scorer.read(reply)
    return reply


def _edited(reply: LocatedReply, scorer: ReplyScorer) -> str:
    return scorer.editor.edited(reply, scorer.blocks(reply))


async def send_changed(answer: UpstreamAnswer, client: Client, body: bytes) -> None:
    """Send a changed body to the client, with the status and headers of the upstream's answer."""
    length = (b"content-length", str(len(body)).encode())
    kept = forwarded_headers(answer.headers, b"content-length", b"content-encoding")
    await client.begin(answer.status, [*kept, length])
    await client.write(body)
    await client.end()


def held_back_error() -> ApiError:
    """The error in place of an answer that cannot be decided, if only accepted ones are shown."""
    return ApiError(
        502,
        "The answer could not be scored, and this proxy shows accepted answers only (abstain_text).",
        kind="server_error",
        code="held_back",
    )
