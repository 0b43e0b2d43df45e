"""Numbers as people read them."""

from __future__ import annotations

import pytest

from semtoken.support.text import did_you_mean, error_text, number, one_line, percent, shortened, with_bounds, with_noun


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


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (shortened("x" * 60), "x" * 60),
        (shortened("x" * 61), "x" * 59 + "…"),
        (shortened("abcdef", 4), "abc…"),
        (error_text({"message": " too \n long ", "code": 1}), "too long"),
        (error_text("x" * 501), "x" * 500),
        (one_line("a\nb\x1b\u202e"), "a\\nb\\x1b\\u202e"),
        (did_you_mean("perplexty", ("stc", "perplexity")), " (did you mean 'perplexity'?)"),
        (did_you_mean("xyz", ("stc", "perplexity")), ""),
        (with_bounds(0.213, (0.194, 0.23)), "0.213 (0.194 to 0.230)"),
        (with_bounds(0.213, (0.2131, 0.2129)), "0.213"),
        (with_noun(1, "reply"), "1 reply"),
        (with_noun(0, "part"), "0 parts"),
        (with_noun(1200, "entry"), "1,200 entries"),
    ],
)
def test_texts_are_fit_for_a_line(shown: str, text: str) -> None:
    assert shown == text
