"""Folders of clusters that tests change on purpose, and the commit of a repository."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
"""The commit of a repository of the hub."""


def checksum(folder: Path) -> str:
    """The checksum that a config must have, by the rule that `TokenClusters.save_pretrained` states."""
    content = json.loads((folder / "config.json").read_text())
    content.pop("config_sha256", None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the config of a folder, which has the right checksum again."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))
    file.write_text(json.dumps(config | {"config_sha256": checksum(folder)}))
