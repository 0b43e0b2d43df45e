"""What probing returns."""

from __future__ import annotations

from dataclasses import dataclass

from semtoken.parts import Part


@dataclass(frozen=True)
class Competitor:
    """One of the meanings that compete at a step."""

    probability: float
    """Mass of the tokens of this meaning, in [0, 1]."""
    tokens: tuple[tuple[str, float], ...]
    """The most probable of them, with their own probabilities."""
    token_ids: tuple[int, ...]
    """Their ids."""
    chosen: bool
    """The answer goes on with this one."""
    continuation: str | None = None
    """How the answer goes on from the word that the step is in, to the end of the phrase; None if not asked for."""


@dataclass(frozen=True)
class Dispute:
    """A step at which the model could have said something else."""

    step: int
    """Index of the token."""
    part: Part
    """The phrase (or the word) that it belongs to."""
    competitors: tuple[Competitor, ...]
    """Those that say different things, the most probable first; branches that say the same are one."""
    disagreement: float
    """Mass of the competitors that say something else than the answer, in [0, 1]."""
    unheard: float
    """Mass of tokens that were not followed."""
