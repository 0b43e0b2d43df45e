"""What tells two models, or two sets of clusters, apart: their content, not the name they go by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from semtoken.errors import ModelError
from semtoken.tables import origin_of

_BLOCK = 1 << 22


def digest(content: Any) -> str:
    """SHA-256 of plain values; the order of names in a mapping does not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def model_identity(model: str | Path, revision: str | None = None) -> Mapping[str, str]:
    """A model or artifact by its content: the hash of a folder's files, or hub id and commit.

    Raises
    ------
    ModelError
        There is no such folder, and the hub does not know the name or cannot be reached.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return {"sha256": _folder_hash(folder.resolve())}
    origin = origin_of(str(model), revision=revision)
    if origin.commit is None:
        raise ModelError(f"The hub does not say which commit of {model} it has; name a directory instead.")
    return {"hub": str(model), "commit": origin.commit}


@lru_cache
def _folder_hash(folder: Path) -> str:
    """Of the names and bytes of all files that are no notes for people."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    total = hashlib.sha256()
    for path in files:
        if path.suffix == ".md":
            continue
        content = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                content.update(block)
        total.update(f"{path.name}\0{content.hexdigest()}\n".encode())
    return total.hexdigest()
