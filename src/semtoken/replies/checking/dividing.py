"""The replies in one open file, which may be an array, lines, values one behind the other, or streams."""

from __future__ import annotations

import errno
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.replies.checking.saved_reply import NO_JSON, FoundReply, replies_inside
from semtoken.replies.formats.registry import (
    begins_another,
    choices_of,
    ends_stream,
    is_chunk,
    is_stream,
    is_surely_streamed,
    is_whole,
    stream_of,
)
from semtoken.replies.formats.within import branches
from semtoken.replies.score import body_of, is_batch, is_stream_text
from semtoken.support.files.elements import DECODER, Elements
from semtoken.support.files.record_files import read_records
from semtoken.support.files.safe_files import LARGEST_REPLIES, MEBIBYTE, bounded_lines
from semtoken.support.files.texts import decoded, is_utf8
from semtoken.support.plain_values import json_or_none
from semtoken.support.questions import question_of

GZIPPED = b"\x1f\x8b"
PACKED = {"zip": b"PK\x03\x04", "zstd": b"\x28\xb5\x2f\xfd", "bzip2": b"BZh", "xz": b"\xfd7zXZ"}
"""The first bytes of compressed files that are not read."""
PARQUET = b"PAR1"
TABLE = (
    "It is a table, and no cell of its first row holds a reply as JSON. A table of fields, as this command writes it, "
    "is for `semtoken label`."
)
_END_OF_STREAM = re.compile(r"(?<=data: \[DONE\])\s*(?=\S)|(?<=data:\[DONE\])\s*(?=\S)")


def replies_in(where: str, name: str, file: Any) -> Iterator[FoundReply]:
    """The replies of an open file. Lines and elements of JSON are given one by one, whatever the size of the file."""
    file = file if hasattr(file, "peek") else io.BufferedReader(file)
    beginning = file.peek(1)
    if beginning.startswith(GZIPPED) and not isinstance(file, gzip.GzipFile):
        try:
            with gzip.open(file, "rb") as unpacked:
                yield from replies_in(where, name, unpacked)
        except (EOFError, zlib.error) as error:
            yield FoundReply(where, name, fault=f"Its gzip is broken: {error}.")
        return
    if packed := next((kind for kind, mark in PACKED.items() if beginning.startswith(mark)), None):
        yield FoundReply(where, name, fault=f"It is compressed ({packed}): unpack it first, or use gzip.")
        return
    if beginning.startswith(PARQUET):
        yield from _of_table(where, name)
        return
    if beginning.lstrip().startswith(b"[") and is_utf8(beginning[:2]):
        yield from _of_array(where, name, Elements(file))
        return
    lines = bounded_lines(file)
    first = next(lines, b"")
    if first.startswith(b"{") and is_utf8(first) and isinstance(value := json_or_none(first), Mapping):
        begin = [first]
        for line in lines:
            begin.append(line)
            # One line of JSON alone may be a file with one reply; with another line behind it they are read one by one.
            if not line.isspace():
                break
        else:
            yield from _of_value(where, name, value)
            return
        yield from _of_lines(where, name, chain(begin, lines))
        return
    try:
        whole = first + file.read(LARGEST_REPLIES)
        if len(whole) > LARGEST_REPLIES:
            most = f"{LARGEST_REPLIES // MEBIBYTE:,} MiB"
            raise OSError(errno.EFBIG, f"it is larger than {most}; save one reply on each line, then any size is read")
        text = decoded(whole)
    except ValueError as error:
        yield FoundReply(where, name, fault=f"It is {error}.")
        return
    yield from _of_text(where, name, text)


def _of_array(where: str, name: str, elements: Elements) -> Iterator[FoundReply]:
    """The replies of an array, an element each; all together if they are chunks of one stream, or a batch."""
    number = 0
    try:
        for number, text in enumerate(elements, start=1):
            # Chunks of a stream and the parts of a batch make one reply together, so that the whole array is read.
            if number == 1 and not _stands_alone(json_or_none(text)):
                yield from _of_text(where, name, elements.rest())
                return
            yield FoundReply(f"{where}[{number}]", f"{name}-{number}", text, is_line=True, is_alone=False)
    except UnicodeDecodeError as error:
        yield FoundReply(where, name, fault=f"It is not UTF-8 after element {number}, and so no text: {error.reason}.")
        return
    if not number:
        yield from _of_text(where, name, elements.rest())
    elif not elements.is_whole:
        fault = f"It is not JSON after element {number}: the file may have been cut off."
        yield FoundReply(f"{where}[{number + 1}]", f"{name}-{number + 1}", fault=fault)


def _stands_alone(value: Any) -> bool:
    """Return True if an element of an array is a saved line or a whole reply."""
    if not isinstance(value, Mapping) or is_chunk(_only_in(value)):
        return False
    return _is_line(value) or (is_whole(value) and not is_batch([value]))


def _of_text(where: str, name: str, text: str) -> Iterator[FoundReply]:
    if not text or text.isspace():
        yield FoundReply(where, name, fault="It is empty.")
        return
    text = str(body_of(text))
    if is_stream_text(text) and not text.lstrip().startswith("{"):
        # People append streams to one file, and only the sign of their end divides them.
        streams = [part for part in _END_OF_STREAM.split(text) if not part.isspace()]
        yield from _one_by_one(where, name, streams) if len(streams) > 1 else [FoundReply(where, name, streams[0])]
        return
    whole = json_or_none(text)
    if whole is not None:
        yield from _of_value(where, name, whole)
        return
    opening = text.lstrip().partition("\n")[0]
    if not json_or_none(opening) and len(values := _behind_each_other(text)) > 1:
        yield from _one_by_one(where, name, values)
        return
    if where.lower().endswith(".csv"):
        yield from _of_table(where, name)
        return
    lines = text.split("\n")  # `splitlines` would cut texts, such as at U+2028
    is_object = (line.lstrip().startswith("{") and isinstance(json_or_none(line), Mapping) for line in lines)
    if isinstance(json_or_none(opening), list) or any(is_object):
        yield from _of_lines(where, name, (line.encode() for line in lines))
    else:  # a note, or one reply that is broken
        yield FoundReply(where, name, fault=NO_JSON)


def _of_table(where: str, name: str) -> Iterator[FoundReply]:
    """The replies in the cells of a table, one a row; a fault if the first row holds none."""
    if not Path(where).is_file() or where.lower().endswith(".gz"):  # it is read by its name, and from its end
        yield FoundReply(where, name, fault="It is a table: save it as a file of its own, not compressed.")
        return
    try:
        for i, record in enumerate(read_records(Path(where))):
            inside = [] if record.fault else replies_inside(record.fields)
            if i == 0 and inside == []:
                raise InvalidInputError(record.fault or TABLE)
            at, called = f"{where}:{record.number}", f"{name}-{record.number}"
            yield FoundReply(at, called, record.fields, is_alone=False, inside=inside, fault=record.fault)
    except SemtokenError as error:
        yield FoundReply(where, name, fault=str(error))


def _of_value(where: str, name: str, whole: Any) -> Iterator[FoundReply]:
    """The replies that stand side by side in a value, or the value as one."""
    inside = replies_inside(whole) if isinstance(whole, Mapping) else None
    if inside and (side_by_side := branches(whole, inside)):
        asked = question_of(whole)
        for number, (key, value) in enumerate(side_by_side, start=1):
            called = key if isinstance(key, str) else f"{name}-{number}"
            place = f"{where}[{number}]"
            yield FoundReply(place, called, value, around=whole, question=asked, is_alone=isinstance(key, str))
    elif len(parts := _parts_of(whole)) > 1:
        yield from _one_by_one(where, name, parts)
    else:
        yield FoundReply(where, name, parts[0], inside=inside if parts[0] is whole else None)


def _one_by_one(where: str, name: str, values: Sequence[Any]) -> Iterator[FoundReply]:
    """The replies that a file holds one behind the other, numbered."""
    for number, value in enumerate(values, start=1):
        yield FoundReply(f"{where}[{number}]", f"{name}-{number}", value, is_alone=False)


def _of_lines(where: str, name: str, lines: Iterable[bytes]) -> Iterator[FoundReply]:
    """The replies of lines of JSON: one a line, or the chunks of a stream on lines that follow each other."""
    chunks: list[Mapping[str, Any]] = []
    values: list[Mapping[str, Any]] = []  # of the lines that the chunks are on
    ended: set[str] = set()
    first, others = 0, False
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        value, chunk = _chunk(line, goes_on=bool(chunks))
        if chunks and (chunk is None or begins_another(chunk, chunks[0], chunks[-1], ended)):
            yield FoundReply(f"{where}:{first}", f"{name}-{first}", _joined(values, chunks), is_alone=False)
            chunks, values, ended, others = [], [], set(), True
        ended |= choices_of(chunk or {}, ended=True)
        if chunk is None:
            yield FoundReply(f"{where}:{number}", f"{name}-{number}", line, is_line=True, is_alone=False)
            others = True
        elif not chunks and ends_stream(chunk):  # a whole reply, which has the form of a last chunk
            yield FoundReply(f"{where}:{number}", f"{name}-{number}", value, is_alone=False)
            others = True
        else:
            first = first if chunks else number
            chunks.append(chunk)
            values.append(value)
    if chunks and others:
        yield FoundReply(f"{where}:{first}", f"{name}-{first}", _joined(values, chunks), is_alone=False)
    elif chunks:
        yield FoundReply(where, name, _joined(values, chunks))


def _joined(values: list[Mapping[str, Any]], chunks: list[Mapping[str, Any]]) -> Any:
    """The values of lines as the stream that their chunks make, or the reply that one of them is."""
    return values if is_stream(chunks) else values[0]


CHUNK_WORDS = (
    b'.chunk"',
    b'"text_completion"',
    b'"AIMessageChunk"',
    b'"done"',
    b'"special"',
    b'"meta_info"',
    b'"responseId"',
    b'"stop":true',
    b'"stop": true',
    b'"stop":false',
    b'"stop": false',
    b'"response.',
    b'"transcript.text.',
    b'"conversation.item.',
)
"""Texts of which the line of a chunk has one, near its beginning or its end."""
EDGE = 4_000
"""The number of bytes at the beginning and at the end of a line in which these are looked for."""


def _chunk(line: bytes, *, goes_on: bool) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """The values of a line, and the chunk of a stream that they may be, or hold as one of them; None for other lines,
    which are not parsed here.

    `goes_on` says that a stream has begun: the last chunk of some has the form of a whole reply.
    """
    # Looking for the words is many times as fast as parsing, and most lines are no chunks.
    edges = line if len(line) <= 2 * EDGE else line[:EDGE] + line[-EDGE:]
    value = json_or_none(line) if any(word in edges for word in CHUNK_WORDS) else None
    if not isinstance(value, Mapping):
        return {}, None
    if stream_of(value) is not None:
        return value, value
    held = [one for one in value.values() if isinstance(one, Mapping) and is_surely_streamed(one)]
    return value, held[0] if len(held) == 1 and (goes_on or is_chunk(held[0])) else None


def _parts_of(value: Any) -> list[Any]:
    """The saved lines or whole replies in a list; otherwise the value alone, such as the chunks of a stream."""
    parts = value if isinstance(value, list) and all(isinstance(part, Mapping) for part in value) else []
    several = any(map(_is_line, parts)) or (len(parts) > 1 and all(map(is_whole, parts)))
    return list(parts) if several and not is_batch(parts) and not _are_chunks(parts) else [value]


def _is_line(value: Mapping[str, Any]) -> bool:
    """Return True if a value holds a reply below its top."""
    inside = replies_inside(value)
    return inside is None or any(one.path for one in inside)


def _are_chunks(parts: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if values are, or hold, the chunks of one stream, as the first of them show."""
    first, *second = map(_only_in, parts[:2])
    if not is_stream([first, *second]):
        return False
    ended = choices_of(first, ended=True)
    return not any(not isinstance(each, Mapping) or begins_another(each, first, first, ended) for each in second)


def _only_in(value: Mapping[str, Any]) -> Any:
    """The value, if it is a chunk of a stream, or the one reply or chunk that it holds; None if it holds others."""
    if is_chunk(value):
        return value
    inside = replies_inside(value) or ()
    only = inside[0].reply if len(inside) == 1 else None
    return only[0] if isinstance(only, list) and len(only) == 1 else only


def _behind_each_other(text: str) -> list[Any]:
    """The JSON values that a text holds one behind the other, each on several lines; none if it holds anything else."""
    values, at = [], len(text) - len(text.lstrip())
    try:
        while at < len(text):
            value, end = DECODER.raw_decode(text, at)
            values.append(value)
            at = next((i for i in range(end, len(text)) if not text[i].isspace()), len(text))
    except (ValueError, RecursionError):
        return []
    return values
