"""On each side of the edges at which an answer is flagged for resting on other tokens than its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from semtoken.core.flags import borrowed_flags


def codes(confidence: float, cluster: float = 0.0, words: float = 0.0, tokens: Any = ()) -> list[str]:
    borrowed = SimpleNamespace(cluster=cluster, function_words=words)
    response: Any = SimpleNamespace(sequence_uncertainty=1 - confidence, borrowed=borrowed, tokens=tokens)
    return [flag.code for flag in borrowed_flags(response)]


@pytest.mark.parametrize(
    ("confidence", "mass", "flagged"),
    [(0.6, 0.31, True), (0.6, 0.29, False), (0.11, 0.1, True), (0.15, 0.1, True), (0.09, 0.09, False)],
)
def test_half_of_a_confidence_of_a_tenth_or_more(confidence: float, mass: float, flagged: bool) -> None:
    assert codes(confidence, cluster=mass) == ["carried_by_cluster"] * flagged
    assert codes(confidence, words=mass) == ["carried_by_function_words"] * flagged


@pytest.mark.parametrize(
    ("text", "p", "source", "counted", "flagged"),
    [
        ("Sydney", 0.11, "cluster", True, True),
        ("Sydney", 0.15, "cluster", True, True),
        ("Sydney", 0.09, "cluster", True, False),
        ("Sydney", 0.3, "prefix", True, False),
        ("Sydney", 0.3, "cluster", False, False),
        ("Canton", 0.3, "cluster", True, False),  # shares three letters
        ("Cairns", 0.3, "cluster", True, True),  # shares two
    ],
)
def test_a_rival_of_a_tenth_or_more_that_counted(
    text: str, p: float, source: str, counted: bool, flagged: bool
) -> None:
    other = SimpleNamespace(text=text, probability=p, source=source, counted=counted)
    token = SimpleNamespace(text="Canberra", probability=0.5, neutral=False, alternatives=[other])
    assert codes(0.9, tokens=[token]) == ["rivals_counted"] * flagged
    assert codes(0.9, tokens=[SimpleNamespace(**vars(token) | {"neutral": True})]) == []
