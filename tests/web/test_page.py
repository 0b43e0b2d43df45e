"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

import semtoken as st
from semtoken.core.results.confidence import RANKS
from semtoken.guarantees.answer_records import AnswerRecord, read_answers
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.support.almanac import PROMPT, load_questions
from semtoken.support.files.record_files import write_records
from semtoken.support.text import number, percent, probability
from semtoken.web.page import static_page
from semtoken.web.page.facts import calibrator_card, reliability_card
from semtoken.web.serve.engine import Engine
from tests.browsers import needed
from tests.cli.run import invoke
from tests.json_lines import read_lines, write_lines
from tests.web.asking import block_of, events_in, post, user
from tests.web.conftest import ALMANAC, proxy_of, serving

sync_api = needed("playwright.sync_api")

EXTRACTION = Path(__file__).parents[2] / "examples" / "extraction"
CAPITAL = "Which city is the capital of Peru?"
Answers = list[dict[str, Any]]
HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>"


@pytest.fixture(scope="module")
def answers(almanac: Any) -> Answers:
    """Answers of the embedded model, with the scores of their tokens."""
    questions = load_questions("dev")[:60]
    scored = almanac.generate([q.prompt() for q in questions], 16, stop_at_newline=True)
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


Opening = Callable[..., Opened]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Opening:
    """Opens the page of some files, which are one of rows by default."""

    def opening(files: Any, info: Any = None, **options: Any) -> Opened:
        named = files if isinstance(files, dict) else {"answers": files}
        return Opened(browser, static_page(named, info), tmp_path / "page.html", **options)

    return opening


def saved(page: Any, button: str) -> list[dict[str, Any]]:
    """The lines of the file that a button saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return read_lines(Path(download.value.path()).read_text("utf-8"))


def questions_of(page: Any) -> list[str]:
    """The question of each row that is shown."""
    return [row[1].split("\n")[0] for row in rows(page)]


def ask(page: Any, question: str = CAPITAL) -> None:
    """Ask on the page of a server."""
    box = page.get_by_role("textbox", name="Your question")
    box.fill(question)
    box.press("Enter")


@pytest.fixture
def page_of(browser: Any) -> Callable[[str], Any]:
    """Opens the page of a server."""

    def opening(url: str, **options: Any) -> Any:
        page = browser.new_context(**options).new_page()
        page.goto(url)
        return page

    return opening


PHONE = {"width": 390, "height": 800}
VIEWS = ("File", "Compare", "Fields", "Calibration")


@pytest.fixture(scope="module")
def everything(answers: Answers) -> dict[str, Any]:
    """The input of `static_page` for every view: two files, probabilities, labels, a guarantee, JSON fields and
    disputes. There are few rows, since what looks for barriers looks at each element."""
    answers = sorted(answers, key=lambda one: one["confidence"])[::3]
    generator = np.random.default_rng(0)
    scores = np.array([-1e9 if a["log_confidence"] is None else a["log_confidence"] for a in answers])
    labeled = -generator.exponential(1, 300)
    correct = generator.random(300) < np.exp(labeled / 2)
    calibrator = st.Calibrator.fit(labeled, correct)
    threshold = st.Threshold.fit(labeled, correct, alpha=0.3)
    applied = CalibratorInUse(replace(calibrator, threshold=threshold))
    rows = []
    for answer, score in zip(json.loads(json.dumps(answers)), scores, strict=True):
        known = AnswerRecord("here", {}, float(score), None)
        rows.append(answer | {"calibration": applied.block(known), "correct": bool(score > -1)})  # type: ignore[arg-type]
    text = '{"city": "Lima", "open": true}'
    part = {"kind": "string", "present": True, "closing": 0.5, "flags": [], "negation": [], "choices": None}
    rows[0] |= {
        "text": text,
        "parts": [
            part | {"path": "/city", "start": 10, "end": 14, "text": "Lima", "confidence": 0.9},
            part | {"path": "/open", "start": 25, "end": 29, "text": "true", "confidence": 0.2}
            | {"choices": {"true": 0.2, "false": 0.8}},
        ],
        "disputes": [
            {"step": 0, "start": 25, "end": 29, "disagreement": 0.8, "unheard": 0.0, "meanings": [
                {"probability": 0.8, "continuation": "false", "chosen": False},
                {"probability": 0.2, "continuation": "true", "chosen": True},
            ]}
        ],
    }  # fmt: skip
    rows[1] |= {
        "text": "World War II ended",
        "parts": [
            part | {"path": None, "start": 0, "end": 12, "text": "World War II", "confidence": 0.4, "form_only": True},
            part | {"path": None, "start": 13, "end": 18, "text": "ended", "confidence": 0.4},
        ],
    }
    card = calibrator_card(applied.calibrator) | reliability_card(
        applied.calibrator,
        [AnswerRecord("here", {}, float(one), bool(r)) for one, r in zip(labeled, correct, strict=True)],
    )
    others = [{"prompt": a["prompt"], "text": a["text"].upper(), "sequence_uncertainty": 0.5} for a in answers[:10]]
    others += [{"prompt": a["prompt"], "text": "something else", "sequence_uncertainty": 0.9} for a in answers[10:20]]
    files = {"first.jsonl": rows, "second.jsonl": others}
    return {"files": files, "info": {"calibrator": card}}


def words(shown: Any) -> str:
    """The text of a place on the page; a blank before a percent sign, which keeps both on one line, is a space."""
    return str(shown.inner_text())


def rows(page: Any) -> list[list[str]]:
    """The cells of each answer: place, probability where there are some, question and answer on a line each, label."""
    shown = "[...body.rows].filter(row => row.className !== 'inside')"
    texts = f"body => {shown}.map(row => [...row.cells].map(cell => cell.innerText))"
    found: list[list[str]] = page.locator("tbody").first.evaluate(texts)
    return found


def test_a_file_is_shown_riskiest_first_with_no_request(opened: Opening, answers: Answers, tmp_path: Path) -> None:
    found = opened(answers)
    assert found.requests == [(tmp_path / "page.html").as_uri()] and found.complaints == []
    scores = {a["prompt"]: float("-inf") if a["log_confidence"] is None else a["log_confidence"] for a in answers}
    assert [scores[question] for question in questions_of(found.page)] == sorted(scores.values())[:50]  # of 60
    assert [row[0] for row in rows(found.page)] == [str(i) for i in range(1, 51)]
    found.page.get_by_role("button", name="Next").click()
    assert len(rows(found.page)) == 10


def test_the_slider_counts_what_it_accepts(opened: Opening, answers: Answers) -> None:
    page = opened(answers).page
    for check in (0, 13, len(answers)):
        page.get_by_role("slider").fill(str(check))
        accepted = len(answers) - check
        said = f"{f'The other {accepted}' if accepted else 'None'} would be accepted unread"
        assert said in words(page.get_by_role("status"))
    page.get_by_role("slider").fill("13")
    assert [one["prompt"] for one in saved(page, "Save the rest")] == questions_of(page)[:13]


def test_labels_are_given_by_keys_and_saved(opened: Opening, answers: Answers) -> None:
    page = opened(answers).page
    page.get_by_role("region", name="File").focus()
    for key in ("y", "y", "ArrowDown", "n", "ArrowDown", "ArrowDown", "y", "u"):
        page.keyboard.press(key)
    assert [row[-1] for row in rows(page)[:4]] == ["✓ right", "✗ wrong", "", ""]
    labels = saved(page, "Save labels")
    assert [record["correct"] for record in labels] == [True, False]
    assert {record["prompt"] for record in labels} == set(questions_of(page)[:2])


@pytest.mark.parametrize(("width", "size_of_list"), [pytest.param(1280, 300, marks=pytest.mark.slow), (500, 30)])
def test_most_answers_are_labeled_by_keyboard_and_none_is_lost_or_out_of_sight(
    opened: Opening, answers: Answers, width: int, size_of_list: int
) -> None:
    many = [answers[i % len(answers)] | {"prompt": f"Number {i}?"} for i in range(size_of_list)]
    labeled = 2 * size_of_list // 3
    size = {"width": width, "height": 700}
    page = opened(many, viewport=size).page
    page.get_by_role("region", name="File").focus()
    selected = page.locator('tr[aria-current="true"]')
    given = {}
    for i in range(labeled):
        name = selected.locator(".dim").inner_text()
        page.keyboard.press("yn"[i % 2])
        given[name] = i % 2 == 0
        if i % 10 == 9:
            box = selected.bounding_box()
            assert box is not None and box["y"] >= -1 and box["y"] + box["height"] <= size["height"] + 1, (i, box)
        page.keyboard.press("ArrowDown")
    assert len(given) == labeled
    assert {record["prompt"]: record["correct"] for record in saved(page, "Save labels")} == given


def test_rows_are_found_filtered_and_shuffled(opened: Opening, answers: Answers) -> None:
    page = opened(answers).page
    before = [row[1] for row in rows(page)]
    page.get_by_role("region", name="File").focus()
    page.keyboard.press("n")
    for choice, shown in (("without a label", before[1:6]), ("marked wrong", before[:1]), ("all", before[:5])):
        page.get_by_role("combobox", name="Show").select_option(choice)
        assert [row[1] for row in rows(page)][:5] == shown
    word = before[7].split("\n")[0]
    page.get_by_role("searchbox", name="Find").fill(word.upper())
    assert [row[1] for row in rows(page)] == [text for text in before if word.lower() in text.lower()]
    page.get_by_role("searchbox", name="Find").fill("")
    page.get_by_role("combobox", name="Order").select_option("random, for a fair sample")
    places = [int(row[0]) for row in rows(page)]
    assert len(set(places)) == len(places) and places != sorted(places)
    n = len(answers)  # a fair order tells nothing of the place: half of any half comes from the doubtful half
    assert abs(sum(place <= n / 2 for place in places[: n // 2]) - n / 4) < 3 * (n / 16) ** 0.5


def test_fields_are_grouped_by_name_or_document(opened: Opening, answers: Answers) -> None:
    def part(path: str, text: str, confidence: float) -> dict[str, Any]:
        return {"kind": "field", "path": path, "text": text, "present": True, "confidence": confidence}

    invoices = [
        answers[i]
        | {"id": f"invoice {i}", "parts": [part("/date", "May", 0.9 - i / 10), part("/items/0/sum", "7", 0.5)]}
        for i in range(3)
    ]
    invoices[0]["parts"].append(part("/items/1/sum", "8", 0.2))
    page = opened({"invoices": invoices}).page
    page.get_by_role("tab", name="Fields").click()
    groups = page.locator("tr.group")
    assert groups.count() == 0
    page.get_by_role("combobox", name="Order").select_option("by field")
    assert groups.all_inner_texts() == ["/date", "/items/*/sum"]
    page.get_by_role("combobox", name="Order").select_option("by document")
    assert groups.all_inner_texts() == ["invoice 0", "invoice 1", "invoice 2"]


def test_the_keyboard_reaches_what_else_was_considered(opened: Opening, answers: Answers) -> None:
    page = opened(answers).page
    mark = page.locator("button.mark").first
    mark.focus()
    page.keyboard.press("Enter")
    assert mark.get_attribute("aria-expanded") == "true"
    panel = page.get_by_role("heading", name="the model also considered")
    assert panel.is_visible()
    page.keyboard.press("Escape")
    assert not panel.is_visible() and mark.evaluate("element => element === document.activeElement")


def test_hostile_text_stays_text(opened: Opening, answers: Answers) -> None:
    bad = copy.deepcopy(answers[0])
    bad |= {"prompt": HOSTILE, "text": HOSTILE + "\u2028\u202e", "question": HOSTILE}
    bad["flags"] = [{"code": "x", "message": HOSTILE}]
    place = {"start": 0, "end": 9}
    part = place | {"path": HOSTILE, "text": HOSTILE, "confidence": 0.1, "choices": {HOSTILE: 1.0}, "flags": []}
    meaning = {"probability": 1, "continuation": HOSTILE, "chosen": False}
    bad |= {"parts": [part], "disputes": [place | {"disagreement": 1, "meanings": [meaning]}]}
    bad["tokens"] = [token | place | {"text": HOSTILE} for token in bad["tokens"]]
    info = {"calibrator": {"n_labels": 30, "n_correct": 20, "guarantee": HOSTILE, "facts": {HOSTILE: HOSTILE}}}
    found = opened({HOSTILE: [bad], "other" + HOSTILE: [bad]}, info)
    page = found.page
    for view in VIEWS:
        show(page, view)
        assert HOSTILE in page.get_by_role("tabpanel").inner_text()
        assert found.complaints == [] and page.locator("img").count() == 0, view
    page.get_by_role("tab", name="File").click()
    assert HOSTILE in rows(page)[0][1]


def show(page: Any, view: str) -> None:
    """Open a view, and in it what can be unfolded of its first answer."""
    page.get_by_role("tab", name=view).click()
    if page.locator("button.mark").count():
        page.locator("button.mark").first.click()
        page.get_by_text("Every token").first.click()


def assert_accessible(page: Any, view: str) -> None:
    """No violation that axe finds, nothing wider than a phone, and every tab in sight."""
    axe = needed("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, (view, found.generate_report())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
    if view == "File" and (listed := page.locator(".scroll:has(tbody tr[aria-current])")).count():
        assert listed.first.evaluate("list => list.scrollWidth - list.clientWidth") == 0, "the list is cut off"
    tabs = page.get_by_role("tablist")
    assert tabs.evaluate("list => list.scrollWidth - list.clientWidth") == 0, view


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_every_view_is_accessible_and_fits_a_phone(opened: Opening, everything: dict[str, Any], scheme: str) -> None:
    found = opened(**everything, color_scheme=scheme, viewport=PHONE)
    for view in VIEWS:
        show(found.page, view)
        assert_accessible(found.page, view)
    assert found.complaints == []


def test_an_accepted_answer_is_shown_as_one_that_can_be_wrong(opened: Opening, everything: dict[str, Any]) -> None:
    decided = {row["calibration"].get("decision"): row for row in everything["files"]["first.jsonl"]}
    shown = [decided["answer"], decided["abstain"]]
    page = opened(shown).page
    page.get_by_role("tab", name="File").click()  # an answer with JSON fields opens at these
    for row, told in zip(shown, (True, False), strict=True):
        page.locator("tbody tr[aria-current]", has_text=row["prompt"]).click()
        article = page.locator("article").inner_text()
        assert row["prompt"] in article and ("An accepted answer can be wrong" in article) == told


def test_every_view_is_reached_by_keys(opened: Opening, everything: dict[str, Any]) -> None:
    page = opened(**everything).page
    page.keyboard.press("Tab")
    seen = []
    for _ in VIEWS:
        seen.append(page.evaluate("document.activeElement.textContent"))
        assert page.get_by_role("tab", selected=True).inner_text() == seen[-1]
        page.keyboard.press("ArrowRight")
    assert sorted(seen) == sorted(VIEWS)
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == seen[-1]


def test_chances_and_the_threshold_with_the_guarantee(opened: Opening, everything: dict[str, Any]) -> None:
    page = opened(**everything).page
    page.get_by_role("tab", name="File").click()
    blocks = [row["calibration"] for row in everything["files"]["first.jsonl"]]
    page.get_by_role("button", name="threshold with the guarantee").click()
    cut = math.ceil(100 * everything["info"]["calibrator"]["threshold"]["probability_correct"]) / 100
    inside = [block for block in blocks if (block["probability_correct"] or 0) >= cut]
    assert 0 < len(inside) < len(blocks)
    told = words(page.get_by_role("status"))
    assert f"The other {len(inside)} would be accepted unread" in told
    wrong = sum(1 - block["probability_correct"] for block in inside)
    assert f"expected wrong among them {wrong:.1f}." in told if wrong < 10 else f"among them {wrong:.0f}." in told
    assert all(block["decision"] == "answer" for block in inside)  # rounding makes the cut stricter, never looser


def test_a_cut_through_equal_scores_is_said_and_keeps_the_order_of_the_file(opened: Opening) -> None:
    made = [{"question": f"Q{i}?", "text": "So.", "sequence_uncertainty": 0.5} for i in range(40)]
    made[30]["sequence_uncertainty"] = 0.9
    page = opened(made).page
    assert questions_of(page)[:4] == ["Q30?", "Q0?", "Q1?", "Q2?"]
    told = "39 answers have the same score as the last one to check"
    assert told in words(page.locator("main")), "the first 20 end among them"
    page.locator("#cut").fill("1")
    assert told not in words(page.locator("main")), "all that are alike are on one side"


def test_each_view_shows_its_own(opened: Opening, everything: dict[str, Any]) -> None:
    page = opened(**everything).page
    compared_by_their_questions(page, everything)
    fields_are_listed_worst_first_with_their_choices(page)
    the_calibration_is_drawn_from_its_numbers(page, everything["info"]["calibrator"])


def compared_by_their_questions(page: Any, everything: dict[str, Any]) -> None:
    assert page.get_by_role("tab", selected=True).inner_text() == "Compare"
    first, second = everything["files"].values()
    # Upper case and punctuation make no difference; two of the first ten were given another text above.
    changed = sum(a["text"].lower() != b["text"].lower() for a, b in zip(first, second, strict=False))
    assert f"The answers differ in {changed} of {len(second)} questions" in words(page.get_by_role("status"))
    listed = page.locator("tbody").first.locator("> tr:not(.inside)")
    shown = listed.all()
    assert [row.locator("td").last.inner_text() for row in shown] == ["no"] * changed + ["yes"] * (20 - changed)
    # The second file has no probabilities: its answers show their place in it, and no score stands beside another.
    places = {words(row.locator("td").nth(3)) for row in shown}
    assert places == {"riskier than 0%", "riskier than 50%"}
    assert "Uncertainty" not in page.locator(".inside .beside").inner_text()
    page.get_by_label("only where they differ").check()
    assert listed.count() == changed


def fields_are_listed_worst_first_with_their_choices(page: Any) -> None:
    page.get_by_role("tab", name="Fields").click()
    listed = [cells[1].split("\n") for cells in rows(page)]
    assert listed == [
        ["/open of document 1", "true", "confidence 0.20"],
        ["/city of document 1", "Lima", "confidence 0.90"],
    ]
    first = words(page.locator(".detail"))
    assert "Confidence 0.20: how sure" in first and "false 80%, true 20%" in first
    assert page.get_by_role("button", name="Use the threshold").count() == 0  # the guarantee is one of whole answers
    page.locator("tbody tr").nth(1).click()
    assert "(ends here: 50%)" in words(page.locator(".detail"))


def the_calibration_is_drawn_from_its_numbers(page: Any, card: dict[str, Any]) -> None:
    page.get_by_role("tab", name="Calibration").click()
    assert card["guarantee"] in words(page.locator(".guarantee"))
    reliability, probabilities, risk = page.locator("figure").all()
    assert reliability.locator("circle").count() == len(card["reliability"]) and card["cross_validated"]
    assert risk.locator("circle").count() == len(card["tested"])
    height = [float(c.get_attribute("cy")) for c in reliability.locator("circle").all()]
    right = [share for _, share, *_ in card["reliability"]]
    assert np.corrcoef(height, right)[0, 1] == pytest.approx(-1)  # up is more
    assert probabilities.locator("path.band").count() == 1


def test_a_doubt_of_form_is_not_marked_and_followed_meanings_are_named(
    opened: Opening, everything: dict[str, Any]
) -> None:
    followed, answer = everything["files"]["first.jsonl"][:2]
    page = opened([followed]).page
    page.locator("button.mark", has_text="true").click()
    shares = [words(item).split("\n") for item in page.locator(".also li").all()]
    assert shares == [["80%", "false"], ["20%", "true (in the answer)"]]
    page = opened([answer]).page
    assert page.locator("button.mark").all_text_contents() == ["weak, ended"]
    assert "hesitated about the wording only" in page.locator("article").inner_text()
    page.get_by_label("mark every phrase").check()
    page.locator("button.mark", has_text="World War II").click()
    assert "unsure of the wording only" in page.locator(".also").inner_text()


@pytest.mark.slow
def test_a_hundred_thousand_rows(opened: Opening) -> None:
    many: list[dict[str, Any]] = [
        {"prompt": f"q{i}", "text": "a", "sequence_uncertainty": (i * 7919 % 100_003) / 100_003} for i in range(100_000)
    ]
    page = opened(many).page
    order = [row["prompt"] for row in sorted(many, key=lambda row: -row["sequence_uncertainty"])]
    assert questions_of(page) == order[:50]
    page.get_by_role("button", name="#").click()
    assert questions_of(page) == order[::-1][:50]


def test_a_dropped_file_that_is_not_scored_is_refused(opened: Opening, answers: Answers, tmp_path: Path) -> None:
    page = opened(answers).page
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a", "sequence_uncertainty": 0.5}\n{"prompt": "b"}\n')
    page.locator("input[type=file]").set_input_files(tmp_path / "bad.jsonl")
    assert "Line 2 is not a scored answer" in page.get_by_role("alert").inner_text()
    assert len(rows(page)) == 50  # what was open stays open
    (tmp_path / "good.jsonl").write_text('{"prompt": "a", "response": "x", "sequence_uncertainty": 0.5}\n')
    page.locator("input[type=file]").set_input_files(tmp_path / "good.jsonl")
    page.get_by_text("1 to 1 of 1").wait_for()
    assert rows(page)[0][1] == "a\nx"


@pytest.mark.parametrize(("width", "height"), [pytest.param(1280, 900, marks=pytest.mark.slow), (390, 844)])
def test_small_rows_say_what_is_doubtful_beside_the_list(opened: Opening, width: int, height: int) -> None:
    """Rows as `semtoken check` writes them, wide and on a phone: the detail is in view, with buttons for labels."""
    mark = {"start": 0, "end": 5, "confidence": 0.3, "rivals": [["Quito", 0.4]]}
    row = {
        "question": "Capital?",
        "text": "Lima.",
        "sequence_uncertainty": 1.0,
        "doubt": "In doubt: “Lima.” (30%).",
        "marks": [mark],
    }
    many = [row | {"question": f"Capital {i}?", "confidence": 1 - i / 40} for i in range(40)]
    found = opened(many, viewport={"width": width, "height": height})
    page = found.page
    assert questions_of(page)[:3] == ["Capital 39?", "Capital 38?", "Capital 37?"]
    page.locator("tbody tr:not(.inside)").nth(5).click()
    card = page.locator("article.card")
    assert "In doubt: “Lima.”" in words(card) and "Capital 34?" in words(card)
    card.locator("button.mark").click()
    assert "Quito" in words(card)
    page.get_by_role("button", name="wrong").scroll_into_view_if_needed()
    page.get_by_role("button", name="wrong").click()
    assert rows(page)[5][-1] == "✗ wrong"
    assert page.evaluate("document.documentElement.scrollWidth") <= width and found.complaints == []


def test_the_page_shows_the_scan_beside_a_field_and_asks_for_nothing(browser: Any, tmp_path: Path) -> None:
    """As `semtoken check` writes it of saved replies about scans, of which one has a hostile name."""
    names = ("a.png", "<img src=x onerror=alert(1)>.png")
    recorded = read_lines(EXTRACTION / "replies.jsonl")
    replies = [reply | {"id": name} for reply, name in zip(recorded, names, strict=False)]
    rows = []
    for name in names:
        Image.new("L", (340, 440), 200).save(tmp_path / name)
        image, told = {"type": "image", "path": name}, {"type": "text", "text": "What is on it?"}
        rows.append({"id": name, "messages": [{"role": "user", "content": [image, told]}]})
    saved, questions = write_lines(tmp_path / "r.jsonl", replies), write_lines(tmp_path / "q.jsonl", rows)
    written = tmp_path / "page.html"
    made = invoke(
        ["check", saved, "--questions", questions, "--schema", EXTRACTION / "invoice.schema.json", "-o", written]
    )
    assert made.exit_code == 0, made.output
    found = Opened(browser, written.read_text("utf-8"), written)
    fields = found.page.locator("tbody tr[aria-current]")
    assert fields.count() == 12
    for row in range(0, 12, 2):
        fields.nth(row).click()
        shown = found.page.locator(".scan img")
        assert shown.count() == 1
        assert shown.evaluate("image => image.complete && image.naturalWidth > 300")
    found.page.locator(".scan button").click()
    assert found.page.locator(".scan img").evaluate("image => image.clientWidth === image.naturalWidth")
    assert found.requests == [written.as_uri()] and found.complaints == []


# ---- served -----------------------------------------------------------------------------------------------------


def test_asking_on_the_served_page(browser: Any, served: str, almanac: Any) -> None:
    page = browser.new_context().new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda r: asked.append(r.url) if not r.url.startswith("data:") else None)
    page.on("console", lambda m: complaints.append(m.text))
    page.goto(served)
    ask(page)
    page.get_by_text(RANKS).wait_for()
    [expected] = almanac.generate(PROMPT.format(question=CAPITAL), 24, stop_at_newline=True)
    card = page.locator("article.card")
    assert expected.text.strip() in words(card)
    assert f"Confidence {number(expected.confidence, 2)}: probability of an answer" in words(card)
    assert all(url.startswith(served) for url in asked)  # nothing from anywhere else
    assert complaints == []
    page.get_by_role("tab", name="Ask").focus()
    for name in ("File", "Compare", "Calibration", "History", "Ask"):
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
    page.get_by_role("tab", name="History").click()
    assert CAPITAL in page.get_by_role("tabpanel").inner_text()


class SlowEngine(Engine):
    """Takes its time over every token."""

    def run(self, orders: Any, more: Any = lambda running: ()) -> None:
        def slowly(emit: Any) -> Any:
            def slow(item: Any) -> None:
                time.sleep(0.4)
                emit(item)

            return slow

        super().run([replace(order, emit=slowly(order.emit)) for order in orders])


@pytest.mark.slow
def test_doubtful_words_are_marked_while_the_answer_comes(page_of: Any, almanac: Any) -> None:
    """From the running values alone: the same confidences as the final tokens have, word by word."""
    question = "Kingston lies in what country?"
    [answer] = almanac.generate([PROMPT.format(question=question)], 24, stop_at_newline=True)
    assert answer.text.startswith("United ") and answer.tokens[0].agreeing_probability < 0.5
    with serving(SlowEngine(almanac), ALMANAC) as url:
        asked = {"messages": user(question), "stream": True, "semtoken": {"tokens": True}}
        choices = [event["choices"][0] for event in events_in(post(url, json=asked).text)]
        page = page_of(url)
        words = page.evaluate(
            """async (choices) => {
                const { grown } = await import("./page/ask.js");
                let [words, text] = [[], ""];
                for (const choice of choices) {
                    text += choice.delta?.content ?? "";
                    words = grown(words, text, choice.semtoken);
                }
                return words;
            }""",
            choices,
        )
        tokens = choices[-1]["semtoken"]["tokens"]
        assert words
        for word in words:
            inside = [t for t in tokens if t["start"] < word["end"] and t["end"] > word["start"]]
            assert word["confidence"] == pytest.approx(math.prod(t["agreeing_probability"] for t in inside), rel=1e-6)
        ask(page, question)
        page.locator("[role=status] .mark.weak").wait_for()  # the answer is still coming


def enter_key(page: Any) -> None:
    """The key of the upstream on the page of a proxy, and the choice of its first model."""
    page.get_by_label("API key").fill("sk-secret")
    page.get_by_role("button", name="List models").click()
    sync_api.expect(page.locator("[list=models]")).to_have_value("almanac")  # the page forbids eval


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_asking_is_accessible_and_fits_a_phone(page_of: Any, served: str, almanac_clusters: Any, scheme: str) -> None:
    """The views that only a server has: Ask with an answer and its panel, History, and the settings of the proxy."""
    with proxy_of(served, almanac_clusters) as proxied:
        for url in (served, proxied):
            page = page_of(url, color_scheme=scheme, viewport=PHONE)
            if url == proxied:
                enter_key(page)
                page.locator("details.server").evaluate("details => { details.open = true }")
            page.get_by_role("textbox", name="Your question").fill(CAPITAL)
            assert_accessible(page, url)
            ask(page)
            page.get_by_text(RANKS).wait_for()
            page.get_by_label("mark every phrase").check()
            page.locator("button.mark").first.click()
            page.get_by_text("Every token").click()
            assert_accessible(page, url)
            page.get_by_role("tab", name="History").click()
            assert page.get_by_role("region", name="History").locator("tbody tr").count() == 1
            assert_accessible(page, url)


def test_another_number_than_the_confidence_can_be_asked_for(page_of: Any, served: str) -> None:
    page = page_of(served)
    ask(page)
    page.get_by_text(RANKS).wait_for()
    assert page.get_by_text("lists are ranked by the confidence").count() == 0
    page.get_by_label("Number to show").select_option("weakest_token")
    ask(page)
    page.get_by_text("higher is riskier; lists are ranked by the confidence").wait_for()
    block = block_of(post(served, json={"messages": user(CAPITAL), "semtoken": {"methods": ["weakest_token"]}}))
    shown = page.locator("article strong", has_text="Weakest token: ").inner_text()
    value = pytest.approx(block["scores"]["weakest_token"], rel=0.01)
    assert float(shown.removeprefix("Weakest token: ")) == value


def test_figures_are_those_that_python_writes(page_of: Any, served: str) -> None:
    """So an answer has the same ones in a terminal, a notebook and on the page."""
    middles = [k / 2**n for n in range(1, 11) for k in range(2**n + 1)]
    values = [
        *middles,
        *np.linspace(0, 1, 1001).tolist(),
        *np.random.default_rng(0).random(500).tolist(),
        1e-9,
        1 - 1e-9,
    ]
    script = """values => import("/page/strings.js").then(({ S, number }) => values.map((value) =>
        [number(value), S.digits(value), S.percent(value), S.probability(value), S.tenths(value)]))"""
    expected = [
        [number(value), number(value, 2), percent(value), probability(value), f"{round(10 * value)} of 10"]
        for value in values
    ]
    page = page_of(served)
    assert page.evaluate(script, values) == expected
    none = [1e21, math.inf, math.nan]
    texts = """values => import("/page/strings.js").then(({ number }) => values.map((value) => number(value)))"""
    assert page.evaluate(texts, none) == ["1e+21", "Infinity", "NaN"]


def test_a_server_that_is_gone_is_a_sentence(page_of: Any, served: str) -> None:
    page = page_of(served)
    page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    ask(page)
    assert "does not answer" in page.get_by_role("alert").inner_text()


def test_the_page_may_load_nothing_but_itself(served: str) -> None:
    reply = httpx.get(served)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert httpx.get(f"{served}/page/app.js").headers["content-type"].startswith("text/javascript")
    for name in ("..%2Fstatic.py", "__init__.py", "nothing.js"):
        assert httpx.get(f"{served}/page/{name}").status_code == 404


def test_the_page_of_the_proxy_sends_the_key_and_keeps_it_nowhere(
    browser: Any, served: str, almanac_clusters: Any
) -> None:
    with proxy_of(served, almanac_clusters) as url:
        page = browser.new_context().new_page()
        keys: list[str | None] = []
        page.on("request", lambda r: keys.append(r.headers.get("authorization")) if "/v1/" in r.url else None)
        page.goto(url)
        enter_key(page)
        ask(page)
        page.get_by_text(RANKS).wait_for()
        assert keys == ["Bearer sk-secret"] * 2
        kept = page.evaluate(
            "JSON.stringify([localStorage, sessionStorage]) + document.cookie + document.body.innerHTML"
        )
        assert "sk-secret" not in kept
        assert httpx.get(f"{url}/semtoken/info").json()["upstream"] == served
        # What the upstream has at its own "/" is one step further.
        assert httpx.get(f"{url}/upstream/").text == httpx.get(served).text
    with proxy_of(served, almanac_clusters, page=False) as url:
        # Nothing below /semtoken is forwarded, so this is not the upstream's answer.
        assert httpx.get(f"{url}/semtoken/info").status_code == 404


def test_two_wordings_are_asked_side_by_side(page_of: Any, served: str, almanac: Any) -> None:
    page = page_of(served)
    page.get_by_role("tab", name="Compare").click()
    wordings = [CAPITAL, "What is the capital of Peru?"]
    page.get_by_label("One wording").fill(wordings[0])
    page.get_by_label("Another wording").fill(wordings[1])
    page.get_by_role("button", name="Ask both").click()
    page.get_by_text("The two answers").wait_for()
    prompts = [PROMPT.format(question=one) for one in wordings]
    texts = [one.text.strip() for one in almanac.generate(prompts, 24, stop_at_newline=True)]
    for card, text in zip(page.locator("article.card").all(), texts, strict=True):
        assert text in words(card) and "Uncertainty" not in words(card)
    verdict = "are the same" if texts[0].lower() == texts[1].lower() else "differ"
    assert verdict in page.get_by_text("The two answers").inner_text()


@pytest.mark.parametrize("written_by", ["score", "check", "parts"])
def test_the_marked_phrases_are_those_of_the_scores_whatever_the_characters(opened: Opening, written_by: str) -> None:
    """Python counts an emoji as one character, and JavaScript as two."""
    pieces = [("😀👩\u200d👧 ", 0.99), ("Istanbul", 0.4), (" or ", 0.99), ("𝒳𝒴", 0.3), (" or ", 0.99), ("القاهرة", 0.2)]
    pieces += [(" and ", 0.99), ("e\u0301te\u0301", 0.1), (" 🎉", 0.99)]
    text = "".join(piece for piece, _ in pieces)
    ends = np.cumsum([len(piece) for piece, _ in pieces]).tolist()
    places = [
        {"start": end - len(piece), "end": end, "text": piece, "probability": sure, "agreeing_probability": sure}
        for end, (piece, sure) in zip(ends, pieces, strict=True)
    ]
    doubtful = [one | {"confidence": one["probability"]} for one in places if one["probability"] < 0.5]
    held = {"score": {"tokens": places}, "check": {"marks": doubtful}, "parts": {"parts": doubtful}}[written_by]
    row = {"question": "Where?", "response": text, "sequence_uncertainty": 0.9, "confidence": 0.1, **held}
    page = opened([row]).page
    shown = [mark.inner_text().removeprefix("weak,").strip() for mark in page.locator(".answer .mark").all()]
    assert shown == [text[one["start"] : one["end"]] for one in doubtful]
    assert words(page.locator("p.answer")).replace("weak,", "").replace("\n", "") == text
    page.get_by_role("region", name="File").focus()
    page.keyboard.press("y")
    [line] = saved(page, "Save labels")
    assert {name: line.get(name) for name in held} == {name: None if name == "marks" else held[name] for name in held}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("spelled", [(True, False), (1, 0), ("yes", "No"), ("1.0", "0.0")])
def test_labels_of_a_file_are_shown_however_it_spells_them(
    browser: Any, tmp_path: Path, kind: str, spelled: tuple[Any, Any]
) -> None:
    """The labels that `semtoken calibrate` reads from a file; one that is taken away does not come back."""
    rows = [
        {"question": f"Q{i}?", "response": "A", "sequence_uncertainty": i / 10, "log_confidence": -i / 10}
        | {"correct": (*spelled, None)[i % 3]}
        for i in range(6)
    ]
    source, made = tmp_path / f"answers.{kind}", tmp_path / "page.html"
    write_records(source, iter(rows))
    expected = [one.correct for one in read_answers(source)]
    assert expected == [True, False, None] * 2
    assert invoke(["check", source, "-o", made]).exit_code == 0
    page = Opened(browser, made.read_text("utf-8"), made).page
    found = {line["question"]: line.get("correct") for line in saved(page, "Save the rest")}
    assert [found[f"Q{i}?"] for i in range(6)] == expected
    assert "Of these" not in words(page.get_by_role("status"))
    page.get_by_role("slider").fill("0")
    assert "Of these, 4 answers have a label: 2 wrong." in words(page.get_by_role("status"))
    page.get_by_role("region", name="File").focus()
    for key in ("ArrowDown", "u"):
        page.keyboard.press(key)  # the second most doubtful, Q4
    left = {line["question"]: line.get("correct") for line in saved(page, "Save the accepted")}
    assert [left[f"Q{i}?"] for i in range(6)] == [*expected[:4], None, None]


@pytest.mark.parametrize("opened_there", [False, True])
def test_no_id_becomes_another_where_a_browser_has_no_such_number(
    opened: Opening, tmp_path: Path, opened_there: bool
) -> None:
    """Ids of messages in social networks have nineteen digits; numbers of JavaScript are exact up to sixteen."""
    ids = [2**53 - 1, 2**53 + 1, 1234567890123456789, -(2**60) - 1, "1234567890123456789", 10**400, 7]
    rows = [
        {"id": one, "question": f"Q{i}?", "response": "A", "sequence_uncertainty": i / 10, "log_confidence": -i / 10}
        for i, one in enumerate(ids)
    ]
    page = opened(rows[:1] if opened_there else rows).page
    if opened_there:
        page.get_by_text("Open another file").click()
        page.locator("input[type=file]").set_input_files(write_lines(tmp_path / "rows.jsonl", rows))
    page.get_by_role("slider").fill("7")
    found = {line["question"]: line["id"] for line in saved(page, "Save the rest")}
    assert [str(found[f"Q{i}?"]) for i in range(7)] == [str(one) for one in ids]
    assert found["Q0?"] == 2**53 - 1 and found["Q6?"] == 7
