"""Saved replies from files, folders, globs or standard input, each with its question.

The question was saved beside its reply, or comes from a file of questions.
"""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.files.record_files import read_rows
from semtoken.files.safe_files import parse_json, reading_errors
from semtoken.payloads.formats import known_shapes
from semtoken.payloads.reading import is_stream_text
from semtoken.support.text import last_of_user

SUFFIXES = (".json", ".jsonl", ".ndjson", ".sse", ".txt")
"""Endings of the files of a folder that are read; others are passed over."""
REPLY_FIELDS = ("response", "reply", "body", "completion")
"""The names under which a saved line keeps the reply, beside an id, a question or a request."""
ID_FIELDS = ("custom_id", "question_id", "id")
"""Names of a line's own identifier, the most telling first. The id of the reply itself is a random one."""
STANDARD_INPUT = "-"
REQUEST = ".request.json"
"""Ends the name of the request that lies beside a reply: `a.request.json` beside `a.json` or `a.response.json`."""


@dataclass(frozen=True)
class SavedReply:
    """One reply as it was saved."""

    where: str
    """File and line, for messages."""
    reply: Any
    """What `semtoken.payloads.read_payload` reads: text of a stream, or plain values."""
    id: str
    """The identifier of its line, or the name of its file without the ending."""
    question: str | None = None
    """What was asked, where it was saved beside the reply."""


@dataclass(frozen=True)
class FoundReply:
    """A reply that was found in a file and not read yet."""

    where: str
    """File and line, for messages."""
    name: str
    """The identifier that the file gives the reply, for replies that hold none."""
    value: Any
    """The reply with what was saved beside it, as plain values or the text of a stream; the text of a line of JSON."""
    is_line: bool = False
    """Whether `value` is a line of JSON that has not been parsed yet."""
    asked: str | None = None
    """The question of the request that lies beside its file."""

    def read(self) -> SavedReply:
        """Read and parse the reply.

        Raises
        ------
        InvalidInput
            Its line is no JSON.
        """
        value = _parsed(self.value) if self.is_line else self.value
        if value is None:
            raise InvalidInput(f"{self.where} is no JSON. Give a reply as JSON, one a line, or a saved stream.")
        reply = _saved(self.where, self.name, value)
        return reply if self.asked is None or reply.question is not None else replace(reply, question=self.asked)


def saved_replies(sources: Sequence[str]) -> Iterator[SavedReply]:
    """Read the replies of files, folders and globs, in the given order; within a folder, by name.

    Parameters
    ----------
    sources
        Paths; a folder stands for its files with the endings `SUFFIXES`, `-` for standard input. A file holds one reply
        as JSON, replies as JSON lines, or a saved stream. A line may hold the reply under `response`, `reply`, `body`
        or `completion`, beside an `id`, a `question` or the `request`; OpenAI's batch files are read as they are.
        The request may lie in a file beside the reply's, see `REQUEST`.

    Raises
    ------
    InvalidInput
        A path does not exist, a file cannot be read, or a line is no JSON.
    """
    return (one.read() for one in found_replies(sources))


def found_replies(sources: Sequence[str]) -> Iterator[FoundReply]:
    """The same replies as `saved_replies`, but not parsed yet, so that skipping one costs little.

    Raises
    ------
    InvalidInput
        A path does not exist, or a file cannot be read.
    """
    for source in sources:
        if source == STANDARD_INPUT:
            where = "standard input"
            yield from _of_text(where, "reply", _decoded(where, sys.stdin.buffer.read()))
            continue
        for path in _paths(source):
            try:
                text = _decoded(str(path), path.read_bytes())
            except OSError as error:
                raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error
            name = path.name.partition(".")[0]
            asked = _asked_beside(path.with_name(f"{name}{REQUEST}"))
            for reply in _of_text(str(path), name, text):
                yield reply if asked is None else replace(reply, asked=asked)


def _asked_beside(path: Path) -> str | None:
    """The question of a request that lies beside a reply, if there is one."""
    if not path.is_file():
        return None
    with reading_errors(path):
        request = _parsed(path.read_bytes().decode("utf-8", "replace"))
    return question_of(request) if isinstance(request, Mapping) else None


def _paths(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = (one for one in path.rglob("*") if one.is_file() and one.suffix in SUFFIXES)
        found = sorted(one for one in files if not one.name.endswith(REQUEST))
        if not found:
            raise InvalidInput(f"{source} holds no file that ends in {', '.join(SUFFIXES)}.")
        return found
    if path.exists():
        return [path]
    found = sorted(Path(name) for name in glob.glob(source, recursive=True) if Path(name).is_file())
    if not found:
        raise InvalidInput(f"There is no file, folder or match for {source}.")
    return found


def _decoded(where: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} is not UTF-8 at byte {error.start}.") from error
    if not text or text.isspace():
        raise InvalidInput(f"{where} is empty.")
    return text


def _of_text(where: str, name: str, text: str) -> Iterator[FoundReply]:
    if is_stream_text(text):
        yield FoundReply(where, name, text)
        return
    if "\n" not in text.strip() and text.lstrip()[0] == "{":  # one reply
        yield FoundReply(where, name, text.strip(), is_line=True)
        return
    whole = _parsed(text)
    if whole is not None:
        listed = whole if isinstance(whole, list) and _all_lines(whole) else [whole]
        several = len(listed) > 1
        for number, value in enumerate(listed, start=1):
            yield FoundReply(f"{where}[{number}]" if several else where, f"{name}-{number}" if several else name, value)
        return
    for number, line in enumerate(_lines(text), start=1):
        if line.strip():
            yield FoundReply(f"{where}:{number}", f"{name}-{number}", line, is_line=True)


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, without a copy of all of them. `splitlines` would cut texts, such as at U+2028."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _parsed(text: str) -> Any:
    """The value of a JSON text; None where it is none (or null, which is no reply either)."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def _all_lines(values: list[Any]) -> bool:
    """Whether a list holds saved lines, not the chunks of one stream or the replies of one batch."""
    return bool(values) and all(isinstance(one, Mapping) and _inner(one) is not None for one in values)


def _saved(where: str, name: str, value: Any) -> SavedReply:
    if not isinstance(value, Mapping):
        return SavedReply(where, value, name)
    inner = _inner(value)
    given = next((value[field] for field in ID_FIELDS if isinstance(value.get(field), str | int)), None)
    if inner is None:
        custom = value.get("custom_id")
        return SavedReply(where, value, str(custom) if custom is not None else name, question_of(value))
    return SavedReply(where, inner, name if given is None else str(given), question_of(value))


def _inner(value: Mapping[str, Any]) -> Any:
    """The reply inside a saved line, or None where the line is the reply itself."""
    for field in REPLY_FIELDS:
        inner = value.get(field)
        if isinstance(inner, Mapping):
            body = inner.get("body")
            found = body if isinstance(body, Mapping) else inner
            return None if _is_reply(value) and not _is_reply(found) else found
        if isinstance(inner, str) and is_stream_text(inner):
            return inner
    return None


def _is_reply(value: Mapping[str, Any]) -> bool:
    """Whether some shape knows it. One of them may keep everything under `reply`, as saved lines do."""
    return any(shape.detects([value]) for shape in known_shapes())


def question_of(value: Mapping[str, Any]) -> str | None:
    """The question in a record or a request body: its question, its prompt, or the last message of the user."""
    for field in ("question", "prompt", "input"):
        if isinstance(value.get(field), str):
            return str(value[field])
    for field in ("messages", "input"):
        if isinstance(value.get(field), list) and (said := last_of_user(value[field])):
            return said
    request = value.get("request")
    return question_of(request) if isinstance(request, Mapping) else None


IDS = ("id", "custom_id", "question_id")
"""Names of the identifier in a file of questions."""


@dataclass(frozen=True)
class SavedQuestion:
    """A question from a file, with the id by which replies refer to it."""

    id: str | None
    text: str


def read_questions(path: Path) -> list[SavedQuestion]:
    """The questions of a file: records with `question`, `prompt` or `messages`, or saved request bodies.

    Raises
    ------
    InvalidInput
        The file cannot be read, or a record asks nothing.
    """
    found = []
    for _, where, fields in read_rows(path):
        body = fields.get("body")
        text = question_of(fields) or (question_of(body) if isinstance(body, Mapping) else None)
        if text is None:
            raise InvalidInput(f"{where} asks nothing: it has no 'question', 'prompt', 'input' or 'messages'.")
        given = next((fields[name] for name in IDS if fields.get(name) is not None), None)
        found.append(SavedQuestion(None if given is None else str(given), text))
    return found


def join_questions(replies: Iterable[SavedReply], questions: Sequence[SavedQuestion]) -> tuple[list[str], str]:
    """The question of each reply, in the order of the replies, and a sentence on how they were joined.

    Ids decide where those of all replies are known among the questions; otherwise the order does, where there are as
    many of the one as of the other. Of the replies only their names are kept.

    Raises
    ------
    InvalidInput
        Neither ids nor order tell which question belongs to which reply.
    """
    names = [(reply.id, reply.where) for reply in replies]
    by_id = {one.id: one.text for one in questions if one.id is not None}
    if len(by_id) == len(questions) and all(name in by_id for name, _ in names):
        return [by_id[name] for name, _ in names], f"Joined {len(names):,} replies with their questions by id."
    if len(questions) == len(names):
        return [one.text for one in questions], (
            f"Joined {len(names):,} replies with their questions by order, since the ids do not match."
        )
    lacking = [(name, where) for name, where in names if name not in by_id]
    why = "ids stand more than once among the questions"
    if lacking:
        name, where = lacking[0]
        why = f"no question has the id of {len(lacking):,} replies, such as '{name}' of {where}"
    raise InvalidInput(
        f"There are {len(names):,} replies and {len(questions):,} questions, and {why}. Give both the same ids, or "
        "one question for each reply in the same order."
    )
