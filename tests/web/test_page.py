"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import semtoken as st
from semtoken.almanac import load_questions
from semtoken.almanac.questions import PROMPT
from semtoken.web.page import static_page

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no chromium on this machine (apt-get install chromium)", allow_module_level=True)

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """Answers of the embedded model, with the scores of their tokens."""
    stc = st.STC.from_pretrained("almanac", device="cpu")
    questions = load_questions("dev")[:60]
    scored = stc.generate([q.prompt() for q in questions], 16, stop_at_newline=True)
    return [one.to_dict() | {"prompt": q.question} for q, one in zip(questions, scored, strict=True)]


class Opened:
    """A page with everything that it asked for and complained about."""

    def __init__(self, browser: Any, html: str, path: Path, **options: Any) -> None:
        path.write_text(html, encoding="utf-8")
        self.page = browser.new_context(**options).new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda r: self.requests.append(r.url) if not r.url.startswith("data:") else None)
        self.page.on("console", lambda m: self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("dialog", lambda d: self.complaints.append(f"dialog: {d.message}"))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("[role=tab]")


def rows(page: Any) -> list[list[str]]:
    found = page.locator("tbody").first.locator("tr").all()
    return [[cell.inner_text() for cell in row.locator("td").all()] for row in found]


def test_a_file_is_shown_riskiest_first_with_no_request(
    browser: Any, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    opened = Opened(browser, static_page(answers, "answers.jsonl"), tmp_path / "page.html")
    assert opened.requests == [(tmp_path / "page.html").as_uri()] and opened.complaints == []
    shown = rows(opened.page)
    scores = {a["prompt"]: float("-inf") if a["log_score"] is None else a["log_score"] for a in answers}
    assert len(shown) == 50  # the first page of 60
    assert [scores[row[1]] for row in shown] == sorted(scores.values())[:50]
    opened.page.get_by_role("button", name="Next").click()
    assert len(rows(opened.page)) == 10


def test_the_slider_counts_what_it_accepts(browser: Any, answers: list[dict[str, Any]], tmp_path: Path) -> None:
    opened = Opened(browser, static_page(answers), tmp_path / "page.html")
    for cut in (0.1, 0.5, 0.9):
        opened.page.get_by_role("slider").fill(str(cut))
        accepted = sum(a["uncertainty"] <= cut for a in answers)
        assert f"Accepts {accepted} of {len(answers)}" in opened.page.get_by_role("status").inner_text()


def test_labels_are_given_by_keys_and_saved(browser: Any, answers: list[dict[str, Any]], tmp_path: Path) -> None:
    opened = Opened(browser, static_page(answers), tmp_path / "page.html")
    page = opened.page
    page.get_by_role("region", name="File").focus()
    for key in ("y", "ArrowDown", "n", "ArrowDown", "ArrowDown", "y", "y"):
        page.keyboard.press(key)
    assert [row[-1] for row in rows(page)[:4]] == ["right", "wrong", "", ""]
    with page.expect_download() as download:
        page.get_by_role("button", name="Save labels").click()
    saved = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert [record["correct"] for record in saved] == [True, False]
    assert {record["prompt"] for record in saved} == {row[1] for row in rows(page)[:2]}


def test_the_keyboard_reaches_what_else_was_considered(
    browser: Any, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    page = Opened(browser, static_page(answers), tmp_path / "page.html").page
    mark = page.locator("button.mark").first
    mark.focus()
    page.keyboard.press("Enter")
    assert mark.get_attribute("aria-expanded") == "true"
    panel = page.get_by_role("heading", name="the model also considered")
    assert panel.is_visible()
    page.keyboard.press("Escape")
    assert not panel.is_visible() and mark.evaluate("element => element === document.activeElement")


def test_hostile_text_stays_text(browser: Any, answers: list[dict[str, Any]], tmp_path: Path) -> None:
    bad = json.loads(json.dumps(answers[0]))
    bad |= {"prompt": HOSTILE, "text": HOSTILE + "\u2028\u202e"}
    bad["tokens"] = [token | {"text": HOSTILE, "start": 0, "end": 9} for token in bad["tokens"]]
    opened = Opened(browser, static_page([bad], HOSTILE), tmp_path / "page.html")
    opened.page.get_by_text("Every token").click()
    assert opened.complaints == [] and opened.page.locator("img").count() == 0
    assert rows(opened.page)[0][1] == HOSTILE


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_in_both_schemes(browser: Any, answers: list[dict[str, Any]], tmp_path: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = Opened(browser, static_page(answers), tmp_path / "page.html", color_scheme=scheme).page
    page.locator("button.mark").first.click()
    page.get_by_text("Every token").click()
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_no_sideways_scrolling_on_a_phone(browser: Any, answers: list[dict[str, Any]], tmp_path: Path) -> None:
    page = Opened(browser, static_page(answers), tmp_path / "page.html", viewport={"width": 390, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_hundred_thousand_rows(browser: Any, tmp_path: Path) -> None:
    many = [{"prompt": f"q{i}", "text": "a", "uncertainty": (i * 7919 % 100_003) / 100_003} for i in range(100_000)]
    page = Opened(browser, static_page(many), tmp_path / "page.html").page
    assert len(rows(page)) == 50
    order = sorted(many, key=lambda row: -row["uncertainty"])
    assert [row[1] for row in rows(page)] == [row["prompt"] for row in order[:50]]
    page.get_by_role("button", name="uncertainty").click()
    assert [row[1] for row in rows(page)] == [row["prompt"] for row in order[::-1][:50]]


def test_a_dropped_file_that_is_not_scored_is_refused(
    browser: Any, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    page = Opened(browser, static_page(answers), tmp_path / "page.html").page
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a", "uncertainty": 0.5}\n{"prompt": "b"}\n')
    page.locator("input[type=file]").set_input_files(tmp_path / "bad.jsonl")
    assert "Line 2 is not a scored answer" in page.get_by_role("alert").inner_text()
    assert len(rows(page)) == 50  # what was open stays open
    (tmp_path / "good.jsonl").write_text('{"prompt": "a", "response": "x", "uncertainty": 0.5}\n')
    page.locator("input[type=file]").set_input_files(tmp_path / "good.jsonl")
    page.get_by_text("1 to 1 of 1").wait_for()
    assert rows(page)[0][1:3] == ["a", "x"]


# ---- served -----------------------------------------------------------------------------------------------------


def test_asking_on_the_served_page(browser: Any, served: str, almanac: Any) -> None:
    page = browser.new_context().new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda r: asked.append(r.url) if not r.url.startswith("data:") else None)
    page.on("console", lambda m: complaints.append(m.text))
    page.goto(served)
    page.get_by_role("textbox", name="Ask").fill("Which city is the capital of Peru?")
    page.keyboard.press("Enter")
    page.get_by_text("a ranking, not a chance").wait_for()
    [expected] = almanac.generate(
        PROMPT.format(question="Which city is the capital of Peru?"), 24, stop_at_newline=True
    )
    card = page.locator("article.card")
    assert expected.text.strip() in card.inner_text()
    assert f"Uncertainty {expected.uncertainty:.3f}" in card.inner_text()
    assert all(url.startswith(served) for url in asked)  # nothing from anywhere else
    # The page asks for parts first, which a server without them answers with 400; nothing else is to complain about.
    assert all("400" in text for text in complaints)
    page.get_by_role("tab", name="Ask").focus()
    for name in ("File", "Calibration", "History", "Ask"):
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
    page.get_by_role("tab", name="History").click()
    assert "Which city is the capital of Peru?" in page.get_by_role("tabpanel").inner_text()


def test_a_server_that_is_gone_is_a_sentence(browser: Any, served: str) -> None:
    page = browser.new_context().new_page()
    page.goto(served)
    page.get_by_role("textbox", name="Ask").fill("What?")
    page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    page.keyboard.press("Enter")
    assert "does not answer" in page.get_by_role("alert").inner_text()


def test_the_page_may_load_nothing_but_itself(served: str) -> None:
    reply = httpx.get(served)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert httpx.get(f"{served}/page/app.js").headers["content-type"].startswith("text/javascript")
    for name in ("..%2Fstatic.py", "__init__.py", "nothing.js"):
        assert httpx.get(f"{served}/page/{name}").status_code == 404
