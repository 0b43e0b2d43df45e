"""--calibrator in `ask`, `score`, `serve`, `compare` and `bench report`: one block, the same everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import semtoken as st
from semtoken.cli.loading import load_calibrator
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import scorer_for
from semtoken.errors import CalibratorMismatchError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.group_names import Group
from semtoken.support.almanac import almanac_clusters_path
from semtoken.web.block import BlockOptions, score_block
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.cli.conftest import RunCommand, assert_told
from tests.guarantees.made_up import put
from tests.guarantees.test_calibrator import response
from tests.json_lines import read_lines, write_lines

SIGNATURE = ScoringRules().signature
CAPITALS = (
    *("France", "Japan", "Peru", "Chad", "Kenya", "Spain", "Cuba", "Iran", "Iraq", "Italy", "Ghana", "Gabon", "Qatar"),
    *("Oman", "Nepal", "India", "China", "Norway", "Sweden", "Poland", "Turkey", "Greece", "Egypt", "Libya", "Mali"),
    *("Niger", "Togo", "Benin", "Sudan", "Angola", "Brazil", "Chile", "Bolivia", "Canada", "Mexico", "Haiti", "Fiji"),
)
QUESTIONS = ("What is the capital of France?", "Which country is Kyoto in?", "Who wrote the third book of Xu?")


def made(folder: Path, **origin: str | Group) -> st.Calibrator:
    """A calibrator for the embedded model, from simulated labels."""
    known: dict[str, Any] = {"signature": SIGNATURE, "distribution": "raw", "scores": "exact"}
    found = put(folder, **(known | origin))
    assert found.threshold is not None and found.threshold.min_log_score is not None
    return found


def test_ask_tells_chance_decision_and_guarantee_and_hides_answers_only_if_asked(
    semtoken: RunCommand, tmp_path: Path
) -> None:
    calibrator = made(tmp_path / "cal")
    assert calibrator.threshold is not None
    result = semtoken("ask", *QUESTIONS, "--json", "--calibrator", tmp_path / "cal")
    assert result.exit_code == 0, result.output
    plain = read_lines(result.stdout)
    for row in plain:
        assert row["probability_correct"] == calibrator.predict_proba(row["log_confidence"])
        assert tuple(row["probability_correct_interval"]) == calibrator.predict_proba_interval(row["log_confidence"])
        assert row["n_labels"] == 300
        assert row["decision"] == calibrator.decide(row["log_confidence"]).action
        assert row["guarantee"] == calibrator.threshold.statement
        assert row["response"].strip()
    abstains = [row for row in plain if row["decision"] == "abstain"]
    assert abstains
    options = ("--calibrator", tmp_path / "cal", "--calibration.abstain-text", "I do not know.")
    hidden = read_lines(semtoken("ask", *QUESTIONS, "--json", *options).stdout)
    for row, before in zip(hidden, plain, strict=True):
        shown = before["response"] if row["decision"] == "answer" else "I do not know."
        assert row["response"] == shown
    told = semtoken("ask", abstains[0]["question"], "--tokens", *options).stdout
    assert "300 labels" in told and calibrator.threshold.statement in told
    assert "I do not know." in told and abstains[0]["response"].strip() not in told
    assert_told(semtoken("ask", "Who?", "--calibration.abstain-text", "No."), "--calibrator")
    (tmp_path / "semtoken.toml").write_text('[calibration]\nabstain_text = "No."\n')  # which servers read, too
    assert semtoken("ask", "Who?", "--config", tmp_path / "semtoken.toml").exit_code == 0


def test_ask_tells_that_the_labeled_answers_are_of_another_model(semtoken: RunCommand, tmp_path: Path) -> None:
    """A calibrator that `score` and `calibrate` made knows its model."""
    write_lines(tmp_path / "in.jsonl", [{"question": f"What is the capital of {place}?"} for place in CAPITALS])
    semtoken("score", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--max-tokens", 2)
    scored = read_lines(tmp_path / "out.jsonl")
    labeled = [{**line, "correct": number % 2} for number, line in enumerate(scored)]
    write_lines(tmp_path / "labeled.jsonl", labeled)
    write_lines(tmp_path / "others.jsonl", [{**line, "model": "another"} for line in labeled])
    for file, told in (("labeled", False), ("others", True)):
        semtoken("calibrate", tmp_path / f"{file}.jsonl", "-o", tmp_path / file)
        shown = semtoken("ask", QUESTIONS[0], "--calibrator", tmp_path / file).stdout
        assert ("! The calibrator may not fit: the model was 'another' and is 'almanac'." in shown) is told


@pytest.mark.parametrize(
    ("command", "origin", "word"),
    [
        (("ask", QUESTIONS[0]), {"signature": f"k:9|{ScoringRules('default').signature}"}, "k:9"),
        (("serve", "--port", 0), {"signature": SIGNATURE.replace("preset:default", "preset:paper")}, "preset:paper"),
        (("score", "in.jsonl"), {"distribution": "processed"}, "processed"),
    ],
)
def test_a_calibrator_that_does_not_belong_is_refused(
    semtoken: RunCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[object, ...],
    origin: dict[str, str],
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("in.jsonl"), [{"question": QUESTIONS[0]}])
    made(tmp_path / "cal", **origin)
    assert_told(semtoken(*command, "--calibrator", "cal"), word)


def test_a_server_does_not_take_one_that_does_not_belong_later(almanac: st.ScoredModel, tmp_path: Path) -> None:
    folder, clusters, known = tmp_path / "cal", almanac.scorer.clusters, almanac.fingerprint("almanac")
    made(folder)
    slot = CalibratorSlot(load_calibrator(folder, clusters, known), lambda: load_calibrator(folder, clusters, known))
    made(folder, distribution="processed")
    with pytest.raises(CalibratorMismatchError, match="'processed'; these have 'raw'"):
        slot.reload()
    assert slot.current is not None and slot.current.calibrator.fingerprint.distribution == "raw"


def test_another_precision_is_flagged(semtoken: RunCommand, tmp_path: Path) -> None:
    made(tmp_path / "cal", dtype="int4", model="almanac", engine="transformers")
    [row] = read_lines(semtoken("ask", QUESTIONS[0], "--json", "--calibrator", tmp_path / "cal").stdout)
    assert "int4" in row["calibrated_elsewhere"][0] and row["probability_correct"] is not None


def test_a_line_of_another_group_is_flagged(semtoken: RunCommand, tmp_path: Path) -> None:
    """Of a calibrator that `calibrate --group-by language` made, whichever group it is used on."""
    made(tmp_path / "cal", task=Group("language", "de"))
    languages = ("de", "en", None)
    lines = [{"question": q, "language": own} for q, own in zip(QUESTIONS, languages, strict=True)]
    source = write_lines(tmp_path / "in.jsonl", lines)
    semtoken("score", source, "-o", tmp_path / "out.jsonl", "--calibrator", tmp_path / "cal", "--max-tokens", 2)
    flagged = [row.get("calibrated_elsewhere") for row in read_lines(tmp_path / "out.jsonl")]
    wrong_group = (
        "The calibrator may not fit: the answer is of another group (language en) than the calibrator's (language de): "
        "use the calibrator of that group."
    )
    assert flagged == [None, [wrong_group], None]


def test_score_writes_the_block_and_reads_it_again(semtoken: RunCommand, tmp_path: Path) -> None:
    calibrator = made(tmp_path / "cal")
    source = write_lines(tmp_path / "in.jsonl", [{"question": question} for question in QUESTIONS])
    result = semtoken("score", source, "-o", tmp_path / "out.jsonl", "--calibrator", tmp_path / "cal")
    assert result.exit_code == 0, result.output
    rows = read_lines(tmp_path / "out.jsonl")
    assert [row["probability_correct"] for row in rows] == [
        calibrator.predict_proba(row["log_confidence"]) for row in rows
    ]
    assert {row["decision"] for row in rows} <= {"answer", "abstain"}
    assert_told(semtoken("score", source, "-o", tmp_path / "out.jsonl"), "calibrator")
    again = semtoken("score", tmp_path / "out.jsonl", "-o", tmp_path / "again.jsonl")
    assert again.exit_code == 0 and "probability_correct" not in (tmp_path / "again.jsonl").read_text()


def served(
    almanac: st.ScoredModel, calibrator: CalibratorInUse, **asked: Any
) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """The answers of a server to a question: the whole reply, the choices of a stream, and the text of a completion."""
    offer = Offer("almanac", "Question:\n{question}\nAnswer:\n", True, calibrator=calibrator)
    body = {"model": "almanac", "messages": [{"role": "user", "content": QUESTIONS[0]}], **asked}
    with TestClient(serve_app(Engine(almanac), offer), base_url="http://127.0.0.1") as client:
        whole = client.post("/v1/chat/completions", json=body).json()
        stream = client.post("/v1/chat/completions", json=body | {"stream": True}).text
        completion = client.post("/v1/completions", json={"model": "almanac", "prompt": "Paris is"}).json()
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    return whole, [choice for chunk in chunks for choice in chunk["choices"]], completion["choices"][0]["text"]


def test_serve_adds_the_block(almanac: st.ScoredModel, tmp_path: Path) -> None:
    whole, chunks, _ = served(almanac, CalibratorInUse(made(tmp_path / "cal")))
    block = whole["choices"][0]["semtoken"]
    assert 0 < block["probability_correct"] < 1 and block["n_labels"] == 300
    assert block["decision"] in ("answer", "abstain")
    blocks = [choice["semtoken"] for choice in chunks if "semtoken" in choice]
    decided = ["decision" in b for b in blocks]
    assert decided == [bool(b.get("final")) for b in blocks], "with the final score only"
    assert decided == sorted(decided) and decided[-1], "and so at the end"
    # up to rounding: what the second request has in common with the first is not read again
    assert blocks[-1]["probability_correct"] == pytest.approx(block["probability_correct"], abs=1e-6)


def test_serve_replaces_answers_that_are_not_accepted_if_wanted(almanac: st.ScoredModel, tmp_path: Path) -> None:
    calibrator = made(tmp_path / "cal")

    def replies(limit: float, text: str | None) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
        threshold = replace(calibrator.threshold, min_log_score=-limit)  # type: ignore[type-var]
        applied = CalibratorInUse(replace(calibrator, threshold=threshold), abstain_text=text)
        block = {"tokens": True, "parts": "word"}
        return served(almanac, applied, n=2, logprobs=True, return_token_ids=True, semtoken=block)

    def streamed(chunks: list[dict[str, Any]], index: int) -> str:
        return "".join(one["delta"].get("content", "") for one in chunks if one["index"] == index)

    plain, _, _ = replies(0.0, None)
    answer = plain["choices"][0]["message"]["content"]
    whole, chunks, legacy = replies(0.0, "No.")
    for index, choice in enumerate(whole["choices"]):
        assert choice["message"]["content"] == streamed(chunks, index) == legacy == "No."
        assert choice["semtoken"]["decision"] == "abstain" and not choice.get("token_ids")
        assert not (choice["logprobs"] or {}).get("content")
    assert answer.strip() and answer.strip() not in json.dumps([whole, chunks])
    assert whole["usage"] == plain["usage"]
    whole, chunks, _ = replies(1e9, "No.")
    for index, choice in enumerate(whole["choices"]):
        assert choice["message"]["content"] == streamed(chunks, index) == answer
        assert choice["logprobs"]["content"] and choice["semtoken"]["tokens"]


def test_an_abstain_text_needs_a_threshold(semtoken: RunCommand, tmp_path: Path) -> None:
    calibrator = made(tmp_path / "cal")
    replace(calibrator, threshold=None).save(tmp_path / "bare")
    assert_told(
        semtoken("ask", "Who?", "--calibrator", tmp_path / "bare", "--calibration.abstain-text", "No."), "no threshold"
    )
    assert_told(semtoken("serve", "--calibration.abstain-text", "No.", "--port", "0"), "--calibrator")
    assert_told(
        semtoken("proxy", "--base-url", "http://127.0.0.1:9", "--calibration.abstain-text", "No."),
        "--calibrator",
    )


def test_serve_says_why_a_calibrator_was_refused_and_still_answers(tmp_path: Path) -> None:
    applied = CalibratorInUse(made(tmp_path / "cal"))
    clusters = st.TokenClusters.from_pretrained(almanac_clusters_path())
    block = score_block(response(-0.5), scorer_for(clusters, ScoringRules()), BlockOptions(), applied)
    assert (
        "k:4" in block["calibrator_refused"]
        and "probability_correct" not in block
        and block["sequence_uncertainty"] > 0
    )


def test_both_ends_of_a_wide_interval_are_told(tmp_path: Path) -> None:
    calibrator = made(tmp_path / "cal", scores="top-k")
    wide = response(-1.0, signature=SIGNATURE, log_confidence_interval=(-1.0, -0.2))
    narrow = response(-1.0, signature=SIGNATURE, log_confidence_interval=(-1.0, -0.95))
    assert CalibratorInUse(calibrator).block(wide)["probability_correct_at_ends"] == list(
        calibrator.predict_proba([-1.0, -0.2])
    )
    assert "probability_correct_at_ends" not in CalibratorInUse(calibrator).block(narrow)


# --- compare and bench report ----------------------------------------------------------------------------------------


def test_compare_holds_a_calibrator_against_its_answers(semtoken: RunCommand, tmp_path: Path) -> None:
    calibrator = made(tmp_path / "cal")
    options = ("--limit", "8", "--methods", "sequence_probability", "--calibrator", tmp_path / "cal")
    result = semtoken("bench", "compare", *options, "--preset", "default", "--output", tmp_path / "it.md")
    assert result.exit_code == 0, result.output
    assert calibrator.threshold is not None
    for text in (" ".join(result.stdout.split()), (tmp_path / "it.md").read_text()):
        assert calibrator.threshold.statement in text
        assert "Probabilities by the calibrator: log loss" in text and "of 8 answers" in text


def test_compare_refuses_other_rules_before_it_begins(semtoken: RunCommand, tmp_path: Path) -> None:
    made(tmp_path / "cal")
    result = semtoken("bench", "compare", "--calibrator", tmp_path / "cal")  # 500 questions under the paper's rules
    assert_told(result, "preset:default", "preset:paper", "--preset")


def test_bench_report_holds_a_calibrator_against_its_answers(semtoken: RunCommand, tmp_path: Path) -> None:
    from semtoken.bench.report.content import build_report
    from tests.bench.report_runs import results
    from tests.bench.test_report_decisions import scored

    table = tmp_path / "answers.parquet"
    table.write_bytes(build_report(results(scored(40, signature=SIGNATURE)), n_resamples=20).answers)
    calibrator = made(tmp_path / "cal")
    options = ("--n-resamples", "20", "--calibrator", tmp_path / "cal")
    result = semtoken("bench", "report", table, "--output", tmp_path / "report", *options)
    assert result.exit_code == 0, result.output
    assert calibrator.threshold is not None and calibrator.threshold.statement in " ".join(result.stdout.split())
    assert "The calibrator on these answers" in (tmp_path / "report" / "index.html").read_text()
    made(tmp_path / "other", signature=SIGNATURE.replace("preset:default", "preset:paper"))
    refused = semtoken("bench", "report", table, "--output", tmp_path / "none", "--calibrator", tmp_path / "other")
    assert_told(refused, "preset:paper")
    assert not (tmp_path / "none").exists()
    assert_told(
        semtoken("bench", "report", table, "--output", tmp_path / "none", "--calibrator", tmp_path), "calibrator"
    )


def test_a_calibrator_of_lists_is_refused_before_a_model_that_has_all_logits_is_loaded(
    semtoken: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "cal", scores="top-k")
    monkeypatch.setattr(st.ScoredModel, "from_pretrained", None)  # nothing is loaded
    prompts = write_lines(tmp_path / "prompts.jsonl", [{"prompt": "Where?"}])
    for words in (["ask", "Where?"], ["score", prompts]):
        assert_told(semtoken(*words, "--calibrator", tmp_path / "cal"), "'top-k'", "'exact'")


def test_a_calibrator_beside_a_journal_is_said_to_be_too_much(semtoken: RunCommand, tmp_path: Path) -> None:
    from semtoken.guarantees.journal.store import Journal

    made(tmp_path / "cal")
    Journal.open(str(tmp_path / "journal.db")).close()
    for source in (tmp_path / "journal.db", "postgresql://me@db.example/semtoken"):
        assert_told(
            semtoken("audit", source, "--calibrator", tmp_path / "cal"),
            "--calibrator",
            "knows its calibrator",
            status=2,
        )
