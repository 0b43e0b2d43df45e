"""The upstream's answer on its way to the client: untouched, or with an uncertainty added to each choice."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from semtoken.errors import InvalidInputError
from semtoken.support.sse import Event, EventReader
from semtoken.web.limits import Busy, Workers
from semtoken.web.proxy.client import Client
from semtoken.web.proxy.editing import Blocks, Editor, LocatedReply
from semtoken.web.proxy.headers import forwarded_headers
from semtoken.web.proxy.scoring import BUSY, Block, ReplyScorer
from semtoken.web.proxy.unpacking import UnpackedBody, unpacked
from semtoken.web.proxy.upstream import BrokenOff, UpstreamAnswer
from semtoken.web.wire import EVENT_STREAM, JSON_LINES, ApiError, event

T = TypeVar("T")
LARGE = 2**15  # bytes of an event from which on it is read in a thread
SHORT_REPLY = 2**16
"""Bytes of a whole reply from which on it is read in a thread.

A thread that reads a shorter one would not spare the others that time, since both hold the interpreter's lock, and
handing the work over costs a tenth of it. How long scoring takes, its tokens tell.
"""
LONG_ANSWER = 50  # tokens of an answer from which on it is finished in a thread
CHANGED = (b"content-length", b"content-encoding")
DONE = "[DONE]"
SHORT = 100  # characters that it has at most, with blanks
TOO_LARGE = "An event of the stream is larger than the proxy reads (--limits.reply-mb)."


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


@dataclass
class Scoring:
    """Scores the choices of one answer, and puts the scores into it."""

    scorer: ReplyScorer
    editor: Editor
    workers: Workers
    limit: int
    """Bytes of a reply or event beyond which it is not scored."""
    hold: float
    """Seconds for which a piece of a stream may be held back."""
    settle: Callable[[], Awaitable[None]] | None = None
    """Finds out what the upstream's numbers are, where the reply that has been read leaves it open."""

    async def settled(self) -> None:
        """Wait for `settle`."""
        if self.settle is not None:
            await self.settle()

    @property
    def decides(self) -> bool:
        """Whether only accepted answers may be shown, so that an unreadable one must not be."""
        return self.editor.withheld is not None

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do slow work in a thread; if too much waits already, here, and the answer gets no score but that reason."""
        try:
            return await self.workers.run(work)
        except Busy:
            self.scorer.fail("busy", BUSY)
            return work()

    def read(self, sent: Event) -> LocatedReply | Piece:
        """Parse an event. One with nothing to score becomes a piece that passes unchanged; so does one that cannot be
        read, after which the answer gets no score.
        """
        try:
            data = sent.data
            if not data or sent.is_ping:
                return Piece(sent)
            if len(data) < SHORT and data.strip() == DONE:
                return Piece(sent, done=True)
            if sent.kind == "error":
                raise ValueError("the server reports an error")
            return self.editor.read(data)
        except (InvalidInputError, ValueError) as error:
            self.scorer.fail("not_understood", f"An event of the stream was not understood: {error}")
            return Piece(sent)

    def scored(self, sent: Event, parsed: LocatedReply | Piece) -> Piece:
        """Score an event that has been parsed."""
        if isinstance(parsed, Piece):
            return parsed
        blocks = self.scorer.event(parsed)
        # An event with several choices carries content of more than one, so it is not held back.
        [place] = parsed.places if len(parsed.places) == 1 else [None]
        content_of = place.choice if place is not None and place.goes_on else None
        return Piece(sent, parsed.json.text, partial(self.editor.edited, parsed), blocks, content_of)


@dataclass
class Piece:
    """An event, with its scores, that is to be sent to the client."""

    sent: Event
    data: str = ""
    edit: Callable[[Blocks], str] | None = None
    """Gives the JSON with some blocks, and without what is hidden."""
    blocks: dict[int, Block] = field(default_factory=dict)
    content_of: int | None = None
    """The index of the choice whose content it carries, if that goes on and it carries nothing else."""
    done: bool = False
    """Whether the event says that the stream is complete."""
    ends = False
    """Always false, unlike `LocatedReply.ends`: a piece has its scores, so that no final score is left to compute."""

    def final_block(self, index: int | None) -> Block | None:
        """The block of a choice, if it ends with this event."""
        block = None if index is None else self.blocks.get(index)
        return block if block is not None and block.get("final") else None

    def bytes(self) -> bytes:
        """The bytes that the client gets."""
        if self.edit is None:
            return self.sent.raw
        # An event in which nothing changes keeps its own bytes, spelling and all.
        changed = self.edit(self.blocks)
        return self.sent.raw if changed == self.data else self.sent.with_data(changed)


async def relay_reply(answer: UpstreamAnswer, client: Client, scoring: Scoring) -> None:
    """Pass a JSON reply on with its scores, or unchanged if it is too long or cannot be read.

    Where only accepted answers may be shown, it raises `ApiError` rather than pass a reply on unchanged, and passes
    nothing on of one that is `BrokenOff`.
    """
    try:
        raw = await answer.whole(scoring.limit)
    except BrokenOff as error:
        if not scoring.decides:
            await client.begin(answer.status, forwarded_headers(answer.headers))
            await client.write(error.came)
        raise
    if len(raw) > scoring.limit:
        scoring.scorer.pass_on("too_large")
        if scoring.decides:
            raise held_back_error()
        await relay_untouched(answer, client, raw, "too_large")
        return
    changed = await _scored_reply(raw, answer.encoding, scoring)
    if changed is not None:
        await send_changed(answer, client, changed)
    elif scoring.decides:
        raise held_back_error()
    else:
        await relay_untouched(answer, client, raw, scoring.scorer.gave_up)


async def _scored_reply(raw: bytes, encoding: str, scoring: Scoring) -> bytes | None:
    """The reply with its scores, or with the reason why it has none; None if it is to be passed on unchanged."""
    long = len(raw) >= SHORT_REPLY or encoding != "identity"
    try:
        reply = (
            await scoring.workers.run(partial(_read_reply, raw, encoding, scoring))
            if long
            else _read_reply(raw, encoding, scoring)
        )
    except Busy:
        scoring.scorer.pass_on("busy")
        return None
    await scoring.settled()
    if long or scoring.scorer.takes_long or scoring.scorer.tokens > LONG_ANSWER:
        return await scoring.in_thread(lambda: _edited(reply, scoring))
    return _edited(reply, scoring)


def _read_reply(raw: bytes, encoding: str, scoring: Scoring) -> LocatedReply | None:
    """Read a reply and its log-probabilities; None if it cannot be read."""
    try:
        text = unpacked(raw, encoding, scoring.limit).decode()
    except (ValueError, zlib.error):
        scoring.scorer.pass_on("encoded")
        return None
    try:
        reply = scoring.editor.read(text)
    except ValueError:
        return None
    scoring.scorer.read(reply)
    return reply


def _edited(reply: LocatedReply | None, scoring: Scoring) -> bytes | None:
    """A reply that was read with its scores; None if it stays as it is."""
    if reply is None:
        return None
    changed = scoring.editor.edited(reply, scoring.scorer.blocks(reply))
    return None if changed == reply.json.text else changed.encode()


async def send_changed(answer: UpstreamAnswer, client: Client, body: bytes) -> None:
    """Send a changed body to the client, with the status and headers of the upstream's answer."""
    length = (b"content-length", str(len(body)).encode())
    await client.begin(answer.status, [*forwarded_headers(answer.headers, *CHANGED), length])
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


async def relay_stream(answer: UpstreamAnswer, client: Client, scoring: Scoring) -> None:
    """Pass a stream of events on, each with its scores as soon as it is complete.

    An event that is too long, and all that come after it, pass unscored. A compressed stream that unpacks to more than
    the limit is broken off there: a few bytes may stand for gigabytes. The last piece of an answer's content is held
    back for a moment, so that it can carry the final score: gateways make a new chunk of the one that ends the answer.
    """
    packed = answer.encoding != "identity"
    await client.begin(
        answer.status, forwarded_headers(answer.headers, b"content-length", *([CHANGED[1]] if packed else []))
    )
    source = UnpackedBody(answer, scoring.limit)
    reader = EventReader(longest=sys.maxsize)  # what is too long is passed on
    held = HeldPieces(scoring, client)
    try:
        while reader.size <= scoring.limit and (part := await held.wait_for(source)):
            out = [held.pass_on(await _scored(sent, scoring)) for sent in reader.feed(part)]
            await client.write(b"".join(out))
    except BrokenOff:
        if source.too_large:
            scoring.scorer.pass_on("too_large")
        await client.write(held.release())
        await client.write(reader.pending)
        raise
    finally:
        # Or it would write to a client that has its answer already.
        held.look_no_more()
    rest = reader.pending
    if len(rest) <= scoring.limit:
        for sent in reader.finish():  # without a blank line behind it
            # A stream that was cut off in the middle of an event passes as it came.
            if sent.is_whole:
                await client.write(held.pass_on(await _scored(sent, scoring)))
                rest = rest[len(sent.raw) :]
    await client.write(held.release())
    await client.write(rest)
    if len(rest) > scoring.limit:
        scoring.scorer.pass_on("too_large")
        while part := await source.piece():
            await client.write(part)
    await client.end()


class HeldPieces:
    """The last event with content and those after it, held until more content comes, the answer ends, or a timer does.

    The timer is set again a few times a second: a limit on each wait for the upstream would cost more.
    """

    def __init__(self, scoring: Scoring, client: Client) -> None:
        self._scoring = scoring
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._pieces: list[Piece] = []
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._waits = False
        self._writing: asyncio.Task[None] | None = None

    async def wait_for(self, source: UnpackedBody) -> bytes:
        """Wait for the upstream's next piece, empty at its end; what is held too long is sent meanwhile."""
        self._waits = True
        if self._pieces and self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)
        try:
            return await source.piece()
        finally:
            self._waits = False
            if self._writing is not None:  # it was there first
                await self._writing
                self._writing = None

    def _look(self) -> None:
        self._timer = None
        if not (self._waits and self._pieces):
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self._writing = self._loop.create_task(self._client.write(self.release()))

    def look_no_more(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def pass_on(self, piece: Piece) -> bytes:
        """Add a piece; returns the bytes that can be sent to the client now."""
        if self._pieces:
            index = self._pieces[0].content_of
            final = piece.final_block(index)
            if index is not None and final is not None:
                # The records of all tokens are long, and the last event has them.
                self._pieces[0].blocks[index] = {name: value for name, value in final.items() if name != "tokens"}
            elif piece.content_of is None and not piece.done:
                self._pieces.append(piece)
                return b""
        out = self.release()
        if self._scoring.hold and piece.content_of is not None:
            self._pieces.append(piece)
            self._until = self._loop.time() + self._scoring.hold
            return out
        return out + _with_trailer(piece, self._scoring)

    def release(self) -> bytes:
        """Hold the pieces no longer; returns their bytes, for the client."""
        out = b"".join(_with_trailer(piece, self._scoring) for piece in self._pieces)
        self._pieces.clear()
        return out


def _with_trailer(piece: Piece, scoring: Scoring) -> bytes:
    trailer = scoring.scorer.trailer() if piece.done else None
    return piece.bytes() if trailer is None else event(trailer) + piece.bytes()


async def _scored(sent: Event, scoring: Scoring) -> Piece:
    """An event with its scores; in a thread where that takes long, so that others need not wait."""
    if len(sent.raw) > scoring.limit:
        scoring.scorer.fail("too_large", TOO_LARGE)
        return Piece(sent)
    parsed = None if len(sent.raw) >= LARGE else scoring.read(sent)
    takes_long = scoring.scorer.takes_long or scoring.scorer.tokens > LONG_ANSWER
    # Before the final score, which depends on what the numbers are; asking the upstream takes a request.
    if parsed is None or parsed.ends:
        await scoring.settled()
    if parsed is None or (takes_long and parsed.ends):
        piece = await scoring.in_thread(lambda: scoring.scored(sent, scoring.read(sent) if parsed is None else parsed))
    else:
        piece = scoring.scored(sent, parsed)
    return piece


def is_stream(answer: UpstreamAnswer) -> bool:
    """Whether the answer comes in events."""
    return answer.kind in (EVENT_STREAM, JSON_LINES)
