"""The recorded replies: engines that were run, and shapes written after documentation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from semtoken import TokenClusters
from semtoken.almanac import almanac_clusters_path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Recording:
    name: str
    engine: str
    reply: Any
    stream: str | None

    @property
    def choices(self) -> list[dict[str, Any]]:
        return list(self.reply["choices"])


@cache
def recording(name: str) -> Recording:
    saved = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return Recording(name, saved["engine"], saved["reply"], saved.get("stream"))


NAMES = sorted(path.stem for path in DATA.glob("*.json"))
STREAMED = [name for name in NAMES if recording(name).stream]


@cache
def clusters() -> TokenClusters:
    """Those of the almanac, the model that all the recordings are of."""
    return TokenClusters.from_pretrained(almanac_clusters_path())
