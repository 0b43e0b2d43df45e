"""Answers in a terminal and as HTML: what is shaded, named and escaped."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.style import Style

from semtoken import score_logprobs
from semtoken.core.results import Alternative, Answers, Decision, Flag
from semtoken.core.scored_token import ValueEnds
from semtoken.display import (
    color,
    legend,
    parts_table,
    scores_line,
    segments,
    shaded_html,
    shaded_text,
    summary_line,
    token_table,
)
from semtoken.support.text import END, NEWLINE, number, visible, with_bounds
from tests import worked
from tests.core.shown import NASTY, Seen, answer, read_html, read_table, read_text, token
from tests.known import known
from tests.rows import each

PARIS = answer(("New", 1.0), (" Paris", 0.25), ("\n", 1.0), ("", 1.0))


def test_every_character_is_shown_once_with_the_uncertainty_of_its_tokens() -> None:
    cut = segments(PARIS)
    assert [s.text for s in cut] == ["New", " Paris", NEWLINE, END]
    assert [s.uncertainty for s in cut] == pytest.approx([0, 0.75, 0, 0])


def test_tokens_that_share_a_character_share_a_segment() -> None:
    pieces = (token("a", 0, 1), token("�", 1, 2, 0.5), token("�", 1, 2, 0.5), token("b", 2, 3))
    cut = segments(answer(text="a京b", tokens=pieces))
    assert [s.text for s in cut] == ["a", "京", "b"]
    assert cut[1].uncertainty == pytest.approx(0.75)


def test_text_that_no_token_covers_is_kept() -> None:
    cut = segments(answer(text="ab cd", tokens=(token("b", 1, 2),)))
    assert [(s.text, len(s.tokens)) for s in cut] == [("a", 0), ("b", 1), (" cd", 0)]


def test_newlines_inside_an_answer_stay() -> None:
    assert "".join(s.text for s in segments(answer(("a\n", 1.0), ("b", 1.0)))) == "a\nb"


def test_colors_redden_with_uncertainty() -> None:
    greens = [color(u / 10)[1] for u in range(11)]
    assert greens == sorted(greens, reverse=True)
    assert all(0 <= part <= 255 for u in range(11) for part in color(u / 10))


def luminance(shade: Sequence[int]) -> float:
    """WCAG's relative luminance of a color, in [0, 1]."""
    parts = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in shade]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_words_have_the_shade_of_their_uncertainty_and_can_be_read_on_it() -> None:
    for uncertainty in np.linspace(0.03, 1, 40).tolist():
        word = answer(("w", 1 - uncertainty)) if uncertainty < 1 else answer(("w", 1e-9))
        style = Style.parse(str(shaded_text(word).spans[0].style))
        assert style.color is not None and style.bgcolor is not None
        ink, ground = style.color.get_truecolor(), style.bgcolor.get_truecolor()
        assert ground == color(uncertainty)
        dark, light = sorted((luminance(ink), luminance(ground)))
        assert (light + 0.05) / (dark + 0.05) > 3
        assert f"color:{ink.hex};background:{ground.hex}" in shaded_html(word)


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert visible("a\x1b[31m\x07\n\tb") == "a\\x1b[31m\\x07\n\tb"
    assert "\x1b" not in shaded_text(answer(("\x1b[31m", 1.0))).plain


def test_html_shows_the_text_and_nothing_else() -> None:
    nasty = NASTY + "[red] \x00"
    one = token(nasty, 0, len(nasty), 0.5, 0.25, alternatives=(Alternative(8, '">' + NASTY, 0.3, "cluster"),))
    html = shaded_html(answer(text=nasty, tokens=(one,), log_confidence=math.log(0.5)))
    seen = Seen(html)
    assert seen.tags == {"div", "span", "small"}
    assert seen.text.startswith(visible(nasty))
    assert "onerror" in seen.titles[0] and "probability 0.250, agreeing 0.500" in seen.titles[0]
    assert "http" not in html and "\x00" not in html


def test_bounds_are_shown_where_they_are_no_point() -> None:
    steps = [(worked.ids(" tele")[0], {worked.ids(t)[0]: math.log(p) for t, p in ((" tele", 0.5), (" radio", 0.2))})]
    scored = score_logprobs(steps, worked.clusters(), "paper")
    low, high = (number(math.exp(log), 2) for log in known(scored.log_confidence_interval))
    assert f"confidence {number(scored.confidence, 2)} ({low} to {high})" in Seen(shaded_html(scored)).text
    assert "agreeing 0.500 (0.500 to 0.800)" in shaded_html(scored)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(token_table(scored))
    assert "0.500 (0.500 to 0.800)" in console.export_text()
    assert with_bounds(0.25, (0.2499, 0.2501)) == "0.250"


@each(
    ("value", "shown"),
    [
        *((0.0, "0.000"), (1.0, "1.000"), (0.2134, "0.213"), (0.00051, "0.001"), (0.9994, "0.999")),
        *((1e-9, "< 0.001"), (0.00049, "< 0.001"), (0.9996, "> 0.999"), (1 - 1e-12, "> 0.999")),
    ],
)
def test_one_and_nought_are_shown_only_where_they_are_exact(value: float, shown: str) -> None:
    assert number(value) == shown


@given(st.floats(0, 1), st.integers(1, 6))
def test_numbers_that_are_shown_are_true(value: float, digits: int) -> None:
    shown = number(value, digits)
    if shown.startswith("<"):
        assert 0 < value < float(shown[2:])
    elif shown.startswith(">"):
        assert float(shown[2:]) < value < 1
    else:
        assert abs(float(shown) - value) <= 0.5000001 * 10**-digits
        assert value in (0, 1) or 0 < float(shown) < 1


UNCERTAINTIES = (0.0, 0.019, 0.021, 0.14, 0.16, 0.49, 0.5, 0.999)
RIVALS = (Alternative(8, " USA", 0.21, "cluster"), Alternative(9, "x", 0.011, "other", counted=False))
RARE = (Alternative(7, "y", 0.009, "prefix", counted=False), Alternative(6, "z", 0.0009, "neutral", counted=False))
SHOWN = {
    "a scale": answer(*((f"w{uncertainty}, ", 1 - uncertainty) for uncertainty in UNCERTAINTIES)),
    "pieces, a gap, a neutral token": answer(
        text="a京 gap b\n\n",
        tokens=(
            *(token("a", 0, 1, 0.9, 0.4), token("�", 1, 2, 0.5), token("�", 1, 2, 0.5)),
            *(token(" b", 6, 8, neutral=True), token("\n\n", 8, 10, 0.8), token("", 10, 10, 0.3)),
        ),
        log_confidence=math.log(0.9 * 0.5**2 * 0.8 * 0.3),
        flags=(Flag("odd", "Something is odd."),),
    ),
    "a decision": answer(
        *(("Paris", 0.4), (", ", 0.99), ("Lyon", 0.6)),
        truncated=True,
        log_confidence_interval=(math.log(0.2), math.log(0.3)),
        probability_correct=0.25,
        probability_correct_interval=(0.2, 0.31),
        decision=Decision("abstain", "uncertain", 0.25, "At most 10% are wrong."),
        scores={"perplexity": 1.25, "margin": 0.5},
        score_bounds={"margin": (0.4, 0.6)},
    ),
    "a sentence": answer(("The", 0.9), (" capital", 0.8), (" is", 0.9), (" Paris", 0.3), (".", 1.0), question="Where?"),
    "one phrase": answer(("It is", 0.9), (" Paris", 0.3), (".", 1.0), question="Where?"),
    "JSON": answer(("{", 1.0), ('"a": ', 0.9), ("12", 0.7), ("}", 0.9), question=""),
    "function words": answer((" the", 0.9), neutral_only=True),
    "a line end": answer(("\n", 0.9)),
    "nothing": answer(log_confidence=-math.inf),
}

IN_TABLES = {"a scale", "pieces, a gap, a neutral token", "a decision", "JSON", "nothing"}
"""Answers whose tokens and parts are listed, too."""


def views() -> Iterator[str]:
    """Each answer as a reader sees it in terminals, pages and notebooks."""
    ends, rules = ValueEnds((0.1, 0.2, 0.3), quote=(0.5, 0.9, 1.0)), "preset:default|clustering:off|spelling:same"
    for name, made in SHOWN.items():
        others = [RARE if place % 2 else RIVALS for place in range(len(made.tokens))]
        kept = [replace(one, alternatives=of, value_ends=ends) for one, of in zip(made.tokens, others, strict=True)]
        one = replace(made, tokens=tuple(kept), signature=rules)
        yield from (f"# {name}", read_text(shaded_text(one)), summary_line(one), summary_line(one, hidden=True))
        yield from (scores_line(one), read_html(shaded_html(one)), read_html(one._repr_html_()))
        if name in IN_TABLES:
            words, fields = one.parts("word"), one.parts("field", schema={"properties": {"b": {}}})
            yield from map(read_table, (token_table(one), parts_table(words), parts_table(fields)))
            pages: list[Any] = [Answers([one]), *one.parts("phrase")[:1], words, fields]
            yield from (read_html(page._repr_html_()) for page in pages)
    yield read_text(legend())


def test_answers_are_shown_as_they_were() -> None:
    """If a change is meant, what this test prints goes into the file, once it has been read."""
    shown = "\n".join(views()) + "\n"
    print(shown)
    assert shown == Path(__file__).with_name("recorded_views.txt").read_text("utf-8")
