"""Answers of the upstream without their compression, which was not asked for."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from semtoken.web.proxy.upstream import BrokenOff, UpstreamAnswer

MEMBER = b"\x1f"
"""The first byte of a member of gzip. A body may have several, one after the other (RFC 1952, 2.2)."""
UNPACKED = 2**12
"""Most bytes of a piece of an unpacked stream: they may be hundreds of events, and others wait while they are read."""


def unpacked(raw: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body, which came compressed although that was not asked for.

    `ValueError` or `zlib.error` if it is compressed in another way or in several members of gzip, damaged, or larger
    than `limit` bytes.
    """
    if encoding == "identity":
        return raw
    unpacking = _unpacking(encoding)
    unpacked: bytes = unpacking.decompress(raw, limit)
    if not unpacking.eof:
        raise ValueError("too long, or cut off")
    if unpacking.unused_data.startswith(MEMBER):
        raise ValueError("more than one member")
    return unpacked


def _unpacking(encoding: str) -> Any:
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"unknown encoding {encoding}")
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip and zlib, whichever it is


class UnpackedBody:
    """The body of an answer without its compression, piece by piece, `limit` bytes at most if it came compressed."""

    def __init__(self, answer: UpstreamAnswer, limit: int) -> None:
        self.too_large = False
        self._answer = answer
        self._left = limit
        self._unpacking = None if answer.encoding == "identity" else _unpacking(answer.encoding)
        self._rest = b""

    async def piece(self) -> bytes:
        """The next piece; b"" at the end. `BrokenOff` also if it cannot be unpacked, or is `too_large`."""
        if self._unpacking is None:
            return await self._answer.piece()
        while True:
            if self._rest:
                await asyncio.sleep(0)  # a few bytes may unpack to many pieces: others have their turn between them
            else:
                self._rest = await self._answer.piece()
            if not self._rest:
                if not self._unpacking.eof:
                    raise BrokenOff(stalled=False)
                return b""
            if self._unpacking.eof:
                if not self._rest.startswith(MEMBER):
                    self._rest = b""  # padding
                    continue
                self._unpacking = _unpacking(self._answer.encoding)
            try:
                chunk: bytes = self._unpacking.decompress(self._rest, UNPACKED)
            except zlib.error as error:
                raise BrokenOff(stalled=False) from error
            self._rest = self._unpacking.unconsumed_tail or self._unpacking.unused_data
            self._left -= len(chunk)
            self.too_large = self._left < 0
            if self.too_large:
                raise BrokenOff(stalled=False)
            if chunk:
                return chunk


async def can_be_unpacked(answer: UpstreamAnswer) -> bool:
    """Return True if a compressed stream, which was not asked for, can be decompressed."""
    if answer.encoding == "identity":
        return True
    try:
        _unpacking(answer.encoding).decompress(await answer.beginning(0), 1)
    except (ValueError, zlib.error):
        return False
    return True
