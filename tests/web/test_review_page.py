"""The page's Review view in a real browser: two people, keys and thumbs, undo, and nothing twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.web.servers import wait_until
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


def changed(journal: Path, statement: str) -> list[Any]:
    """What a statement of SQL gives, of another program than the server."""
    with sqlite3.connect(journal, timeout=60) as database:
        found = database.execute(statement).fetchall()
    database.close()
    return found


def alert(page: Any) -> str:
    return str(page.locator(".review [role=alert]").inner_text())


def test_an_answer_that_was_deleted_and_a_server_that_is_away_keep_nobody(
    browser: Any,
    start: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    ann = reviewing(browser, start(), "Ann")
    gone = shown(ann)
    changed(tmp_path / "journal.db", f"DELETE FROM entries WHERE question = '{gone}'")
    following = pressed(ann, "y")
    assert following not in (gone, None) and "perhaps it was deleted" in alert(ann)
    last = pressed(ann, "n")
    assert ann.locator(".review [role=alert]").count() == 0
    labels = "SELECT question, correct FROM labels JOIN entries ON entries.n = entry"
    assert changed(tmp_path / "journal.db", labels) == [(following, 0)]

    ann.route("**/semtoken/**", lambda route: route.abort())
    ann.keyboard.press("y")
    assert alert(ann) == "The server does not answer. Is semtoken still running?" and shown(ann) == last
    ann.unroute("**/semtoken/**")
    pressed(ann, "y")
    assert changed(tmp_path / "journal.db", labels) == [(following, 0), (last, 1)]


def test_a_key_that_is_held_is_one_label_and_keys_work_after_the_last_button(
    browser: Any,
    start: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    ann = reviewing(browser, start(), "Ann")
    first = shown(ann)
    ann.keyboard.down("y")
    ann.wait_for_function("first => document.querySelector('.review h2')?.innerText !== first", arg=first)
    second = shown(ann)
    for _ in range(5):  # as the system repeats it
        ann.keyboard.down("y")
    ann.keyboard.up("y")
    pressed(ann, "n")
    said = "SELECT question, correct FROM labels JOIN entries ON entries.n = entry ORDER BY labels.n"
    assert changed(tmp_path / "journal.db", said) == [(first, 1), (second, 0)]
    for _ in range(3):
        before = shown(ann)
        ann.get_by_role("button", name="Wrong").click()
        ann.wait_for_function("before => document.querySelector('.review h2')?.innerText !== before", arg=before)
    assert shown(ann) is None  # and the button that was pressed with it
    ann.keyboard.press("u")
    ann.wait_for_selector(".review h2")
    assert shown(ann) == before


def test_answers_that_come_late_are_not_shown_to_another_person_or_in_another_queue(
    browser: Any,
    start: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    ann = reviewing(browser, start(), "Ann")
    held: list[Any] = []
    ann.route("**/review?*queue=doubtful", lambda route: held.append(route))
    ann.get_by_role("button", name="Most doubtful").click()
    wait_until(lambda: ann.wait_for_timeout(10) or held)
    ann.get_by_role("button", name="Random sample").click()
    ann.wait_for_selector("button[aria-pressed=true]:text('Random sample')")
    sample = shown(ann)
    with ann.expect_response("**/review?*queue=doubtful") as late:
        held[0].continue_()
    odd = {item["question"] for item in late.value.json()["items"]}
    ann.wait_for_timeout(300)
    assert odd == {f"question {number}" for number in (1, 3, 5, 7)}
    assert shown(ann) == sample not in odd

    said: list[Any] = []
    ann.route("**/semtoken/review", lambda route: said.append(route))
    ann.keyboard.press("y")
    wait_until(lambda: ann.wait_for_timeout(10) or said)
    ann.get_by_label("Your name").fill("Bob")
    with ann.expect_response("**/semtoken/review"):
        said[0].continue_()
    ann.wait_for_timeout(300)
    assert shown(ann) is None  # nothing of Ann's, which would get Bob's labels
    assert changed(tmp_path / "journal.db", "SELECT reviewer, correct FROM labels") == [("Ann", 1)]


def test_the_token_is_kept_until_the_page_is_closed(
    browser: Any,
    start: Callable[..., str],  # noqa: F811
) -> None:
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(start("s3cret"))
    page.get_by_role("tab", name="Review").click()
    page.get_by_label("Your name").fill("Ann")
    page.get_by_label("Token of the server").fill("s3cret")
    page.get_by_role("button", name="Label answers").click()
    page.get_by_role("region", name="The answer to label").wait_for()
    page.get_by_role("tab", name="History").click()
    with page.expect_response("**/semtoken/watch") as looked:
        page.get_by_role("tab", name="Review").click()
    assert looked.value.ok and page.locator(".review [role=alert]").count() == 0
    assert page.get_by_label("Token of the server").input_value() == "s3cret"
    assert "s3cret" not in page.evaluate(
        "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])"
    )
    page.reload()
    page.get_by_role("tab", name="Review").click()
    assert "needs the server's token" in alert(page)


def test_an_empty_answer_is_named_and_texts_are_shown_as_texts(
    browser: Any,
    start: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    url = start()
    shown_as = {"": "The answer is empty.", " \n": "The answer is empty.", "<b>é</b> &amp; $x$ 👩‍👩‍👧": None}
    for text, words in shown_as.items():
        changed(tmp_path / "journal.db", f"UPDATE entries SET answer = '{text}'")
        ann = reviewing(browser, url, "Ann")
        assert ann.locator(".review .answer").inner_text() == (words or text)


def test_each_answer_is_shown_from_its_beginning_and_little_screens_show_some_of_it(
    browser: Any,
    start: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    url = start()
    changed(tmp_path / "journal.db", f"UPDATE entries SET answer = '{'long ' * 20_000}'")
    zoomed = {"viewport": {"width": 320, "height": 200}, "device_scale_factor": 4}  # 400% of a screen of 1280 pixels
    phone = {"viewport": {"width": 400, "height": 800}}
    for options, height in ((phone, 800), (zoomed, 200)):
        page = reviewing(browser, url, "Ann", **options)
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        pressed(page, "y")
        assert 0 <= page.locator(".review h2").bounding_box()["y"] < 100
        top = page.get_by_role("button", name="Wrong").bounding_box()["y"]
        assert top > height / 2  # the buttons leave the answer half of the screen at least
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
