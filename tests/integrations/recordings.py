"""Recordings of what hosts, clients and gateways gave in their live tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
GATEWAYS = sorted(path.stem for path in (DATA / "gateways").glob("*.json"))


def recorded(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def gateway(name: str) -> Any:
    """A reply, whole and streamed, as a client or gateway hands it on."""
    return recorded(f"gateways/{name}")
