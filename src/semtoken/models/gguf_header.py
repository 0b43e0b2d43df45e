"""Whether the counts in the header of a GGUF file can be true: readers of such files believe all of them.

A reader that is told of 2^40 elements looks for them one by one, and never ends. Here every count is held against the
bytes that are left before anything is read for it. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path
from typing import Any

from semtoken.errors import ModelError

MAGIC = b"GGUF"
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by the number of its type."""
STRING, ARRAY = 8, 9
LEAST_FIELD, LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes of the shortest ones
MOST_ELEMENTS = 2**24  # of one array; a large vocabulary has 2^18 tokens and twice as many merges
MOST_DIMENSIONS = 8
ELEMENTS_A_BYTE = 8  # of tensors, at most


def check_header(path: Path) -> None:
    """Refuse a file that cannot be what its header says.

    Raises
    ------
    ModelError
        It cannot be read, is no GGUF file, or a count in it is larger than the file allows.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelError(f"{path} is not a GGUF file. Is the download complete?")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _Header(data).check()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, struct.error) as error:
        reason = "it ends within its header" if isinstance(error, struct.error) else error
        raise ModelError(f"{path} is damaged or incomplete: {reason}. Download it again.") from error


class _Header:
    """The header of a file, read from its beginning to its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(MAGIC)
        self._order = "<"

    def check(self) -> None:
        """Raise ValueError or struct.error unless every count fits."""
        if not self._number("I") & 0xFFFF:
            self._order = ">"
        tensors, fields = self._number("Q"), self._number("Q")
        self._require(tensors, LEAST_TENSOR, "tensors")
        self._require(fields, LEAST_FIELD, "fields")
        for _ in range(fields):
            self._skip(self._count(1, "bytes in a name"))
            self._value(self._number("I"))
        for _ in range(tensors):
            self._tensor()

    def _value(self, kind: int) -> None:
        if kind == STRING:
            self._skip(self._count(1, "bytes in a text"))
        elif kind == ARRAY:
            self._array()
        elif kind in WIDTHS:
            self._skip(WIDTHS[kind])
        else:
            raise ValueError(f"there is no type {kind} of values")

    def _array(self) -> None:
        kind = self._number("I")
        if kind == ARRAY:
            raise ValueError("an array of arrays, which llama.cpp does not read either")
        if kind != STRING and kind not in WIDTHS:
            raise ValueError(f"there is no type {kind} of values")
        count = self._count(WIDTHS.get(kind, 8), "elements in an array")
        if count > MOST_ELEMENTS:
            raise ValueError(f"{count:,} elements in an array; {MOST_ELEMENTS:,} are allowed")
        if kind != STRING:
            self._skip(count * WIDTHS[kind])
            return
        for _ in range(count):
            self._skip(self._count(1, "bytes in a text"))

    def _tensor(self) -> None:
        self._skip(self._count(1, "bytes in a name"))
        dimensions = self._number("I")
        if dimensions > MOST_DIMENSIONS:
            raise ValueError(f"a tensor of {dimensions:,} dimensions")
        elements = prod(self._number("Q") for _ in range(dimensions))
        if elements > ELEMENTS_A_BYTE * len(self._data):
            raise ValueError(f"a tensor of {elements:,} elements in a file of {len(self._data):,} bytes")
        self._skip(4)
        if self._number("Q") > len(self._data):
            raise ValueError("a tensor beyond the end of the file")

    def _number(self, kind: str) -> Any:
        found = struct.unpack_from(self._order + kind, self._data, self._at)[0]
        self._at += struct.calcsize("<" + kind)
        return found

    def _count(self, least: int, what: str) -> int:
        """A count of things that have at least so many bytes each."""
        count = int(self._number("Q"))
        self._require(count, least, what)
        return count

    def _require(self, count: int, least: int, what: str) -> None:
        left = len(self._data) - self._at
        if count * least > left:
            raise ValueError(f"{count:,} {what}, where {left:,} bytes are left")

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("it ends within its header")
