"""Saved replies in files, folders, globs or standard input, each with what was saved beside it."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.replies.checking.dividing import replies_in
from semtoken.replies.checking.saved_reply import FoundReply
from semtoken.support.files.outputs import REPLY_SUFFIXES
from semtoken.support.files.safe_files import read_file, reading_errors
from semtoken.support.files.texts import decoded
from semtoken.support.plain_values import json_or_none

STANDARD_INPUT = "-"
REQUEST = ".request.json"
"""Ends the name of the request beside a reply: `a.request.json` beside `a.json` or `a.response.json`."""
READ_AT_ONCE = 2**16
"""Bytes that are read of a file at a time: the line of a reply has tens of thousands."""


@dataclass
class OpenedReplies:
    """The replies of files, folders and globs, read once: the first can be looked at before the others come.

    They come in the given order; within a folder, by name. A folder stands for its files with the endings of replies,
    `-` for standard input. A file holds one reply as JSON, replies or the chunks of streams as JSON lines, or
    server-sent events. A line may hold the reply under `response`, `reply`, `body` or `completion`, next to an `id`, a
    `question` or the `request`; OpenAI's batch files are read as they are. The request may be in a file beside the
    reply's, see `REQUEST`. Replies are not parsed yet, so that skipping costs little; what cannot be read has a
    `fault`. `InvalidInputError` if there is no such file.
    """

    sources: Sequence[str]
    passed_over: list[str] = field(default_factory=list, init=False)
    """The files of the folders read so far that are left out, since their names are not those of replies."""

    @cached_property
    def first(self) -> FoundReply | None:
        """The first reply; None where there is none."""
        return next(self._others, None)

    def __iter__(self) -> Iterator[FoundReply]:
        """All replies, the first one among them; they can be gone through once."""
        if self.first is not None:
            yield self.first
        yield from self._others

    @property
    def once_only(self) -> bool:
        """True if they can be read once only, as from standard input or a pipe."""
        return any(source == STANDARD_INPUT or Path(source).is_fifo() for source in self.sources)

    @cached_property
    def _others(self) -> Iterator[FoundReply]:
        """The replies that nobody has looked at yet: standard input cannot be read twice, and a large file need not."""
        return chain.from_iterable(map(self._replies_of, self.sources))

    def _replies_of(self, source: str) -> Iterator[FoundReply]:
        if source == STANDARD_INPUT:
            with reading_errors(Path("standard input")):
                yield from replies_in("standard input", "reply", sys.stdin.buffer)
            return
        for path in self._paths(source):
            name = path.name.partition(".")[0]
            request = _request_beside(path.with_name(f"{name}{REQUEST}"))
            try:
                with path.open("rb", buffering=READ_AT_ONCE) as file:
                    for reply in replies_in(str(path), name, file):
                        yield reply if request is None else replace(reply, request=request)
            except OSError as error:
                yield FoundReply(str(path), name, fault=f"It cannot be read: {error.strerror or error}.")

    def _paths(self, source: str) -> list[Path]:
        path = Path(source)
        try:
            is_folder, is_there = path.is_dir(), path.exists()
        except OSError as error:  # a name that is too long, as a reply in place of its file; a folder that is closed
            why = error.strerror or error
            raise InvalidInputError(f"There is no file, folder or match for {source:.80}: {why}.") from error
        if is_folder:
            files = sorted(file for file in path.rglob("*") if file.is_file())
            self.passed_over += [str(file) for file in files if not _may_hold_replies(file)]
            paths = [file for file in files if _may_hold_replies(file) and not file.name.endswith(REQUEST)]
            if not paths:
                raise InvalidInputError(f"{source} holds no file that ends in {', '.join(REPLY_SUFFIXES)}.")
            return paths
        if is_there:
            return [path]
        paths = sorted(Path(name) for name in glob.glob(source, recursive=True) if Path(name).is_file())
        if not paths:
            raise InvalidInputError(f"There is no file, folder or match for {source}.")
        return paths


def _may_hold_replies(path: Path) -> bool:
    """Return True if a file has the name of replies, which may be compressed, such as `a.jsonl.gz`."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith(REPLY_SUFFIXES)


def _request_beside(path: Path) -> Mapping[str, Any] | None:
    """The request beside a reply, if there is one."""
    try:
        request = json_or_none(decoded(read_file(path))) if path.is_file() else None
    except (OSError, ValueError):
        return None
    return request if isinstance(request, Mapping) else None
