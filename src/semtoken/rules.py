"""The former home of `ScoringRules`, which is in `semtoken.scoring`."""

from __future__ import annotations

from semtoken.scoring import ScoringRules

__all__ = ["ScoringRules"]
