"""A whole answer of the upstream on its way to the client: untouched, or with an uncertainty added to each choice."""

from __future__ import annotations

from functools import partial

from semtoken.web.limits import Busy
from semtoken.web.proxy.client import Client
from semtoken.web.proxy.scoring import ReplyScorer
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
    long = len(raw) >= SHORT_REPLY or answer.encoding != "identity"
    reply = None
    if len(raw) > limit:
        scorer.pass_on("too_large")
    else:
        read = partial(scorer.read, raw, answer.encoding)
        try:
            reply = await scorer.workers.run(read) if long else read()
        except Busy:
            scorer.pass_on("busy")
    if reply is not None:
        await scorer.settle()
        edit = partial(scorer.edited, reply)
        changed = await scorer.in_thread(edit) if long or scorer.takes_long else edit()
        if changed != reply.json.text:
            await send_changed(answer, client, changed.encode())
            return
    if scorer.decides:
        raise held_back_error()
    await relay_untouched(answer, client, raw, scorer.gave_up)


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
