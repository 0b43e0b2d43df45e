"""Semantic Token Clustering from the k best log-probabilities a step, as APIs and serving engines show them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TopToken:
    """One token of a step, named as its engine named it: by id, by bytes, by text, or by several of them."""

    log_prob: float
    """Natural log of its next-token probability."""
    id: int | None = None
    text: str | None = None
    bytes: bytes | None = None


@dataclass(frozen=True)
class TopStep:
    """One decoding step: the token that was chosen, and the most probable ones."""

    chosen: TopToken
    top: tuple[TopToken, ...]
    """As the engine listed them; the chosen token may be among them or not."""
