"""Numbers as people read them."""

from __future__ import annotations

import pytest

from semtoken.support.text import number, percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "under 1%"),
        (0.0099, "under 1%"),
        (0.01, "1%"),
        (0.555, "56%"),
        (0.85, "85%"),
        (0.99, "99%"),
        (0.9901, "over 99%"),
        (1.0, "over 99%"),
    ],
)
def test_a_share_is_a_whole_percent_but_at_its_ends(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 3, "0.000"),
        (0.0004, 3, "< 0.001"),
        (0.0005001, 3, "0.001"),
        (0.2134, 2, "0.21"),
        (0.9994, 3, "0.999"),
        (0.9996, 3, "> 0.999"),
        (0.996, 2, "> 0.99"),
        (1.0, 3, "1.000"),
    ],
)
def test_a_number_is_never_rounded_to_certainty(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text
