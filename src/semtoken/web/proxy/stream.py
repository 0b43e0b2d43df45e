"""A stream of the upstream on its way to the client, each event with its scores as soon as it is complete.

The last piece of an answer's content is held back for a moment, so that it can carry the final score: gateways make a
new chunk of the one that ends the answer.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from semtoken.errors import InvalidInputError
from semtoken.support.sse import Event, EventReader
from semtoken.web.proxy.client import Client
from semtoken.web.proxy.editing import LocatedReply
from semtoken.web.proxy.scoring import Block, ReplyScorer
from semtoken.web.proxy.stream_scoring import StreamScorer
from semtoken.web.proxy.unpacking import UnpackedBody
from semtoken.web.proxy.upstream import BrokenOff, UpstreamAnswer, forwarded_headers
from semtoken.web.wire import event

LARGE = 2**15  # bytes of an event from which on it is read in a thread
DONE = "[DONE]"
SHORT = 100  # characters that it has at most, with blanks
TOO_LARGE = "An event of the stream is larger than the proxy reads (--limits.reply-mb)."


@dataclass
class Piece:
    """An event that is to be sent to the client, with its scores."""

    sent: Event
    reply: LocatedReply | None = None
    """The parsed event; None where there is nothing to score, so that it passes as it came."""
    blocks: dict[int, Block] = field(default_factory=dict)
    content_of: int | None = None
    """The index of the choice whose content it carries, if that goes on and it carries nothing else."""
    done: bool = False
    """True if the event says that the stream is complete."""

    def final_block(self, index: int | None) -> Block | None:
        """The block of a choice, if it ends with this event."""
        block = None if index is None else self.blocks.get(index)
        return block if block is not None and block.get("final") else None


async def relay_stream(answer: UpstreamAnswer, client: Client, reply: ReplyScorer) -> None:
    """Pass a stream of events on, each with its scores as soon as it is complete.

    An event that is too long, and all that come after it, pass unscored. A compressed stream that unpacks to more than
    the limit is broken off there: a few bytes may stand for gigabytes.
    """
    packed = [] if answer.encoding == "identity" else [b"content-encoding"]
    await client.begin(answer.status, forwarded_headers(answer.headers, b"content-length", *packed))
    limit = reply.settings.max_scored_bytes
    source = UnpackedBody(answer, limit)
    reader = EventReader(longest=sys.maxsize)  # what is too long is passed on
    scorer = StreamScorer(reply)
    held = HeldPieces(scorer)
    try:
        while reader.size <= limit and (part := await held.next_part(source, client)):
            out = [held.pass_on(await _scored(sent, scorer)) for sent in reader.feed(part)]
            await client.write(b"".join(out))
    except BrokenOff:
        if source.too_large:
            reply.pass_on("too_large")
        await client.write(held.release() + reader.pending)
        raise
    rest = reader.pending
    if len(rest) <= limit:
        for sent in reader.finish():  # without a blank line behind it
            # A stream that was cut off in the middle of an event passes as it came.
            if sent.is_whole:
                await client.write(held.pass_on(await _scored(sent, scorer)))
                rest = rest[len(sent.raw) :]
    await client.write(held.release() + rest)
    if len(rest) > limit:
        reply.pass_on("too_large")
        while part := await source.piece():
            await client.write(part)
    else:
        scorer.trailer()  # nothing is added to a stream that does not mark its end, but its answer is counted, too
    await client.end()


async def _scored(sent: Event, scorer: StreamScorer) -> Piece:
    """An event with its scores; in a thread where that takes long, so that others need not wait."""
    reply = scorer.reply
    if len(sent.raw) > reply.settings.max_scored_bytes:
        reply.fail("too_large", TOO_LARGE)
        return Piece(sent)
    if len(sent.raw) >= LARGE:
        await reply.settle()
        return await reply.in_thread(lambda: _with_blocks(_read(sent, reply), scorer))
    piece = _read(sent, reply)
    if piece.reply is None or not piece.reply.ends:
        return _with_blocks(piece, scorer)
    # Before the final score, which depends on what the numbers are; asking the upstream takes a request.
    await reply.settle()
    score = partial(_with_blocks, piece, scorer)
    return await reply.in_thread(score) if reply.takes_long else score()


def _read(sent: Event, reply: ReplyScorer) -> Piece:
    """Parse an event; if it cannot be read, the answer gets no score."""
    try:
        data = sent.data
        if not data or sent.is_ping:
            return Piece(sent)
        if len(data) < SHORT and data.strip() == DONE:
            return Piece(sent, done=True)
        if sent.kind == "error":
            raise ValueError("the server reports an error")
        return Piece(sent, reply.editor.read(data))
    except (InvalidInputError, ValueError) as error:
        reply.fail("not_understood", f"An event of the stream was not understood: {error}")
        return Piece(sent)


def _with_blocks(piece: Piece, scorer: StreamScorer) -> Piece:
    """Score an event that has been parsed."""
    if piece.reply is not None:
        piece.blocks = scorer.blocks(piece.reply)
        # An event with several choices carries content of more than one, so it is not held back.
        [place] = piece.reply.places if len(piece.reply.places) == 1 else [None]
        piece.content_of = place.choice if place is not None and place.goes_on else None
    return piece


class HeldPieces:
    """The last event with content and those after it, held until more content comes, the answer ends, or time is up."""

    def __init__(self, scorer: StreamScorer) -> None:
        self._scorer = scorer
        self._hold = scorer.reply.settings.hold
        self._loop = asyncio.get_running_loop()
        self._pieces: list[Piece] = []
        self._until = 0.0

    async def next_part(self, source: UnpackedBody, client: Client) -> bytes:
        """Wait for the upstream's next piece, empty at its end; what is held too long is sent meanwhile."""
        if self._pieces:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    return await source.piece()
            await client.write(self.release())
        return await source.piece()

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
        if self._hold and piece.content_of is not None:
            self._pieces.append(piece)
            self._until = self._loop.time() + self._hold
            return out
        return out + self._bytes(piece)

    def release(self) -> bytes:
        """Hold the pieces no longer; returns their bytes, for the client."""
        out = b"".join(map(self._bytes, self._pieces))
        self._pieces.clear()
        return out

    def _bytes(self, piece: Piece) -> bytes:
        """The bytes of an event for the client, behind the scores that are still due where it ends the stream."""
        trailer = self._scorer.trailer() if piece.done else None
        due = b"" if trailer is None else event(trailer)
        if piece.reply is None:
            return due + piece.sent.raw
        # An event in which nothing changes keeps its own bytes, spelling and all.
        changed = self._scorer.reply.editor.edited(piece.reply, piece.blocks)
        return due + (piece.sent.raw if changed == piece.reply.json.text else piece.sent.with_data(changed))
