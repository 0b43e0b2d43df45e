"""Named arrays and a config, to and from a folder or a repository on the Hugging Face hub.

A folder is written whole or not at all, and never read half. Nothing here knows what the arrays mean.
"""

from __future__ import annotations

import hashlib
import json
import os
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

from semtoken.errors import ArtifactError, InvalidInputError, first_line_of
from semtoken.support.files.safe_files import ATTEMPTS, check_beside, former_folder, read_folder, replacing_folder
from semtoken.support.files.strict_json import dump_json, is_sealed, parse_json, seal
from semtoken.support.inputs import place, shown

FORMAT = "semtoken.clusters"
FORMAT_VERSION = 2
CONFIG_CHECKSUM = "config_sha256"
"""The entry of the config that holds its checksum; see `semtoken.support.files.strict_json.seal`."""
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


ARRAYS, CONFIG, CARD = FILES = ("clusters.safetensors", "config.json", "README.md")
"""Names of the files in a folder."""


@dataclass(frozen=True, eq=False)
class SavedArtifact:
    """The arrays, config and README of a saved folder."""

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
    """Write a folder, replacing one of the same kind: a reader, or a run that is killed, sees the old or the new one.
    `InvalidInputError` if the place cannot be written, or holds something else that would be lost.
    """
    target = place(directory, "directory").expanduser().resolve()
    check_replaceable(target)
    with replacing_folder(target) as new:
        _write_files(new, arrays, config, card)
    return target


def load(source: str | Path, *, revision: str | None = None) -> SavedArtifact:
    """Read a folder, or a repository of the hub; `ArtifactError` if it is not whole, or of an unknown version."""
    folder = _locate(source, revision)
    files = _read_files(folder, CONFIG, ARRAYS)
    config = _checked_config(folder, files[CONFIG])
    data = files[ARRAYS]
    if hashlib.sha256(data).hexdigest() != config.get("sha256"):
        raise _damaged(folder / ARRAYS, f"its content does not match the checksum in {CONFIG}")
    try:
        return SavedArtifact(arrays_from_bytes(data), config, folder)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ArtifactError(f"{folder / ARRAYS} is not a readable safetensors file: {error}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a folder, without its arrays; `ArtifactError` if it is not whole, or of another kind or version."""
    return _checked_config(folder, _read_files(folder, CONFIG)[CONFIG])


def _read_files(folder: Path, *names: str) -> dict[str, bytes]:
    try:
        return read_folder(folder, names)
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        if missing == ARRAYS:
            read_config(folder)  # perhaps it is a folder of another kind
        what = f"the file {missing} is missing" if missing in names else "it is no longer there"
        raise ArtifactError(f"{folder} holds no clusters: {what}.") from error
    except OSError as error:
        raise ArtifactError(f"Cannot read {folder}: {error.strerror or error}.") from error


def _checked_config(folder: Path, data: bytes) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = parse_json(data)
    except ValueError as error:
        raise _damaged(path, f"it is not valid JSON ({error})") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ArtifactError(f"{folder} does not hold token clusters: its {CONFIG} is of another kind.")
    version = config.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ArtifactError(
            f"{folder} has format version {version!r}; this release reads version {FORMAT_VERSION}. Use the release "
            "that wrote it, or make the clusters again."
        )
    if not is_sealed(config, CONFIG_CHECKSUM):
        raise _damaged(path, "its content does not match its own checksum")
    return config


def _damaged(path: Path, reason: str) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged or incomplete: {reason}. Copy or download the folder again, or make the clusters again."
    )


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
    """Upload a folder as a model repository of the hub, made if missing; returns the commit's URL."""
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
    """Return True if a folder was written by `save`, of whatever format version."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT


def check_replaceable(target: Path) -> None:
    """Raise `InvalidInputError` if `save` would put a folder in the place of something else. Nothing is changed."""
    if target.is_file():
        raise InvalidInputError(f"Cannot write {target}: it is a file. Give the name of a directory.")
    others = sorted({entry.name for entry in _entries(target)} - {*FILES})
    if others:
        raise InvalidInputError(
            f"{target} holds other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}), which "
            "would be lost. Choose a new or empty directory."
        )
    # Looked at again: another process may be putting its own folder there at this moment.
    if all(any(_entries(target)) and not is_saved(target) for _ in range(ATTEMPTS)):
        raise InvalidInputError(
            f"{target} is not empty and was not written by semtoken. Choose a new or empty directory."
        )


def check_target(target: Path) -> None:
    """Raise `InvalidInputError` unless `save` can put a folder there: see `check_replaceable` and `check_beside`."""
    check_replaceable(target)
    check_beside(target.resolve())


def _entries(target: Path) -> list[Path]:
    try:
        return list(target.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidInputError(f"Cannot write {target}: {error.strerror}. Choose another directory.") from error


def _write_files(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], config: Mapping[str, Any], card: str) -> None:
    data = arrays_to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    stamped = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "sha256": hashlib.sha256(data).hexdigest(),
        **config,
    }
    (folder / ARRAYS).write_bytes(data)
    (folder / CARD).write_text(card, encoding="utf-8")
    (folder / CONFIG).write_bytes(dump_json(seal(stamped, CONFIG_CHECKSUM), indent=2) + b"\n")


def _locate(source: str | Path, revision: str | None) -> Path:
    if not isinstance(source, str | os.PathLike):
        raise ArtifactError(f"Clusters are a directory or a hub id, got {shown(source)}.")
    path = Path(source).expanduser()
    if path.is_dir() or former_folder(path).is_dir():
        return path
    if path.exists():
        raise ArtifactError(f"{path} is a file; clusters are a directory that holds {ARRAYS}.")
    if isinstance(source, Path) or not HUB_ID.fullmatch(source):
        raise ArtifactError(f"There is no directory {path}.")
    from huggingface_hub import snapshot_download

    with _hub_errors(f"There is no directory '{source}' here, and the hub did not give it"):
        return Path(snapshot_download(source, revision=revision, allow_patterns=sorted(FILES)))


@contextmanager
def _hub_errors(what: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ArtifactError(f"{what}: {first_line_of(error)}") from error
