"""What an endpoint said, kept on disk: JSON in a SQLite file, never evicted, no pickle.

The file holds hashes of requests and the replies to them. A reply is on disk when `write` returns, also if the process
is killed then; several processes may share a folder.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.support.extras import require


@dataclass(frozen=True)
class Usage:
    """What replies took."""

    replies: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Of the prompt tokens, those that the endpoint had cached, which cost less."""
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    def __sub__(self, other: Usage) -> Usage:
        return Usage(**{name: value - getattr(other, name) for name, value in asdict(self).items()})


@dataclass(frozen=True)
class JudgeReply:
    """What the endpoint said."""

    text: str
    usage: Usage


@dataclass(frozen=True)
class KeptReplies:
    """An open folder of replies, from `opened`."""

    disk: Any
    """A `diskcache.Cache`."""

    def __contains__(self, key: str) -> bool:
        return key in self.disk

    def read(self, key: str) -> JudgeReply:
        """The reply to the request with this hash."""
        record = self.disk[key]
        return JudgeReply(record["text"], Usage(**record["usage"]))

    def write(self, key: str, reply: JudgeReply) -> None:
        """Keep a reply."""
        self.disk.set(key, asdict(reply), retry=True)


@contextmanager
def opened(folder: Path) -> Iterator[KeptReplies]:
    """The replies in a folder, which is made where it is missing.

    Raises
    ------
    InvalidInput
        The folder cannot be used or is damaged, or an entry is not one of ours.
    """
    diskcache = require("diskcache", extra="bench")

    class PlainDisk(diskcache.JSONDisk):  # type: ignore[misc, name-defined]
        """Texts as keys (`JSONDisk` compresses them, which not every build of zlib does alike); values only as JSON."""

        def put(self, key: Any) -> Any:
            return diskcache.Disk.put(self, key)

        def get(self, key: Any, raw: Any) -> Any:
            return key

        def fetch(self, mode: int, filename: Any, value: Any, read: Any) -> Any:
            if mode == diskcache.core.MODE_PICKLE:
                raise InvalidInput(
                    f"{folder} holds a pickled entry, which semtoken neither writes nor reads; delete it."
                )
            return super().fetch(mode, filename, value, read)

    try:
        with diskcache.Cache(str(folder), disk=PlainDisk, eviction_policy="none", cull_limit=0) as disk:
            yield KeptReplies(disk)
    except (OSError, sqlite3.Error, zlib.error, json.JSONDecodeError) as error:
        raise InvalidInput(
            f"The folder of replies {folder} cannot be used: {error}. Name another one (cache), or delete it if it is "
            "damaged."
        ) from error
