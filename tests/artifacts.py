"""Folders of clusters that tests change on purpose."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def checksum(folder: Path) -> str:
    """The checksum that a config must have, by the rule that `TokenClusters.save_pretrained` states."""
    content = json.loads((folder / "config.json").read_text())
    content.pop("config_sha256", None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
