"""The origin of a run: versions, seeds, hardware, git state, times, and the fingerprints of its inputs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from semtoken.bench.settings import RunSettings
from semtoken.clustering.tables import origin_of
from semtoken.errors import ModelError
from semtoken.support.checkpoints.sources import resolve
from semtoken.support.installation import installed_version, physical_memory


def digest(content: Any) -> str:
    """SHA-256 of plain values; the order of names in a mapping does not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def model_identity(model: str | Path, revision: str | None = None) -> Mapping[str, str]:
    """The identity of a model's content: a hash of its files, or its hub id and commit.

    `ModelError` if there is no such folder or file, a model of the catalog was not fetched, or the hub does not know
    the name or cannot be reached.
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
    """A hash of the names and bytes of all files that are no notes for people."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".md":
            total.update(f"{path.name}\0{_file_hash(path)}\n".encode())
    return total.hexdigest()


@lru_cache
def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PACKAGES = (
    "semtoken",
    "torch",
    "transformers",
    "tokenizers",
    "sentence-transformers",
    "numpy",
    "scipy",
    "pyarrow",
    "vllm",
)


def now() -> str:
    """The time now in UTC, as ISO 8601 writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def session(settings: RunSettings, directory: Path) -> dict[str, Any]:
    """The facts of a run that begins now; of its settings only the seeds. `directory` is that of the settings file."""
    versions = {name: version for name in PACKAGES if (version := installed_version(name)) is not None}
    return {
        "started": now(),
        "finished": None,
        "status": "running",
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "seeds": {"questions": settings.seed, "samples": settings.decoding.seed},
        "versions": {"python": platform.python_version(), **versions},
        "hardware": hardware(),
        "git": git_state(directory),
    }


def hardware() -> dict[str, Any]:
    """The processor, the cores that this process may use, the memory in bytes, and the GPUs."""
    import torch

    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": physical_memory(),
        "gpus": [{"name": device.name, "memory": device.total_memory} for device in devices],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def git_state(directory: Path) -> dict[str, Any] | None:
    """The commit of the repository that a directory is in, and whether files have changed; None outside one."""
    git = shutil.which("git")
    if git is None:
        return None

    def ask(*arguments: str) -> str | None:
        done = subprocess.run(  # noqa: S603  a fixed program, no shell
            [str(git), "-C", str(directory), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "changed": bool(ask("status", "--porcelain"))}
