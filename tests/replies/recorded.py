"""The recorded replies: engines that were run, and shapes written after documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from semtoken import TokenClusters
from semtoken.support.almanac import almanac_clusters_path
from semtoken.support.sse import EventReader

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Expected:
    """The facts that a person wrote down of a recorded reply; data/README.md says more."""

    format: str
    steps: int
    """Tokens of the answers that have a log-probability."""
    ids: bool
    """They have ids, too."""
    unasked: Mapping[str, Any] = field(default_factory=dict)
    """Members that have another value for a client that asked for no log-probabilities."""
    gone: Sequence[str] = ()
    """Members that such a client does not get."""

    def without_numbers(self, value: Any) -> Any:
        """A reply, or events of its stream, as a client gets them that asked for no log-probabilities."""
        if isinstance(value, list):
            return [self.without_numbers(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            name: self.unasked[name] if name in self.unasked and one is not None else self.without_numbers(one)
            for name, one in value.items()
            if name not in self.gone
        }


@dataclass(frozen=True)
class Recording:
    name: str
    engine: str
    expected: Expected
    reply: Any
    stream: str
    """The text of its stream as the engine sends it; empty where that was not recorded."""

    @property
    def choices(self) -> list[dict[str, Any]]:
        return list(self.reply["choices"])

    @property
    def events(self) -> list[bytes]:
        """The events of its stream, as they were sent."""
        return [event.raw for event in EventReader().feed(self.stream)]


@cache
def recording(name: str) -> Recording:
    saved = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return Recording(name, saved["engine"], Expected(**saved["expected"]), saved["reply"], saved.get("stream") or "")


NAMES = sorted(path.stem for path in DATA.glob("*.json"))
STREAMED = [name for name in NAMES if recording(name).stream]


@cache
def clusters() -> TokenClusters:
    """The clusters of the almanac, the model that all the recordings are of."""
    return TokenClusters.from_pretrained(almanac_clusters_path())
