"""`calibrate`, `label` and `watch` on files, without a model unless a test says so."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import semtoken as st
from semtoken.guarantees import groups
from semtoken.guarantees.answer_records import AnswerRecord, answer_record
from semtoken.guarantees.labeling import label_order, labeling_order
from semtoken.support.almanac import is_correct, load_questions
from semtoken.support.files.safe_files import locked
from tests.cli.conftest import RunCommand, assert_told
from tests.guarantees.worlds import WORLDS
from tests.json_lines import read_lines, write_lines
from tests.known import known
from tests.web.servers import wait_until


def answers(n: int, *, labeled: int | None = None, seed: int = 0, **changes: Any) -> list[dict[str, Any]]:
    scores, correct = WORLDS["good model"].draw(np.random.default_rng(seed), n)
    return [
        {
            "id": i,
            "question": f"What is number {i}?",
            "response": f"It is {i}.",
            "log_confidence": float(score),
            "signature": "k:4|preset:default|words:paper",
            "distribution": "raw",
            "correct": bool(right) if labeled is None or i < labeled else None,
        }
        | changes
        for i, (score, right) in enumerate(zip(scores, correct, strict=True))
    ]


def test_what_is_no_folder_for_a_calibrator_of_answers_is_refused(semtoken: RunCommand, tmp_path: Path) -> None:
    """Before the answers are read, of which there are none here."""
    source = write_lines(tmp_path / "labeled.jsonl", [])
    (tmp_path / "mine.txt").write_text("precious")
    refused = semtoken("calibrate", source, "-o", tmp_path / "mine.txt", "--force")
    assert_told(refused, "mine.txt is a file; give the name of a folder", status=2)
    (tmp_path / "typed").mkdir()
    (tmp_path / "typed" / "decisions.json").write_text("{}")
    refused = semtoken("calibrate", source, "-o", tmp_path / "typed", "--force")
    assert_told(refused, "typed holds a calibrator of typed questions", status=2)
    assert os.listdir(tmp_path / "typed") == ["decisions.json"]


def test_from_labels_to_calibrator_and_report(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = answers(600, labeled=300)
    source = write_lines(tmp_path / "labeled.jsonl", rows)
    result = semtoken("calibrate", source, "-o", tmp_path / "made", "--alpha", "0.2")
    assert result.exit_code == 0, result.output
    assert "sets of labels drawn" not in result.stderr, "a guarantee needs no forecast"
    assert "With confidence 90%, at most 20% of the accepted answers are wrong" in result.stdout
    assert "better than the base rate" in result.stdout
    found = st.Calibrator.load(tmp_path / "made")
    assert (found.n, found.fingerprint.signature) == (300, "k:4|preset:default|words:paper")
    scores, correct = [r["log_confidence"] for r in rows[:300]], [r["correct"] for r in rows[:300]]
    assert found.predict_proba(-0.7) == st.Calibrator.fit(scores, correct).predict_proba(-0.7)
    wanted = st.Threshold.fit(scores, correct, alpha=0.2, unlabeled=[r["log_confidence"] for r in rows[300:]])
    assert found.threshold is not None and found.threshold.min_log_score == wanted.min_log_score
    page = (tmp_path / "made" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert found.threshold.statement in page
    assert not re.search(r'(src|href)="http', page), "one page that fetches nothing"
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ElementTree.fromstring(svg)
    colors = {name: re.findall(rf"--{name}: (#\w+)", page) for name in ("ink", "dim", "page", "card", "line", "accent")}
    style = (files("semtoken.web.page") / "files" / "app.css").read_text()
    assert colors == {name: re.findall(rf"--{name}: (#\w+)", style) for name in colors}, "those of the page"


def test_delta_and_further_scores_place_the_threshold(semtoken: RunCommand, tmp_path: Path) -> None:
    rows, more = answers(600, labeled=300), [-0.001 * i for i in range(200)]
    source = write_lines(tmp_path / "labeled.jsonl", rows)
    further = [row | {"id": f"more-{i}", "log_confidence": more[i]} for i, row in enumerate(rows[:200])]
    unlabeled = ("--unlabeled", write_lines(tmp_path / "scored.jsonl", further))
    result = semtoken("calibrate", source, "-o", tmp_path / "made", "--alpha", "0.15", "--delta", "0.2", *unlabeled)
    assert result.exit_code == 0, result.output
    scores, correct = [r["log_confidence"] for r in rows[:300]], [r["correct"] for r in rows[:300]]
    rest = [r["log_confidence"] for r in rows[300:]]
    wanted, without = (
        st.Threshold.fit(scores, correct, alpha=0.15, delta=0.2, unlabeled=one) for one in (rest + more, rest)
    )
    found = st.Calibrator.load(tmp_path / "made").threshold
    assert found is not None and (found.min_log_score, found.statement) == (wanted.min_log_score, wanted.statement)
    assert wanted.min_log_score != without.min_log_score
    refused = semtoken("calibrate", source, "-o", tmp_path / "none", "--guarantee", "miss_rate", *unlabeled)
    assert_told(refused, "--unlabeled has no effect", status=2)
    labeled, three = write_lines(tmp_path / "few.jsonl", rows[:300]), write_lines(tmp_path / "three.jsonl", further[:3])
    refused = semtoken("calibrate", labeled, "-o", tmp_path / "none", "--unlabeled", three)
    assert_told(refused, "three.jsonl has no effect: at least 200 answers without labels", "there are 3.", status=2)
    groups = write_lines(tmp_path / "groups.jsonl", [r | {"kind": "ab"[i % 2]} for i, r in enumerate(rows[:300])])
    grouped = ("calibrate", groups, "-o", tmp_path / "none", "--group-by", "kind")
    for kind, reason in (
        ("c", "none of its answers is of the group and model of labeled ones"),
        ("a", "no group has more than 199."),
    ):
        others = write_lines(tmp_path / "others.jsonl", [row | {"kind": kind} for row in further[:199]])
        refused = semtoken(*grouped, "--unlabeled", others)
        assert_told(refused, "others.jsonl has no effect", reason, status=2)
    own = write_lines(tmp_path / "own.jsonl", [r | {"model": "a"} for r in rows])
    others = write_lines(tmp_path / "others.jsonl", [r | {"model": "b"} for r in further])
    for name in (own, write_lines(tmp_path / "all.jsonl", [r | {"model": "a"} for r in rows[:300]])):
        refused = semtoken("calibrate", name, "-o", tmp_path / "none", "--unlabeled", others)
        assert_told(refused, "none of its answers is of the model of labeled ones", status=2)


def test_csv_and_a_label_of_another_name(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = answers(100)
    source = tmp_path / "labeled.csv"
    with source.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question", "response", "log_confidence", "ok"])
        writer.writeheader()
        for row in rows:
            ok = {True: "yes", False: "no"}[row["correct"]]
            writer.writerow({**{k: row[k] for k in ("question", "response", "log_confidence")}, "ok": ok})
    assert semtoken("calibrate", source, "-o", tmp_path / "made", "--label-field", "ok").exit_code == 0
    found = st.Calibrator.load(tmp_path / "made")
    assert found.scores == tuple(sorted(row["log_confidence"] for row in rows))
    assert found.n_correct == sum(row["correct"] for row in rows)


def test_what_more_labels_would_do_is_drawn_from_those_at_hand(semtoken: RunCommand, tmp_path: Path) -> None:
    """Scores that rank nothing: no number of labels gives a guarantee, and none is hoped for."""
    rows = answers(120)
    for i, row in enumerate(rows):
        row["correct"] = i % 10 > 3
    source = write_lines(tmp_path / "poor.jsonl", rows)
    result = semtoken("calibrate", source, "-o", tmp_path / "made", "--alpha", "0.1")
    said = "wrong came from 0 with 120, 0 with 240, 0 with 480, 0 with 1,200 labels."
    assert said in result.stderr
    assert said in (tmp_path / "made" / "report.html").read_text()
    few = semtoken("calibrate", source, "-o", tmp_path / "few", "--alpha", "0.005")
    assert "at least 460 labeled answers; you have 120: nothing can be guaranteed" in few.stderr


def test_a_guarantee_for_each_group(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = [row | {"language": "de/ch" if i % 3 else "en"} for i, row in enumerate(answers(600))]
    source = write_lines(tmp_path / "labeled.jsonl", rows[:270])
    result = semtoken("calibrate", source, "-o", tmp_path / "made", "--group-by", "language", "--alpha", "0.3")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["de%2Fch", "en"]
    english = [row for row in rows[:270] if row["language"] == "en"]
    wanted = st.Threshold.fit(
        [r["log_confidence"] for r in english], [r["correct"] for r in english], alpha=0.3, delta=0.05
    )
    found = st.Calibrator.load(tmp_path / "made" / "en").threshold
    assert found is not None and (found.min_log_score, found.n) == (wanted.min_log_score, 90)
    few = write_lines(tmp_path / "few.jsonl", rows[:60])
    assert_told(
        semtoken("calibrate", few, "-o", tmp_path / "none", "--group-by", "language"),
        "language de/ch",
        "4 of 40",
        status=2,
    )
    assert not (tmp_path / "none").exists()
    assert_told(
        semtoken("calibrate", few, "-o", tmp_path / "none", "--group-by", "land"), "few.jsonl", "'land'", status=2
    )


def test_a_value_that_cannot_name_a_folder_is_refused_before_anything_is_written(
    semtoken: RunCommand, tmp_path: Path
) -> None:
    """The folders of the other groups, which come before it, would be there without it."""
    for long, n_bytes in (("b" * 256, 256), ("ü" * 43, 258)):  # each ü as %C3%BC
        rows = [row | {"kind": long if i % 2 else "a"} for i, row in enumerate(answers(120))]
        source = write_lines(tmp_path / "labeled.jsonl", rows)
        result = semtoken("calibrate", source, "-o", tmp_path / "made", "--group-by", "kind", "--alpha", "0.3")
        assert_told(result, f"'{long[:40]}", "of the field 'kind' is too long", f"{n_bytes} of at most 255", status=2)
        assert not (tmp_path / "made").exists()
    rows = [row | {"kind": "b" * 255 if i % 2 else "a"} for i, row in enumerate(answers(120))]
    source = write_lines(tmp_path / "labeled.jsonl", rows)
    result = semtoken("calibrate", source, "-o", tmp_path / "made", "--group-by", "kind", "--alpha", "0.3")
    assert result.exit_code == 0, result.output


def test_accepted_answers_are_judged(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = [row | {"correct": None, "answers": ["it is 1", "It is 2!"]} for row in answers(60)]
    for i, row in enumerate(rows):
        row["response"] = "It is 1." if i % 3 else "It is 7."
    source = write_lines(tmp_path / "judged.jsonl", rows)
    assert semtoken("calibrate", source, "-o", tmp_path / "made").exit_code == 0
    found = st.Calibrator.load(tmp_path / "made")
    assert (found.n, found.n_correct, found.fingerprint.judge) == (60, 40, "exact")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (answers(29), ("30", "label 1 more")),
        (answers(40, correct=True), ("5 wrong answers", "5 more are missing")),
        ([*answers(40), answers(1)[0] | {"question": "Other?", "signature": "k:9"}], ("different ways", "k:9")),
        ([{"question": "a", "sequence_uncertainty": 0.3, "correct": True}], ("log_confidence", "line 1")),
        ([{"question": "a", "log_confidence": 0.3, "correct": True}], ("at most 0", "line 1")),
        ([{"question": "a", "log_confidence": -0.3, "correct": "maybe"}], ("maybe", "line 1")),
        (['{"log_confidence": NaN}\n'], ("line 1", "NaN")),
        ([], ("no answers",)),
        ([{"correct": True}], ("'log_confidence' is missing", "line 1")),
        (
            [{"log_confidence": -0.3, "right": 1}],
            ("'correct' is missing", "'log_confidence', 'right'", "--label-field"),
        ),
        ([{"question": "a", "response": "b"}], ("'answers' to judge by", "'question', 'response'")),
    ],
)
def test_files_that_cannot_be_used(
    semtoken: RunCommand, tmp_path: Path, rows: list[Any], words: tuple[str, ...]
) -> None:
    result = semtoken("calibrate", write_lines(tmp_path / "bad.jsonl", rows), "-o", tmp_path / "made")
    assert_told(result, *words, status=2)
    assert not (tmp_path / "made" / "calibrator.json").exists()


def test_only_one_answer_to_a_question_counts(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = answers(50)
    source = write_lines(
        tmp_path / "twice.jsonl", [*rows, *(r | {"response": "Other", "log_confidence": -3.0} for r in rows)]
    )
    result = semtoken("calibrate", source, "-o", tmp_path / "made")
    assert "50 further answers to the same questions are left out" in result.stderr
    assert st.Calibrator.load(tmp_path / "made").n == 50


def test_labels_of_two_people_that_disagree_count_as_wrong(semtoken: RunCommand, tmp_path: Path) -> None:
    ann = answers(60)
    bob = [row | {"correct": row["correct"] if i >= 9 else not row["correct"]} for i, row in enumerate(ann)]
    result = semtoken("calibrate", write_lines(tmp_path / "both.jsonl", ann + bob), "-o", tmp_path / "made")
    assert "9 answers are labeled both right and wrong: they count as wrong." in result.stderr
    assert st.Calibrator.load(tmp_path / "made").n_correct == sum(row["correct"] for row in ann[9:])


def test_a_person_and_a_judge_that_disagree_count_as_wrong(semtoken: RunCommand, tmp_path: Path) -> None:
    """The judge calls all of them right, wherever the lines that it labels stand."""
    ann = answers(60)
    judged = [{**row, "correct": None, "answers": [row["response"]]} for row in ann]
    disputed = sum(not row["correct"] for row in ann)
    for name, rows in (("first", ann + judged), ("last", judged + ann)):
        result = semtoken("calibrate", write_lines(tmp_path / f"{name}.jsonl", rows), "-o", tmp_path / name)
        assert f"{disputed} answers are labeled both right and wrong: they count as wrong." in result.stderr
        assert st.Calibrator.load(tmp_path / name).n_correct == 60 - disputed


def test_a_calibrator_is_not_replaced_unasked(semtoken: RunCommand, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "labeled.jsonl", answers(50))
    assert semtoken("calibrate", source, "-o", tmp_path / "made").exit_code == 0
    before = (tmp_path / "made" / "calibrator.json").read_bytes()
    assert_told(semtoken("calibrate", source, "-o", tmp_path / "made", "--alpha", "0.4"), "--force", status=2)
    assert (tmp_path / "made" / "calibrator.json").read_bytes() == before
    assert semtoken("calibrate", source, "-o", tmp_path / "made", "--alpha", "0.4", "--force").exit_code == 0
    threshold = st.Calibrator.load(tmp_path / "made").threshold
    assert threshold is not None and threshold.alpha == 0.4
    (tmp_path / "report.html").write_text("that of a run of the benchmark")
    assert_told(semtoken("calibrate", source, "-o", tmp_path), "report.html exists", status=2)
    assert (tmp_path / "report.html").read_text() == "that of a run of the benchmark"


@pytest.fixture(scope="module")
def test_answers() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Log scores of the embedded model's 2,000 test answers by preset, and whether each is right."""
    questions = load_questions("test")
    prompts = [question.prompt() for question in questions]
    answers = st.ScoredModel.from_pretrained("almanac", clusters="almanac").generate(
        prompts, 64, batch_size=32, stop_at_newline=True
    )
    scores = {
        "default": [one.log_confidence for one in answers],
        "paper": [
            -math.inf if one.empty else math.fsum(known(t.log_meaning_probability) for t in one.tokens)
            for one in answers
        ],
    }
    right = [is_correct(one.text, question) for one, question in zip(answers, questions, strict=True)]
    return {preset: np.array(found) for preset, found in scores.items()}, np.array(right, dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_embedded_model_from_questions_to_a_kept_guarantee(
    semtoken: RunCommand, tmp_path: Path, test_answers: tuple[dict[str, np.ndarray], np.ndarray], preset: str
) -> None:
    """Fitted on the 700 dev questions, checked on the test questions.

    Under `default` the 700 labels carry no guarantee of 10% (19 of the 231 surest are wrong) and do carry one of 20%;
    docs/calibration.md has how often that happens. A guarantee that cannot be given must be refused, not bent.
    """

    scores, right = test_answers[0][preset], test_answers[1]
    first = tmp_path / "0.1"
    asked = write_lines(
        tmp_path / "dev.jsonl",
        [{"id": q.id, "question": q.question, "answers": list(q.answers)} for q in load_questions("dev")],
    )
    scored = tmp_path / "answers.jsonl"
    options = ("--model.batch-size", "32", "--preset", preset, "--max-tokens", "64")
    assert semtoken("score", asked, "-o", scored, *options).exit_code == 0
    assert semtoken("calibrate", scored, "-o", first, "--by", "stc").exit_code == 0
    report = st.Calibrator.load(first).report(scores, right)
    assert report.calibration_error < 0.05
    assert report.log_loss_gain.high < 0 and report.brier_gain.high < 0
    guaranteed = 0
    for alpha in ("0.1", "0.2"):
        if alpha != "0.1":  # the answers are there: they are judged again, not given again
            judged = ("calibrate", scored, "-o", tmp_path / alpha)
            result = semtoken(*judged, "--alpha", alpha, "--by", "stc")
            assert result.exit_code == 0, result.output
        threshold = st.Calibrator.load(tmp_path / alpha).threshold
        assert threshold is not None
        accepted = threshold.accepts(scores)
        if threshold.min_log_score is None:
            assert "Nothing can be guaranteed" in threshold.statement and not accepted.any()
            continue
        guaranteed += 1
        assert accepted.sum() > 500 and 1 - right[accepted].mean() <= float(alpha)
    assert guaranteed > 0


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_the_guarantee_on_many_halves_of_real_answers(
    test_answers: tuple[dict[str, np.ndarray], np.ndarray], preset: str, alpha: float
) -> None:
    """500 answers to fit, 1,500 to check, dealt 300 times: the guarantee is broken in at most delta of them."""
    scores, right = test_answers[0][preset], test_answers[1]
    generator, broken, given = np.random.default_rng(0), 0, 0
    for _ in range(300):
        order = generator.permutation(scores.size)
        fit, check = order[:500], order[500:]
        threshold = st.Threshold.fit(scores[fit], right[fit], alpha=alpha, unlabeled=scores[check])
        accepted = check[threshold.accepts(scores[check])]
        given += accepted.size > 0
        broken += accepted.size > 0 and 1 - right[accepted].mean() > alpha
    assert given > 100
    assert broken <= 30 + 3 * math.sqrt(300 * 0.1 * 0.9)


# --- label -----------------------------------------------------------------------------------------------------------


def test_labels_are_kept_and_labeling_goes_on(semtoken: RunCommand, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "answers.jsonl", answers(10, correct=None))
    target = tmp_path / "answers.labeled.jsonl"
    first = semtoken("label", source, stdin="y\nn\nq\n")
    assert first.exit_code == 0, first.output
    assert "2 of 10 answers have a label (1 right, 1 wrong)" in first.stderr
    assert first.stderr.count("Keys: y right, n wrong, s skip, u undo, q quit.") == 1
    rows = read_lines(target)
    assert [row["correct"] for row in rows].count(None) == 8
    assert {k: v for k, v in rows[3].items() if k != "correct"} == {
        k: v for k, v in answers(10)[3].items() if k != "correct"
    }
    shown = re.findall(r"What is number (\d)", first.stdout)
    second = semtoken("label", source, stdin="s\ny\n")  # ends with the input
    assert "3 of 10" in second.stderr
    assert not set(shown[:2]) & set(re.findall(r"What is number (\d)", second.stdout))
    third = semtoken("label", source, "--limit", "5", stdin="N\nU\nY\ny\n")
    assert "select one of" not in third.stderr, "with the shift key, too"
    assert "5 of 10 answers have a label (4 right, 1 wrong)" in third.stderr


def test_nobody_labels_into_a_file_beside_somebody_else(semtoken: RunCommand, tmp_path: Path) -> None:
    """Each writes the whole file: whoever came last took the labels of the other away."""
    source = write_lines(tmp_path / "answers.jsonl", answers(6, correct=None))
    target = tmp_path / "answers.labeled.jsonl"
    command = [sys.executable, "-m", "semtoken", "label", str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        wait_until(target.exists)
        assert_told(semtoken("label", source, stdin="n\nn\nq\n"), "Somebody else is labeling", "another output")
        first.communicate("y\nq\n")
    assert first.returncode == 0
    assert [row["correct"] for row in read_lines(target)].count(True) == 1
    assert "2 of 6" in semtoken("label", source, stdin="n\nq\n").stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [source.name, target.name]


@pytest.mark.parametrize("stdin", ["q\n", ""])
def test_the_file_is_there_if_nobody_labels(semtoken: RunCommand, tmp_path: Path, stdin: str) -> None:
    given = [row | {"correct": [True, None][i % 2]} for i, row in enumerate(answers(6, correct=None))]
    done = semtoken("label", write_lines(tmp_path / "answers.jsonl", given), stdin=stdin)
    assert done.exit_code == 0 and "3 of 6 answers have a label" in done.stderr
    assert f"Saved in {tmp_path / 'answers.labeled.jsonl'}." in done.stderr
    assert read_lines(tmp_path / "answers.labeled.jsonl") == given


def test_the_score_is_not_shown_while_labeling(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = answers(5, correct=None, log_confidence=-0.123456, response="bad \x1b[31mred\x1b[0m", answers=["blue"])
    result = semtoken("label", write_lines(tmp_path / "answers.jsonl", rows), stdin="q\n")
    assert "123456" not in result.output and "0.88" not in result.output
    assert "\x1b" not in result.stdout and "blue" in result.stdout


def test_blank_answers_are_not_asked_for(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = [*answers(3, correct=None), {"question": "Blank?", "response": " ", "log_confidence": None}]
    result = semtoken("label", write_lines(tmp_path / "answers.jsonl", rows), stdin="y\ny\nn\n")
    assert "Blank?" not in result.stdout and "3 of 3" in result.stderr
    assert read_lines(tmp_path / "answers.labeled.jsonl")[3]["correct"] is None


def test_labels_of_other_answers_are_not_overwritten(semtoken: RunCommand, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "answers.jsonl", answers(5, correct=None))
    semtoken("label", source, stdin="y\nq\n")
    before = (tmp_path / "answers.labeled.jsonl").read_bytes()
    write_lines(source, answers(5, seed=1, correct=None))
    assert_told(semtoken("label", source, stdin="y\nq\n"), "other answers")
    assert (tmp_path / "answers.labeled.jsonl").read_bytes() == before


def test_fields_are_labeled_beside_their_document_and_one_of_each_document_first(
    semtoken: RunCommand, tmp_path: Path
) -> None:
    rows = [
        row | {"document": f"bill-{i // 3}", "asked": f"Text of bill {i // 3}:\n{i} euros", "question": f"/f{i} of it"}
        for i, row in enumerate(answers(30, correct=None))
    ]
    done = semtoken("label", write_lines(tmp_path / "fields.jsonl", rows), stdin="y\n" * 30)
    shown = re.findall(r"Text of bill (\d):\n(\d+) euros\n/f(\d+) of it\n", done.stdout)
    assert len(shown) == 30 and all(euros == field for _, euros, field in shown)
    documents = [document for document, *_ in shown]
    assert all(len(set(documents[at : at + 10])) == 10 for at in (0, 10, 20))
    assert [field for *_, field in shown] != sorted((field for *_, field in shown), key=int)  # drawn at random
    without = [row | {"asked": None} for row in rows]
    told = semtoken("label", write_lines(tmp_path / "without.jsonl", without), stdin="q\n").stderr
    assert "does not hold what the fields were extracted from" in told


@pytest.mark.parametrize("scores", [[float(i) for i in range(40)], [-0.1] * 40], ids=["different", "equal"])
def test_labeled_answers_are_a_fair_sample(scores: list[float]) -> None:
    """Over random starts, each answer is as likely as any other to be among the first ten, wherever it stands."""
    orders = [label_order(scores, seed) for seed in range(1000)]
    counts = np.bincount([place for order in orders for place in order[:10]], minlength=40)
    assert np.abs(counts / 1000 - 0.25).max() < 0.07  # five standard errors
    if scores[0] == scores[1]:  # else the first two are on either side of the middle
        assert len({tuple(sorted(order[:2])) for order in orders}) > 100
    assert label_order(scores, 5) == label_order(scores, 5)
    answers = [AnswerRecord("", {"response": "a"}, score - 40, None) for score in scores]
    assert labeling_order(answers) == label_order(scores)  # the same each time


def test_a_journal_is_labeled_on_the_page(semtoken: RunCommand, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.db")) as journal:
        journal.execute("create table entries (id)")
    refused = semtoken("label", tmp_path / "journal.db")
    assert refused.exit_code != 0 and "is a journal. Label its answers in the view Review" in refused.stderr


# --- drift -----------------------------------------------------------------------------------------------------------


def fitted(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The calibrator that `calibrate` would make of these rows, without its report."""
    records = [answer_record(f"line {i}", row) for i, row in enumerate(rows)]
    st.Calibrator.fit(records, [row["correct"] for row in rows], alpha=0.1, delta=0.1).save(folder)
    return folder


def test_drift_is_a_number_with_an_interval(semtoken: RunCommand, tmp_path: Path) -> None:
    fitted(tmp_path / "made", answers(300))
    same = write_lines(tmp_path / "same.jsonl", answers(300, seed=7, correct=None))
    moved = write_lines(
        tmp_path / "moved.jsonl", [r | {"log_confidence": r["log_confidence"] - 2} for r in answers(300, seed=7)]
    )
    result = semtoken("audit", same, "--calibrator", tmp_path / "made")
    assert result.exit_code == 0 and "no difference is shown" in result.stdout
    found = json.loads(semtoken("audit", "--json", "--calibrator", tmp_path / "made", moved).stdout)
    assert found["low"] > 0.3 and found["low"] < found["distance"] < found["high"] <= 1
    other = write_lines(tmp_path / "other.jsonl", answers(300, signature="k:9"))
    assert_told(semtoken("audit", other, "--calibrator", tmp_path / "made"), "k:9", "k:4", status=2)
    assert_told(semtoken("audit", same, "--calibrator", tmp_path / "nowhere"), "calibrator", status=2)
    unscored = write_lines(tmp_path / "u.jsonl", [{"question": "?"}])
    assert_told(semtoken("audit", unscored, "--calibrator", tmp_path / "made"), "log_confidence", status=2)


def test_an_audit_by_the_labels_of_the_fit_says_so(semtoken: RunCommand, tmp_path: Path) -> None:
    rows = answers(300)
    made = fitted(tmp_path / "made", rows)
    own = write_lines(tmp_path / "own.jsonl", rows[:200])
    others = [row | {"question": f"How much is {row['id']}?"} for row in answers(200, seed=7)]
    newer = write_lines(tmp_path / "newer.jsonl", others)
    for file, repeats in ((own, True), (newer, False)):
        assert ("label other answers" in semtoken("audit", file, "--calibrator", made).stdout) is repeats
        found = json.loads(semtoken("audit", file, "--calibrator", made, "--json").stdout)
        assert found["repeats_fit"] is repeats


def test_an_audit_names_the_models_of_a_file_that_are_not_the_calibrators(semtoken: RunCommand, tmp_path: Path) -> None:
    made = fitted(tmp_path / "made", answers(300, model="prod"))
    newer = answers(120, seed=7, model="prod")
    of_one = write_lines(tmp_path / "one.jsonl", newer)
    of_two = write_lines(tmp_path / "two.jsonl", [row | {"model": "other"} for row in newer[:50]] + newer[50:])
    assert "another model" not in semtoken("audit", of_one, "--calibrator", made).stdout
    said = "50 of the 120 answers came from another model than the calibrator's, 'prod': 50 from 'other'."
    assert said in semtoken("audit", of_two, "--calibrator", made).stdout
    found = json.loads(semtoken("audit", of_two, "--calibrator", made, "--json").stdout)
    assert (found["models"], found["models_sentence"]) == ({"prod": 70, "other": 50}, said)


def test_several_at_once_write_one_calibrator_with_its_own_report(
    semtoken: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that meets another while it writes says so; one that finds a calibrator at its end replaces none."""
    source, target = write_lines(tmp_path / "labeled.jsonl", answers(60)), tmp_path / "made"
    with locked(tmp_path / ".made.lock", "busy"):
        met = semtoken("calibrate", source, "-o", target, "--alpha", "0.3")
    assert met.exit_code != 0 and "Another `semtoken calibrate` is writing" in " ".join(met.stderr.split())
    assert not target.exists()
    fitted = groups.fit_groups

    def others_end_first(*given: Any, **options: Any) -> Any:
        target.mkdir()
        (target / "calibrator.json").write_text("of another one")
        return fitted(*given, **options)

    monkeypatch.setattr(groups, "fit_groups", others_end_first)
    late = semtoken("calibrate", source, "-o", target, "--alpha", "0.3")
    assert late.exit_code != 0 and "--force" in late.stderr
    assert [(file.name, file.read_text()) for file in target.iterdir()] == [("calibrator.json", "of another one")]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["labeled.jsonl", "made"]
