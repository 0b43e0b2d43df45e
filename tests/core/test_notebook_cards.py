"""Results in notebooks and terminals: whole, escaped, without scripts, and short."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hs

import semtoken as st
from semtoken.core.parts import Parts
from semtoken.core.results import Answers, Decision, Flag
from semtoken.core.results.confidence import RANKS
from semtoken.support.html_elements import MOST_ROWS, element
from tests import worked
from tests.browsers import needed
from tests.core.shown import NASTY, Seen, answer
from tests.rows import each


@cache
def calibrated() -> tuple[st.Calibrator, st.Threshold, Any]:
    generator = np.random.default_rng(7)
    scores = -generator.exponential(1.0, 400)
    correct = generator.random(400) < np.exp(scores)
    calibrator = st.Calibrator.fit(scores, correct)
    threshold = st.Threshold.fit(scores, correct, alpha=0.3)
    return replace(calibrator, threshold=threshold), threshold, calibrator.report(scores, correct)


def clusters() -> st.TokenClusters:
    return replace(worked.clusters(), provenance={"model": NASTY})


SHOWN: dict[str, Callable[[], Any]] = {
    "answer": lambda: answer(("Paris", 0.4), (", ", 0.99), ("France", 0.7), truncated=True, flags=(Flag("x", NASTY),)),
    "hostile answer": lambda: answer((NASTY, 0.3)),
    "empty answer": lambda: answer(),
    "answers": lambda: Answers([answer((NASTY, 0.3)), answer(("Paris", 0.4))]),
    "part": lambda: answer((NASTY, 0.3)).parts(by=lambda text: [(0, len(text), NASTY)])[0],
    "parts": lambda: answer((NASTY, 0.3)).parts(by=lambda text: [(0, len(text), NASTY)]),
    "clusters": clusters,
    "calibrator": lambda: calibrated()[0],
    "threshold": lambda: calibrated()[1],
    "report": lambda: calibrated()[2],
}


@each("name", SHOWN)
def test_a_card_is_whole_and_harmless(name: str) -> None:
    card = SHOWN[name]()._repr_html_()
    seen = Seen(card)  # asserts
    assert seen.text.strip()
    assert "http" not in card and "\x1b" not in card and "\u202e" not in card


@each("name", SHOWN)
def test_a_repr_is_one_short_line(name: str) -> None:
    shown = SHOWN[name]()
    for one in shown if isinstance(shown, list) else [shown]:
        assert "\n" not in repr(one) and len(repr(one)) < 400
        assert repr(one).startswith(type(one).__name__ + "(")
        assert "\x1b" not in repr(one)


@given(hs.text(min_size=1))
def test_the_text_of_an_answer_is_shown_whole(text: str) -> None:
    seen = Seen(answer((text, 0.9999))._repr_html_())
    escaped = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    lines = seen.text.replace("\r\n", "\n").replace("\r", "\n")
    assert escaped.rstrip("\n") in lines or not text.strip("\n")


def test_a_calibrated_answer_shows_its_chance_and_the_verdict() -> None:
    decision = Decision("abstain", "uncertain", 0.25, f"{NASTY} guarantee")
    known = answer(
        ("Paris", 0.4), probability_correct=0.25, probability_correct_interval=(0.2, 0.31), decision=decision
    )
    text = Seen(known._repr_html_()).text
    assert "Right in about 25% of the answers that score like this one (20% to 31%)." in text
    assert "Check this: " in text and "guarantee" in text and RANKS not in text
    listed = Seen(Answers([known, answer(("Rome", 0.9))])._repr_html_())
    assert "25%" in listed.text and "Check this" in listed.text and "Accepted" not in listed.text
    accepted = replace(known, decision=replace(decision, action="answer"))
    assert "Accepted" in Seen(accepted._repr_html_()).text


def test_a_chance_below_one_is_never_shown_as_all() -> None:
    known = answer(("Paris", 0.4), probability_correct=0.997, probability_correct_interval=(0.003, 1.0))
    said = "Right in over 99% of the answers that score like this one (under 1% to 100%)."
    assert said in Seen(known._repr_html_()).text


def test_a_colon_in_what_is_quoted_is_text() -> None:
    quoted = answer(('{"odds": "', 0.99), ("3: 1", 0.4), ('"}', 0.99))
    assert "Its least sure field is /odds, \u201c3: 1\u201d." in quoted.explanation
    assert "its least sure field is /odds, \u201c3: 1\u201d" in Seen(quoted._repr_html_()).text


def test_a_long_list_says_what_it_leaves_out() -> None:
    seen = Seen(Answers([answer(("Paris", 0.4))] * (MOST_ROWS + 7))._repr_html_())
    assert seen.rows == MOST_ROWS and "7 more rows" in seen.text


def test_lists_of_results_are_lists() -> None:
    answers = Answers([answer(("Paris", 0.4))])
    assert answers == [answer(("Paris", 0.4))] and isinstance(answers, list)
    assert json.dumps([one.to_dict() for one in answers]) and answers[0].text == "Paris"
    assert type(answers[0].parts(by="word")) is Parts
    assert Answers()._repr_html_() and Parts()._repr_html_()


def test_a_generation_is_short_too() -> None:
    made = st.Generation("Paris", [1], log_probs=np.zeros(1), hidden_states=None)
    assert repr(made) == "Generation('Paris', 1 tokens; recorded: log_probs)"


def test_attributes_are_escaped() -> None:
    assert element("p", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;"></p>'


@pytest.mark.slow
@pytest.mark.parametrize("colors", ["background:#fff;color:#111", "background:#111;color:#ddd"])
def test_cards_are_accessible_in_light_and_dark(tmp_path: Path, browser: Any, colors: str) -> None:
    axe = needed("axe_playwright_python.sync_playwright")
    cards = "".join(make()._repr_html_() for make in SHOWN.values()).replace("<details>", "<details open>")
    page = f"<!doctype html><html lang=en><title>cards</title><body style='{colors}'><main><h1>cards</h1>{cards}</main>"
    (tmp_path / "cards.html").write_text(page, "utf-8")
    opened = browser.new_page(viewport={"width": 390, "height": 800})
    opened.goto((tmp_path / "cards.html").as_uri())
    found = axe.Axe().run(opened)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    assert found.violations_count == 0, found.generate_report()


def test_the_card_of_a_threshold_says_from_which_score_answers_are_accepted() -> None:
    threshold = calibrated()[1]
    least = f"{threshold.min_log_score:.4g}"
    assert f"Accepted from a log score of {least} by stc." in Seen(threshold._repr_html_()).text
    strict = replace(threshold, strict=True)
    assert f"Accepted above a log score of {least} by stc." in Seen(strict._repr_html_()).text
