"""The upstream's answer on its way to the client: untouched, or with an uncertainty added to each choice."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import perf_counter

import anyio.to_thread
import httpx

from semtoken.web.proxy.client import Client
from semtoken.web.proxy.editing import Hidden, edited
from semtoken.web.proxy.events import EventSplitter, with_data
from semtoken.web.proxy.scoring import ReplyScorer
from semtoken.web.proxy.transport import Headers, forwarded
from semtoken.web.wire import EVENT_STREAM

LONG_ANSWER = 50  # steps; about 10 ms of scoring
LAST_EVENT = re.compile(rb'"finish_reason"\s*:\s*"')
CHANGED = (b"content-length", b"content-encoding")


class Answer:
    """An answer of the upstream whose head has come."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._rest = response.aiter_raw()
        self._begun = b""

    @property
    def status(self) -> int:
        """Its HTTP status."""
        return self.response.status_code

    @property
    def headers(self) -> Headers:
        """Its headers as they were sent."""
        return self.response.headers.raw

    @property
    def kind(self) -> str:
        """Its media type."""
        return str(self.response.headers.get("content-type", "")).partition(";")[0].strip().lower()

    @property
    def encoding(self) -> str:
        """How its body is compressed; "identity": it is not."""
        return str(self.response.headers.get("content-encoding", "identity")).strip().lower()

    async def beginning(self, limit: int) -> bytes:
        """The first bytes of its body, a piece more than `limit` at most; `pieces` gives them again."""
        while len(self._begun) <= limit:
            piece = await anext(self._rest, None)
            if piece is None:
                break
            self._begun += piece
        return self._begun

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its body as it was sent."""
        if self._begun:
            yield self._begun
        async for piece in self._rest:
            yield piece


async def relay_untouched(answer: Answer, client: Client) -> None:
    """Pass the answer on byte for byte.

    Raises
    ------
    httpx.TransportError
        The upstream broke off; what came before has been passed on.
    """
    await client.begin(answer.status, forwarded(answer.headers))
    async for piece in answer.pieces():
        await client.write(piece)
    await client.end()


@dataclass
class Scoring:
    """Scores of one answer, and how they are put into it."""

    scorer: ReplyScorer
    hidden: Hidden | None
    limit: int
    """Bytes of a reply or event beyond which it is not scored."""
    seconds: float = 0.0
    """Time that reading, scoring and editing have taken."""

    def reply(self, text: str) -> str:
        """A whole reply, edited."""
        return self._timed(text, whole=True)

    def chunk(self, text: str) -> str:
        """A chunk of a stream, edited."""
        return self._timed(text, whole=False)

    def _timed(self, text: str, *, whole: bool) -> str:
        start = perf_counter()
        try:
            return edited(text, self.hidden, self.scorer.reply if whole else self.scorer.chunk)
        finally:
            self.seconds += perf_counter() - start


async def relay_reply(answer: Answer, client: Client, scoring: Scoring) -> None:
    """Pass a JSON reply on with its scores, or untouched if it is too long or nothing can be added to it.

    Raises
    ------
    httpx.TransportError
        The upstream broke off; what came before has been passed on.
    """
    raw = bytearray()
    pieces = answer.pieces()
    try:
        async for piece in pieces:
            raw += piece
            if len(raw) > scoring.limit:
                scoring.scorer.give_up("too_large")
                await _rest(answer, client, bytes(raw), pieces)
                return
    except httpx.TransportError:
        await client.begin(answer.status, forwarded(answer.headers))
        await client.write(bytes(raw))
        raise
    changed = await anyio.to_thread.run_sync(_edited_reply, bytes(raw), answer.encoding, scoring)
    if changed is None:
        await client.begin(answer.status, forwarded(answer.headers))
        await client.write(bytes(raw))
    else:
        length = (b"content-length", str(len(changed)).encode())
        await client.begin(answer.status, [*forwarded(answer.headers, *CHANGED), length])
        await client.write(changed)
    await client.end()


def _edited_reply(raw: bytes, encoding: str, scoring: Scoring) -> bytes | None:
    """The reply with its scores; None if it cannot be read, or stays as it is."""
    try:
        text = _unpacked(raw, encoding, scoring.limit).decode()
    except (ValueError, zlib.error):
        scoring.scorer.give_up("encoded")
        return None
    changed = scoring.reply(text)
    return None if changed == text else changed.encode()


def _unpacked(raw: bytes, encoding: str, limit: int) -> bytes:
    """A body without its compression, which was not asked for.

    Raises
    ------
    ValueError, zlib.error
        It is compressed in another way, damaged, or larger than `limit` bytes.
    """
    if encoding == "identity":
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"unknown encoding {encoding}")
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip and zlib, whichever it is
    unpacked = unpacking.decompress(raw, limit)
    if not unpacking.eof:
        raise ValueError("too long, or cut off")
    return unpacked


async def _rest(answer: Answer, client: Client, begun: bytes, pieces: AsyncIterator[bytes]) -> None:
    """The whole answer untouched, of which a part was read."""
    await client.begin(answer.status, forwarded(answer.headers))
    await client.write(begun)
    async for piece in pieces:
        await client.write(piece)
    await client.end()


async def relay_stream(answer: Answer, client: Client, scoring: Scoring) -> None:
    """Pass a stream of events on, each with its scores as soon as it is complete.

    Raises
    ------
    httpx.TransportError
        The upstream broke off; what came before has been passed on.
    """
    await client.begin(answer.status, forwarded(answer.headers, b"content-length"))
    splitter = EventSplitter()
    pieces = answer.pieces()
    try:
        async for piece in pieces:
            await client.write(b"".join([await _edited_event(event, scoring) for event in splitter.feed(piece)]))
            if len(splitter.pending) > scoring.limit:
                scoring.scorer.give_up("too_large")
                break
    except httpx.TransportError:
        await client.write(splitter.pending)
        raise
    await client.write(splitter.pending)
    async for piece in pieces:
        await client.write(piece)
    await client.end()


async def _edited_event(event: bytes, scoring: Scoring) -> bytes:
    """An event with its scores. The last one of a long answer scores all of it: not while others wait."""
    if scoring.scorer.steps > LONG_ANSWER and LAST_EVENT.search(event):
        return await anyio.to_thread.run_sync(with_data, event, scoring.chunk)
    return with_data(event, scoring.chunk)


def is_stream(answer: Answer) -> bool:
    """Whether the answer comes in events that can be read."""
    return answer.kind == EVENT_STREAM and answer.encoding == "identity"
