"""Named arrays and a config, to and from a folder or a repository on the Hugging Face hub.

A folder is written whole or not at all, and never read half. Nothing here knows what the arrays mean.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_from_bytes
from safetensors.numpy import save as arrays_to_bytes

from semtoken._files import ATTEMPTS, replacing_folder
from semtoken.errors import ArtifactError, InvalidInput

FORMAT = "semtoken.clusters"
FORMAT_VERSION = 1
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Layout:
    """Names of the files in a folder."""

    arrays: str = "clusters.safetensors"
    config: str = "config.json"
    card: str = "README.md"

    @property
    def names(self) -> frozenset[str]:
        """All files that a folder holds."""
        return frozenset((self.arrays, self.config, self.card))


LAYOUT = Layout()


@dataclass(frozen=True, eq=False)
class Saved:
    """What a folder holds."""

    arrays: Mapping[str, npt.NDArray[Any]]
    config: Mapping[str, Any]
    path: Path
    """Folder that was read; for a hub id its copy in the local hub cache."""


def save(
    directory: str | Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    config: Mapping[str, Any],
    card: str,
) -> Path:
    """Write a folder, replacing one of the same kind.

    The files are written into a hidden folder beside the target, which then takes its name: a reader, or a
    run that is killed, sees the old folder or the new one.

    Raises
    ------
    InvalidInput
        The place cannot be written, or holds something else that would be lost.
    """
    target = Path(directory).expanduser().resolve()
    _check_replaceable(target)
    with replacing_folder(target) as new:
        _write_files(new, arrays, config, card)
    return target


def load(source: str | Path, *, revision: str | None = None) -> Saved:
    """Read a folder, or a repository of the hub.

    Raises
    ------
    ArtifactError
        It is missing, damaged, incomplete, or of a format version that this release does not read.
    """
    folder = _locate(source, revision)
    config = read_config(folder)
    data = _read_bytes(folder / LAYOUT.arrays)
    if hashlib.sha256(data).hexdigest() != config.get("sha256"):
        raise ArtifactError(
            f"{folder / LAYOUT.arrays} is damaged or incomplete: its content does not match the checksum in "
            f"{LAYOUT.config}. Copy or download the folder again, or make it anew."
        )
    try:
        return Saved(arrays_from_bytes(data), config, folder)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ArtifactError(f"{folder / LAYOUT.arrays} is not a readable safetensors file: {error}") from error


def push(
    repo_id: str,
    arrays: Mapping[str, npt.NDArray[Any]],
    config: Mapping[str, Any],
    card: str,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Upload a folder as a model repository of the hub, made if missing; returns the commit's URL.

    Raises
    ------
    ArtifactError
        The hub refused, or cannot be reached.
    """
    import tempfile

    from huggingface_hub import HfApi

    with _hub_errors(f"Cannot upload to '{repo_id}'"), tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write_files(folder, arrays, config, card)
        api = HfApi(token=token)
        repository = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message or "Upload token clusters",
        )
    return str(commit.commit_url)


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save`, of whatever format version."""
    try:
        config = json.loads((folder / LAYOUT.config).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT


def _check_replaceable(target: Path) -> None:
    if target.is_file():
        raise InvalidInput(f"Cannot write {target}: it is a file. Give the name of a directory.")
    others = sorted({entry.name for entry in _entries(target)} - LAYOUT.names)
    if others:
        raise InvalidInput(
            f"{target} holds other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}), which "
            "would be lost. Choose a new or empty directory."
        )
    # Looked at again: another process may be putting its own folder there at this moment.
    if all(any(_entries(target)) and not is_saved(target) for _ in range(ATTEMPTS)):
        raise InvalidInput(f"{target} is not empty and was not written by semtoken. Choose a new or empty directory.")


def _entries(target: Path) -> list[Path]:
    try:
        return list(target.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidInput(f"Cannot write {target}: {error.strerror}. Choose another directory.") from error


def _write_files(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], config: Mapping[str, Any], card: str) -> None:
    data = arrays_to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    stamped = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "sha256": hashlib.sha256(data).hexdigest(),
        **config,
    }
    (folder / LAYOUT.arrays).write_bytes(data)
    (folder / LAYOUT.card).write_text(card, encoding="utf-8")
    text = json.dumps(stamped, indent=2, ensure_ascii=False)
    (folder / LAYOUT.config).write_text(text + "\n", encoding="utf-8")


def _locate(source: str | Path, revision: str | None) -> Path:
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise ArtifactError(f"{path} is a file; clusters are a directory that holds {LAYOUT.arrays}.")
    if isinstance(source, Path) or not HUB_ID.fullmatch(source):
        raise ArtifactError(f"There is no directory {path}.")
    from huggingface_hub import snapshot_download

    with _hub_errors(f"There is no directory '{source}' here, and it cannot be had from the hub"):
        return Path(snapshot_download(source, revision=revision, allow_patterns=sorted(LAYOUT.names)))


@contextmanager
def _hub_errors(what: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ArtifactError(f"{what}: {reason}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a folder, without its arrays.

    Raises
    ------
    ArtifactError
        It is missing, damaged, or of a kind or format version that this release does not read.
    """
    path = folder / LAYOUT.config
    try:
        config = json.loads(_read_bytes(path))
    except ValueError as error:
        raise ArtifactError(f"{path} is not valid JSON ({error}). Copy or download the folder again.") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ArtifactError(f"{folder} does not hold token clusters: its {LAYOUT.config} is of another kind.")
    if config.get("format_version") != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder} has format version {config.get('format_version')!r}; this release reads version "
            f"{FORMAT_VERSION}. Use the release that wrote it, or make the clusters anew."
        )
    return config


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(f"{path.parent} holds no clusters: the file {path.name} is missing.") from error
    except OSError as error:
        raise ArtifactError(f"Cannot read {path}: {error.strerror}.") from error
