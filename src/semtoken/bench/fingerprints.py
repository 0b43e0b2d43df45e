"""What tells two models, or two sets of clusters, apart: their content, not the name they go by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from semtoken.clusters.tables import origin_of
from semtoken.errors import ModelError
from semtoken.models.sources import resolve

_BLOCK = 1 << 22


def digest(content: Any) -> str:
    """SHA-256 of plain values; the order of names in a mapping does not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def model_identity(model: str | Path, revision: str | None = None) -> Mapping[str, str]:
    """A model or artifact by its content: the hash of a folder's files or of a GGUF file, or hub id and commit.

    Raises
    ------
    ModelError
        There is no such folder or file, a model of the catalogue was not fetched, or the hub does not know the name or
        cannot be reached.
    """
    source = resolve(model)
    place = Path(source.path).expanduser()
    if place.is_dir():
        return {"sha256": _folder_hash(place.resolve())}
    if source.is_gguf:
        return {"sha256": _file_hash(place.resolve())}
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
        total.update(f"{path.name}\0{_file_hash(path)}\n".encode())
    return total.hexdigest()


@lru_cache
def _file_hash(path: Path) -> str:
    content = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            content.update(block)
    return content.hexdigest()
