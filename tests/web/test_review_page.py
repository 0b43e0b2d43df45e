"""The page's Review view in a real browser: two people, keys and thumbs, undo, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.web.test_review import start  # noqa: F401

pytestmark = pytest.mark.slow
PATIENCE = 60_000  # milliseconds, on a machine that is busy


def reviewing(browser: Any, url: str, person: str, **options: Any) -> Any:
    """A browser of a person's own, with the first answer of the random sample in front."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    page.get_by_role("tab", name="Review").click()
    page.get_by_label("Your name").fill(person)
    page.get_by_role("button", name="Label answers").click()
    page.get_by_role("region", name="The answer to label").wait_for()
    return page


def shown(page: Any) -> str | None:
    """The question in front; None where nothing is left."""
    found = page.locator(".review h2")
    return str(found.inner_text()) if found.count() else None


def pressed(page: Any, key: str) -> str | None:
    """The item in front after a key."""
    before = shown(page)
    page.keyboard.press(key)
    page.wait_for_function("before => document.querySelector('.review h2')?.innerText !== before", arg=before)
    return shown(page)


def test_two_people_label_with_keys_and_thumbs(
    browser: Any,
    start: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    url = start()
    ann = reviewing(browser, url, "Ann")
    seen = [shown(ann)]
    seen.append(pressed(ann, "y"))
    assert pressed(ann, "u") == seen[0]  # the last label is taken back, and its answer is asked again
    assert "Your last label is taken back." in ann.inner_text(".review")
    assert pressed(ann, "y") == seen[1]
    ann.screenshot(path=tmp_path / "ann.png")
    for _ in range(3):  # right where Bob will say wrong
        seen.append(pressed(ann, "y" if shown(ann) == "question 0" else "n"))
    assert sorted(map(str, seen)) == [f"question {i}" for i in (0, 2, 4, 6, 8)]
    assert pressed(ann, "y") is None
    assert "No answer has labels of two people yet" in ann.inner_text(".review")
    assert "6 of 10 answers are in the random sample. --journal.sample sets its share" in ann.inner_text(".review")
    again = reviewing(browser, url, "Ann")
    assert shown(again) is None and "Nothing is left for you to label." in again.inner_text(".review")

    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    bob = reviewing(browser, url, "Bob", **phone)
    assert shown(bob) == "question 0"  # the one that two people are asked about
    wrong = bob.get_by_role("button", name="Wrong")
    box = wrong.bounding_box()
    assert box["height"] >= 24 and box["x"] >= 0 and box["x"] + box["width"] <= 360  # a thumb can hit it
    bob.screenshot(path=tmp_path / "bob.png")
    wrong.tap()
    bob.wait_for_function("() => !document.querySelector('.review h2')")
    bob.get_by_role("button", name="Label answers").tap()
    told = "People disagree on 1 of 1 answers"
    bob.wait_for_function("told => document.querySelector('.review').innerText.includes(told)", arg=told)
    assert "counts as wrong. A guarantee stays on the safe side by that" in bob.inner_text(".review")
    bob.screenshot(path=tmp_path / "agreement.png", full_page=True)
    assert bob.evaluate("document.documentElement.scrollWidth <= innerWidth")
    bob.get_by_role("button", name="Undo").tap()
    bob.wait_for_selector(".review h2")
    assert shown(bob) == "question 0"
