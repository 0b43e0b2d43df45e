"""Answers that the upstream compressed although nobody asked for it."""

from __future__ import annotations

import zlib
from typing import Any

from semtoken.web.proxy.upstream import Answer, BrokenOff

PIECE = 2**16
"""Bytes of the longest piece of an unpacked stream."""


def unpacked(raw: bytes, encoding: str, limit: int) -> bytes:
    """A body without its compression, which was not asked for.

    Raises
    ------
    ValueError, zlib.error
        It is compressed in another way, damaged, or larger than `limit` bytes.
    """
    if encoding == "identity":
        return raw
    unpacking = _unpacking(encoding)
    unpacked: bytes = unpacking.decompress(raw, limit)
    if not unpacking.eof:
        raise ValueError("too long, or cut off")
    return unpacked


def _unpacking(encoding: str) -> Any:
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"unknown encoding {encoding}")
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip and zlib, whichever it is


class Unpacked:
    """The body of an answer without its compression, piece by piece."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._unpacking = None if answer.encoding == "identity" else _unpacking(answer.encoding)
        self._rest = b""

    async def piece(self) -> bytes:
        """The next piece; b"" at the end.

        Raises
        ------
        BrokenOff
            The upstream broke off, or its compression is damaged.
        """
        if self._unpacking is None:
            return await self._answer.piece()
        while True:
            self._rest = self._rest or await self._answer.piece()
            if not self._rest:
                if not self._unpacking.eof:
                    raise BrokenOff(stalled=False)
                return b""
            try:
                found: bytes = self._unpacking.decompress(self._rest, PIECE)
            except zlib.error as error:
                raise BrokenOff(stalled=False) from error
            self._rest = self._unpacking.unconsumed_tail
            if found:
                return found


async def can_be_unpacked(answer: Answer) -> bool:
    """Whether a stream that is compressed, which was not asked for, can be read."""
    if answer.encoding == "identity":
        return True
    try:
        _unpacking(answer.encoding).decompress(await answer.beginning(0), 1)
    except (ValueError, zlib.error):
        return False
    return True
