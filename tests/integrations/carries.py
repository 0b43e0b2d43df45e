"""Parts of a semtoken reply that a gateway hands on, by a recording, and the table of docs/integrations/carries.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.integrations.recordings import GATEWAYS, gateway

COLUMNS = (
    "Score",
    "Final score in a stream",
    "Values so far",
    "Log-probabilities",
    "Bytes of tokens",
    "Ids of tokens",
)


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a value, at any depth."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from mappings(item)
    elif isinstance(value, list):
        for item in value:
            yield from mappings(item)


def blocks(value: Any) -> list[dict[str, Any]]:
    found = [one["semtoken"] for one in mappings(value) if isinstance(one.get("semtoken"), dict)]
    return [block for block in found if "sequence_uncertainty" in block]


def row(recording: dict[str, Any]) -> list[str]:
    """The cells of one gateway."""
    whole, stream = recording["whole"], recording["stream"]
    tokens = [one for one in mappings(whole) if "logprob" in one and one.get("top_logprobs")]
    final = any(block.get("final") is True for block in blocks(stream))
    running = any(block.get("final") is False for block in blocks(stream))
    cells = [
        bool(blocks(whole)),
        final if stream else None,
        running if stream else None,
        bool(tokens),
        bool(tokens) and all(one.get("bytes") for one in tokens),
        bool(tokens) and all(isinstance(one.get("id"), int) for one in tokens),
    ]
    return ["no stream" if cell is None else "yes" if cell else "**no**" for cell in cells]


def table() -> str:
    """The table in Markdown, the server itself first."""
    names = sorted(GATEWAYS, key=lambda name: (name != "serve", name))
    lines = ["| Client or gateway | Version | " + " | ".join(COLUMNS) + " |", "| --- " * (2 + len(COLUMNS)) + "|"]
    for name in names:
        one = gateway(name)
        lines.append(f"| {one['title']} | {one['version']} | " + " | ".join(row(one)) + " |")
    return "\n".join(lines)
