"""An engine's score against its twin: the same answer of the same weights, read by transformers in float32."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from semtoken.core.results import ScoredAnswer

TOLERANCE = 1e-4
NEWLINE = 201
"""The token of the embedded model that ends its answers."""


def assert_same(scored: ScoredAnswer, twin: ScoredAnswer) -> None:
    """The answer and all of its numbers are those of its twin."""
    assert (scored.token_ids, scored.text, scored.signature) == (twin.token_ids, twin.text, twin.signature)
    assert scored.log_confidence == pytest.approx(twin.log_confidence, abs=TOLERANCE)
    for token, other in zip(scored.tokens, twin.tokens, strict=True):
        assert token.log_probability == pytest.approx(other.log_probability, abs=TOLERANCE)
        assert token.log_agreeing_probability == pytest.approx(other.log_agreeing_probability, abs=TOLERANCE)
        assert token.neutral == other.neutral


def assert_holds(interval: Sequence[float], twin: ScoredAnswer) -> None:
    """The interval of an engine's list holds the exact number."""
    lower, upper = interval
    assert lower - TOLERANCE <= twin.sequence_uncertainty <= upper + TOLERANCE
