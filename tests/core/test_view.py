from __future__ import annotations

import io
import math
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from semtoken import score_logprobs
from semtoken.core.results import Alternative, ScoredAnswer, ScoredToken
from semtoken.display import (
    END,
    NEWLINE,
    PLAIN_BELOW,
    colour,
    describe_alternatives,
    number,
    segments,
    shaded_html,
    shaded_text,
    token_table,
    with_bounds,
)
from semtoken.support.text import visible
from tests import worked
from tests.rows import each


def token(text: str, start: int, end: int, agreeing: float = 1.0, *, neutral: bool = False) -> ScoredToken:
    return ScoredToken(
        id=7,
        text=text,
        start=start,
        end=end,
        log_probability=math.log(agreeing / 2),
        log_agreeing_probability=math.log(agreeing),
        log_surface_probability=math.log(agreeing / 2),
        log_meaning_probability=math.log(agreeing),
        neutral=neutral,
        cluster_probability=agreeing,
        prefix_probability=0.0,
        neutral_probability=0.0,
        alternatives=(Alternative(8, " USA", 0.21, "cluster"), Alternative(9, "x", 0.0001, "prefix")),
    )


def response(text: str, *tokens: ScoredToken) -> ScoredAnswer:
    return ScoredAnswer(
        text=text,
        tokens=tokens,
        log_confidence=math.fsum(t.log_agreeing_probability for t in tokens),
        preset="default",
        distribution="raw",
        neutral_only=False,
        signature="k:2|words:paper",
    )


PARIS = response("New Paris\n", token("New", 0, 3), token(" Paris", 3, 9, 0.25), token("\n", 9, 10), token("", 10, 10))


class Parsed(HTMLParser):
    """What a browser would make of a fragment."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.text, self.tags, self.titles = "", list[str](), list[str]()
        self.feed(fragment)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"class", "style", "title"}
        self.titles += [value or "" for name, value in attrs if name == "title"]


def test_every_character_is_shown_once_with_the_uncertainty_of_its_tokens() -> None:
    cut = segments(PARIS)
    assert [s.text for s in cut] == ["New", " Paris", NEWLINE, END]
    assert [s.uncertainty for s in cut] == pytest.approx([0, 0.75, 0, 0])


def test_tokens_that_share_a_character_share_a_segment() -> None:
    cut = segments(response("a京b", token("a", 0, 1), token("�", 1, 2, 0.5), token("�", 1, 2, 0.5), token("b", 2, 3)))
    assert [s.text for s in cut] == ["a", "京", "b"]
    assert cut[1].uncertainty == pytest.approx(0.75)


def test_text_that_no_token_covers_is_kept() -> None:
    cut = segments(response("ab cd", token("b", 1, 2)))
    assert [(s.text, len(s.tokens)) for s in cut] == [("a", 0), ("b", 1), (" cd", 0)]


def test_newlines_inside_an_answer_stay() -> None:
    assert "".join(s.text for s in segments(response("a\nb", token("a\n", 0, 2), token("b", 2, 3)))) == "a\nb"


def test_only_uncertain_tokens_are_shaded() -> None:
    text = shaded_text(PARIS)
    assert text.plain == f"New Paris{NEWLINE}{END}"
    assert [text.plain[s.start : s.end] for s in text.spans if s.style] == [" Paris"]
    assert segments(response("a", token("a", 0, 1, 1 - PLAIN_BELOW / 2)))[0].shaded is False


def test_doubt_is_seen_without_colours() -> None:
    answer = response("abc", token("a", 0, 1, 0.95), token("b", 1, 2, 0.7), token("c", 2, 3, 0.2))
    styles = {answer.text[s.start : s.end]: str(s.style) for s in shaded_text(answer).spans}
    marks = {name: [mark for mark in ("bold", "underline") if mark in style] for name, style in styles.items()}
    assert marks == {"a": [], "b": ["underline"], "c": ["bold", "underline"]}
    assert shaded_html(answer).count("dashed") == 1 and shaded_html(answer).count("wavy") == 1


def test_colours_redden_with_uncertainty() -> None:
    greens = [colour(u / 10)[1] for u in range(11)]
    assert greens == sorted(greens, reverse=True)
    assert all(0 <= part <= 255 for u in range(11) for part in colour(u / 10))


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert visible("a\x1b[31m\x07\n\tb") == "a\\x1b[31m\\x07\n\tb"
    assert "\x1b" not in shaded_text(response("\x1b[31m", token("\x1b[31m", 0, 5))).plain


NASTY = "<script>alert('x')</script> & \"<b>\" [red] \x00"


def test_html_shows_the_text_and_nothing_else() -> None:
    nasty = token(NASTY, 0, len(NASTY), 0.5)
    nasty = replace(nasty, alternatives=(Alternative(8, '"><img src=x onerror=alert(1)>', 0.3, "cluster"),))
    html = shaded_html(replace(response(NASTY, nasty), signature='"><i>'))
    parsed = Parsed(html)
    assert set(parsed.tags) == {"div", "span", "small"}
    assert parsed.text.startswith(NASTY.replace("\x00", "\\x00"))
    assert "onerror" in parsed.titles[0] and "probability 0.250, agreeing 0.500" in parsed.titles[0]
    assert "http" not in html and "\x00" not in html


def test_html_of_an_empty_answer() -> None:
    empty = replace(response(""), log_confidence=-math.inf)
    assert "confidence 0.00: " in Parsed(shaded_html(empty)).text


def test_table_names_what_carried_the_mass() -> None:

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(token_table(response("New the", token("New", 0, 3, 0.6), token(" the", 3, 7, neutral=True))))
    shown = console.export_text()
    assert "0.300" in shown and "0.600" in shown and "' USA' 0.210 (cluster)" in shown
    assert "neutral" in shown and "0.000" not in shown


def test_alternatives_of_next_to_no_probability_are_left_out() -> None:
    assert describe_alternatives(token("x", 0, 1)) == "' USA' 0.210 (cluster)"


def test_bounds_are_shown_where_they_are_no_point() -> None:
    steps = [(worked.ids(" tele")[0], {worked.ids(t)[0]: math.log(p) for t, p in ((" tele", 0.5), (" radio", 0.2))})]
    scored = score_logprobs(steps, worked.clusters(), "paper")
    low, high = (number(math.exp(log), 2) for log in scored.log_confidence_interval)
    assert f"confidence {number(scored.confidence, 2)} ({low} to {high})" in Parsed(shaded_html(scored)).text
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


def test_an_answer_that_was_cut_off_says_so() -> None:
    cut = replace(response("New", token("New", 0, 3, 0.6)), truncated=True)
    assert "cut off by the token limit" in Parsed(shaded_html(cut)).text
    assert "cut off" not in Parsed(shaded_html(replace(cut, truncated=False))).text


def test_rivals_that_were_not_counted_are_named_as_such() -> None:
    rivals = (
        Alternative(1, " Sydney", 0.307, "cluster", counted=False),
        Alternative(2, "x", 0.02, "other", counted=False),
    )
    described = describe_alternatives(replace(token("Canberra", 0, 8), alternatives=rivals))
    assert described == "' Sydney' 0.307 (cluster, not counted), 'x' 0.020 (not counted)"
