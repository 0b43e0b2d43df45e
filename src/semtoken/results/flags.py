"""What the reader of a score should know about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """Something about an answer or its score that its reader should know."""

    code: str
    """For programs: "no_alternatives", "shared_vocabulary" and so on."""
    message: str
    """For people, one sentence."""
