"""Saved replies in files, folders, globs or standard input, each with what was saved beside it."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.replies.checking.dividing import replies_in
from semtoken.replies.checking.saved_reply import FoundReply, SavedReply, json_value
from semtoken.support.files.outputs import REPLY_SUFFIXES
from semtoken.support.files.safe_files import read_file, reading_errors
from semtoken.support.files.texts import decoded

STANDARD_INPUT = "-"
REQUEST = ".request.json"
"""Ends the name of the request beside a reply: `a.request.json` beside `a.json` or `a.response.json`."""


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
                yield from replies_in("standard input", "reply", sys.stdin.buffer)
            continue
        for path in _paths(source):
            name = path.name.partition(".")[0]
            request = _request_beside(path.with_name(f"{name}{REQUEST}"))
            try:
                with path.open("rb") as file:
                    for reply in replies_in(str(path), name, file):
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
    """The request beside a reply, if there is one."""
    try:
        request = json_value(decoded(read_file(path))) if path.is_file() else None
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
