"""Saved replies from files, folders, globs or standard input, each with what was saved beside it."""

from __future__ import annotations

import errno
import glob
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.replies import Reply
from semtoken.replies.checking.ids import IDS, identifiers, is_id_name, telling
from semtoken.replies.formats.base import Shape
from semtoken.replies.formats.registry import foreign, is_whole
from semtoken.replies.formats.within import Found, branches, replies_within
from semtoken.replies.score import is_batch, is_stream_text
from semtoken.support.files.elements import DECODER, Elements
from semtoken.support.files.outputs import REPLY_SUFFIXES
from semtoken.support.files.safe_files import LARGEST_REPLIES, MEBIBYTE, bounded_lines, read_file, reading_errors
from semtoken.support.files.texts import decoded, is_utf8
from semtoken.support.questions import question_of
from semtoken.support.splice import load_json

REPLY_FIELDS = ("response", "reply", "body", "completion")
"""The names under which a saved line keeps the reply, beside an id, a question or a request."""
STANDARD_INPUT = "-"
REQUEST = ".request.json"
"""Ends the name of the request that lies beside a reply: `a.request.json` beside `a.json` or `a.response.json`."""
GZIPPED = b"\x1f\x8b"
PACKED = {"zip": b"PK\x03\x04", "zstd": b"\x28\xb5\x2f\xfd", "bzip2": b"BZh", "xz": b"\xfd7zXZ"}
"""How compressed files begin that are not read."""
_END_OF_STREAM = re.compile(r"(?<=data: \[DONE\])\s*(?=\S)|(?<=data:\[DONE\])\s*(?=\S)")
NO_JSON = (
    "It is no JSON: a reply is JSON, one a line, or a saved stream. Of what Python prints, save "
    "`reply.model_dump_json()` or `json.dumps(reply)`."
)


@dataclass(frozen=True)
class SavedReply:
    """One reply as it was saved."""

    where: str
    """File and line, for messages."""
    reply: Any
    """What `semtoken.replies.read_reply` reads: text of a stream, or plain values."""
    id: str
    """What it goes by: the identifier of its line, that of the reply in a file of several, or the name of its file."""
    question: str | None = None
    """What was asked, where it was saved beside the reply."""
    name: str = ""
    """The name of its file without the ending, and its place in a file of several."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """What may identify its line; see `semtoken.replies.checking.ids`."""
    own_ids: Mapping[str, str] = field(default_factory=dict)
    """What may identify the reply itself, which the server made up."""
    request: Mapping[str, Any] | None = None
    """What was sent, where it was saved beside the reply."""
    line: Any = None
    """All that was saved, in which each choice of the reply may have a question of its own."""
    shape: type[Shape] | None = None
    """The shape of the reply, where it is known by now."""

    def asked_in(self, parsed_reply: Reply) -> Reply:
        """What was read of the reply, with the question of each choice, which its line may say."""
        asked = [
            question_of(self.line, choice.index) or self.question or choice.question for choice in parsed_reply.choices
        ]
        choices = (replace(choice, question=one) for choice, one in zip(parsed_reply.choices, asked, strict=True))
        return replace(parsed_reply, choices=tuple(choices))


@dataclass(frozen=True)
class FoundReply:
    """A reply that was found in a file and not parsed yet."""

    where: str
    name: str
    """The name of its file without the ending, and its place in a file of several."""
    value: Any = None
    """The reply with what was saved beside it, as plain values or the text of a stream; the text of a line of JSON."""
    is_line: bool = False
    """Whether `value` is a line of JSON that has not been parsed yet."""
    request: Mapping[str, Any] | None = None
    """The request that lies beside its file."""
    is_alone: bool = True
    """Whether its file holds nothing else."""
    inside: Sequence[Found] | None = None
    """The replies within `value`; None where they have not been looked for."""
    fault: str = ""
    """Why it cannot be read, if it cannot."""

    def parsed(self) -> Any:
        """The plain values of the line; raises `InvalidInputError` if it is no JSON, or its file cannot be read."""
        value = _parsed(self.value) if self.is_line else self.value
        if self.fault or value is None:
            raise InvalidInputError(self.fault or NO_JSON)
        return value

    def read(self) -> SavedReply:
        """Parse the reply; `InvalidInputError` if it is no JSON, or its file cannot be read."""
        reply = _saved(self)
        if self.request is None:
            return reply
        # What was saved with the reply itself goes before the request beside its file.
        if reply.question is not None:
            return replace(reply, request=reply.request or self.request)
        return replace(reply, question=question_of(self.request), request=self.request, line=self.request)

    def named(self) -> SavedReply | None:
        """What the reply is called, without its content, which takes memory; None if it cannot be read."""
        try:
            return replace(self.read(), reply=None, line=None)
        except InvalidInputError:
            return None


def saved_replies(sources: Sequence[str]) -> Iterator[SavedReply]:
    """Read the replies of files, folders and globs, in the given order; within a folder, by name.

    A folder stands for its files with the endings of replies, `-` for standard input. A file holds one reply as JSON,
    replies or the chunks of streams as JSON lines, or server-sent events. A line may hold the reply under `response`,
    `reply`, `body` or `completion`, next to an `id`, a `question` or the `request`; OpenAI's batch files are read as
    they are. The request may be in a file beside the reply's, see `REQUEST`.

    `InvalidInputError`, naming the place, if a path does not exist, a file cannot be read, or a line is no JSON.
    """
    for reply in found_replies(sources):
        try:
            yield reply.read()
        except InvalidInputError as error:
            raise InvalidInputError(f"{reply.where}: {error}") from error


def found_replies(sources: Sequence[str]) -> Iterator[FoundReply]:
    """The same as `saved_replies`, not parsed yet, so that skipping costs little; what cannot be read has a `fault`."""
    for source in sources:
        if source == STANDARD_INPUT:
            with reading_errors(Path("standard input")):
                yield from _of_file("standard input", "reply", sys.stdin.buffer)
            continue
        for path in _paths(source):
            name = path.name.partition(".")[0]
            request = _request_beside(path.with_name(f"{name}{REQUEST}"))
            try:
                with path.open("rb") as file:
                    for reply in _of_file(str(path), name, file):
                        yield reply if request is None else replace(reply, request=request)
            except OSError as error:
                yield FoundReply(str(path), name, fault=f"It cannot be read: {error.strerror or error}.")


class OpenedReplies:
    """The replies of files, folders and globs, read once: the first of them can be looked at before the others come.

    Standard input cannot be read a second time, and a large file need not be.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = list(sources)
        self._found = found_replies(self.sources)

    @cached_property
    def first(self) -> FoundReply | None:
        """The first reply; None where there is none. `InvalidInputError` if there is no such file."""
        return next(self._found, None)

    def __iter__(self) -> Iterator[FoundReply]:
        """All replies, the first one among them; they can be gone through once."""
        if self.first is not None:
            yield self.first
        yield from self._found


def passed_over(sources: Sequence[str]) -> list[str]:
    """The files of the folders among some sources that are not read, since their names are not those of replies."""
    folders = [Path(source) for source in sources if source != STANDARD_INPUT and Path(source).is_dir()]
    files = sorted(chain.from_iterable(folder.rglob("*") for folder in folders))
    return [str(file) for file in files if file.is_file() and not _may_hold_replies(file)]


def _may_hold_replies(path: Path) -> bool:
    """Whether a file has the name of replies, which may be compressed, such as `a.jsonl.gz`."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith(REPLY_SUFFIXES)


def _request_beside(path: Path) -> Mapping[str, Any] | None:
    """The request that lies beside a reply, if there is one."""
    try:
        request = _parsed(decoded(read_file(path))) if path.is_file() else None
    except (OSError, ValueError):
        return None
    return request if isinstance(request, Mapping) else None


def _paths(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = (file for file in path.rglob("*") if file.is_file() and _may_hold_replies(file))
        paths = sorted(file for file in files if not file.name.endswith(REQUEST))
        if not paths:
            raise InvalidInputError(f"{source} holds no file that ends in {', '.join(REPLY_SUFFIXES)}.")
        return paths
    if path.exists():
        return [path]
    paths = sorted(Path(name) for name in glob.glob(source, recursive=True) if Path(name).is_file())
    if not paths:
        raise InvalidInputError(f"There is no file, folder or match for {source}.")
    return paths


def _of_file(where: str, name: str, file: Any) -> Iterator[FoundReply]:
    """The replies of an open file. Lines and elements of JSON are given one by one, whatever the size of the file."""
    file = file if hasattr(file, "peek") else io.BufferedReader(file)
    beginning = file.peek(1)
    if beginning.startswith(GZIPPED) and not isinstance(file, gzip.GzipFile):
        try:
            with gzip.open(file, "rb") as unpacked:
                yield from _of_file(where, name, unpacked)
        except (EOFError, zlib.error) as error:
            yield FoundReply(where, name, fault=f"Its gzip is broken: {error}.")
        return
    if packed := next((kind for kind, mark in PACKED.items() if beginning.startswith(mark)), None):
        yield FoundReply(where, name, fault=f"It is compressed ({packed}): unpack it first, or use gzip.")
        return
    if beginning.lstrip().startswith(b"[") and is_utf8(beginning[:2]):
        yield from _of_array(where, name, Elements(file))
        return
    lines = bounded_lines(file)
    first = next(lines, b"")
    if first.startswith(b"{") and is_utf8(first) and isinstance(_parsed(first), Mapping):
        begin = [first]
        for line in lines:
            begin.append(line)
            # One line of JSON alone may be a file with one reply; with another line behind it they are read one by one.
            if not line.isspace():
                break
        else:
            yield from _of_text(where, name, decoded(first))
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
            if number == 1 and not _stands_alone(_parsed(text)):
                yield from _of_text(where, name, elements.rest())
                return
            yield FoundReply(f"{where}[{number}]", f"{name}-{number}", text.encode(), is_line=True, is_alone=False)
    except UnicodeDecodeError as error:
        yield FoundReply(where, name, fault=f"It is not UTF-8 after element {number}, and so no text: {error.reason}.")
        return
    if not number:
        yield from _of_text(where, name, elements.rest())
    elif not elements.is_whole:
        fault = f"It is not JSON after element {number}: the file may have been cut off."
        yield FoundReply(f"{where}[{number + 1}]", f"{name}-{number + 1}", fault=fault)


def _stands_alone(value: Any) -> bool:
    """Whether an element of an array is a saved line or a whole reply."""
    return isinstance(value, Mapping) and (_is_line(value) or (is_whole(value) and not is_batch([value])))


def _of_text(where: str, name: str, text: str) -> Iterator[FoundReply]:
    if not text or text.isspace():
        yield FoundReply(where, name, fault="It is empty.")
        return
    if is_stream_text(text) and not text.lstrip().startswith("{"):
        # People append streams to one file, and only the sign of their end divides them.
        streams = [part for part in _END_OF_STREAM.split(text) if not part.isspace()]
        for number, part in enumerate(streams, start=1):
            place, called = (f"{where}[{number}]", f"{name}-{number}") if len(streams) > 1 else (where, name)
            yield FoundReply(place, called, part, is_alone=len(streams) == 1)
        return
    whole = _parsed(text)
    opening = text.lstrip().partition("\n")[0]
    inside = _inside(whole) if isinstance(whole, Mapping) else None
    if inside and (side_by_side := branches(whole, inside)):
        for number, (key, value) in enumerate(side_by_side, start=1):
            called = key if isinstance(key, str) else f"{name}-{number}"
            yield FoundReply(f"{where}[{number}]", called, value, is_alone=isinstance(key, str))
        return
    listed = _parts_of(whole) if whole is not None else [] if _parsed(opening) else _behind_each_other(text)
    if listed:
        several = len(listed) > 1
        for number, value in enumerate(listed, start=1):
            place, called = (f"{where}[{number}]", f"{name}-{number}") if several else (where, name)
            yield FoundReply(place, called, value, is_alone=not several, inside=inside if value is whole else None)
        return
    lines = text.split("\n")  # `splitlines` would cut texts, such as at U+2028
    if any(line.lstrip().startswith("{") and isinstance(_parsed(line), Mapping) for line in lines):
        yield from _of_lines(where, name, (line.encode() for line in lines))
    else:  # a note, or one reply that is broken
        yield FoundReply(where, name, fault=NO_JSON)


def _of_lines(where: str, name: str, lines: Iterable[bytes]) -> Iterator[FoundReply]:
    """The replies of lines of JSON: one a line, or the chunks of a stream on lines that follow each other."""
    chunks: list[Mapping[str, Any]] = []
    ended: set[Any] = set()
    first = 0
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        chunk = _chunk(line)
        if chunks and (chunk is None or _begins_another(chunk, chunks, ended)):
            yield FoundReply(f"{where}:{first}", f"{name}-{first}", chunks, is_alone=False)
            chunks, ended = [], set()
        ended |= _choices_of(chunk or {}, ended=True)
        if chunk is None:
            yield FoundReply(f"{where}:{number}", f"{name}-{number}", line, is_line=True, is_alone=False)
        elif not chunks and chunk.get("done"):  # a whole reply of Ollama's
            yield FoundReply(f"{where}:{number}", f"{name}-{number}", chunk, is_alone=False)
        else:
            first = first if chunks else number
            chunks.append(chunk)
    if chunks:
        yield FoundReply(f"{where}:{first}", f"{name}-{first}", chunks, is_alone=False)


def _begins_another(chunk: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]], ended: set[Any]) -> bool:
    """Whether a chunk belongs to another stream than those before it; some servers give all streams one id."""
    another = _stream_of(chunk) != _stream_of(chunks[0])
    return bool(another or chunks[-1].get("done") or ended & _choices_of(chunk))


def _choices_of(chunk: Mapping[str, Any], *, ended: bool = False) -> set[Any]:
    """The indexes of the choices of a chunk, or of those that end with it."""
    choices = chunk.get("choices")
    listed = [choice for choice in (choices if isinstance(choices, list) else ()) if isinstance(choice, Mapping)]
    return {str(choice.get("index")) for choice in listed if not ended or choice.get("finish_reason")}


def _chunk(line: bytes) -> Mapping[str, Any] | None:
    """The values of a line that may be a chunk of a stream; None for others, which are not parsed here."""
    # Looking for the words is many times as fast as parsing, and most lines are no chunks.
    value = _parsed(line) if b'.chunk"' in line or b'"done"' in line else None
    return value if isinstance(value, Mapping) and _stream_of(value) is not None else None


def _stream_of(value: Mapping[str, Any]) -> tuple[str, Any] | None:
    """What the chunks of one stream share: OpenAI's their id, Ollama's their model; None for what is no chunk."""
    if str(value.get("object")).endswith(".chunk"):
        return "id", value.get("id")
    return ("model", value.get("model")) if isinstance(value.get("done"), bool) else None


def _parsed(text: str | bytes) -> Any:
    """The value of a JSON text, which may be as Python writes it; None where it is none (or null, no reply either)."""
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return None


def _parts_of(value: Any) -> list[Any]:
    """The saved lines or whole replies in a list; otherwise the value alone, such as the chunks of a stream."""
    parts = value if isinstance(value, list) and all(isinstance(part, Mapping) for part in value) else []
    several = any(map(_is_line, parts)) or (len(parts) > 1 and all(map(is_whole, parts)))
    return list(parts) if several and not is_batch(parts) else [value]


def _is_line(value: Mapping[str, Any]) -> bool:
    """Whether a value holds a reply below its top."""
    try:
        return any(one.path for one in replies_within(value))
    except InvalidInputError:
        return True


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


def _inside(value: Any) -> list[Found] | None:
    """The replies within a value; None where it holds different ones, which is said once it is read."""
    try:
        return replies_within(value)
    except InvalidInputError:
        return None


def _saved(found: FoundReply) -> SavedReply:
    """The reply in what was found, with its question, its request and what may identify it."""
    value = found.parsed()
    if not isinstance(value, Mapping):
        own_ids = _own_ids(value)
        return SavedReply(found.where, value, _called(found, {}, own_ids), name=found.name, own_ids=own_ids)
    replies = found.inside if found.inside is not None else _inside(value) or ()
    shape = None
    if len(replies) == 1:
        reply, line, shape = replies[0].reply, replies[0].line, replies[0].shape
    else:
        reply, line = value if replies else _leading(value), value
    question = question_of(line)
    all_ids = identifiers(value, inside=None if reply is value else reply)
    # Some people name a line by its question.
    ids = {name: said for name, said in all_ids.items() if said != question}
    if reply is value:
        usual = found.is_alone  # then its file names it, rather than what a server may have added
        ids = {name: said for name, said in ids.items() if not _is_of_server(name) and (name in IDS or not usual)}
    own_ids = _own_ids(reply)
    request = value["request"] if reply is not value and isinstance(value.get("request"), Mapping) else None
    called = _called(found, ids, own_ids)
    return SavedReply(found.where, reply, called, question, found.name, ids, own_ids, request, line, shape)


def _called(found: FoundReply, ids: Mapping[str, str], own_ids: Mapping[str, str]) -> str:
    """The identifier of a reply: that of its line, its own in a file of several, or the name that its file gives it."""
    named = next(telling(ids), None)
    if named is None:
        return found.name if found.is_alone else own_ids.get("id", found.name)
    return ids[named]


OF_SERVERS = ("id", "object", "model", "system_fingerprint", "service_tier", "responseId", "response_id", "created")
"""Fields of replies that say nothing of whom they answer; a client may have added others."""
CONTENT = ("choices", "output", "message", "usage", "candidates", "meta_info", "details", "usageMetadata")


def _is_of_server(name: str) -> bool:
    return name in OF_SERVERS or name.partition(".")[0] in CONTENT


def _own_ids(reply: Any) -> dict[str, str]:
    """What may identify a reply itself, or the chunks of a stream by the first of them."""
    first = reply[0] if isinstance(reply, list) and reply else reply
    own = identifiers(first) if isinstance(first, Mapping) else {}
    return {name: said for name, said in own.items() if is_id_name(name) and name.partition(".")[0] not in CONTENT}


def _leading(value: Mapping[str, Any]) -> Any:
    """What a line without a known reply keeps in place of one, so that messages speak of it; else the line itself."""
    if value.get("error") or foreign(value):
        return value
    kept = next((value[name] for name in REPLY_FIELDS if isinstance(value.get(name), Mapping)), value)
    body = kept.get("body")
    return body if kept is not value and isinstance(body, Mapping) else kept
