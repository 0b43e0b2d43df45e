"""The first lines of Python that a user writes, as the pages show them: each gives what its command gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import semtoken as st
from semtoken.decisions import Answer, Predicate, ReadingOptions
from semtoken.decisions.records import DecisionRecord, answer_values, records_of
from tests.cli.run import invoke

ROOT = Path(__file__).parents[2]
REPLY = ROOT / "examples" / "replies" / "norway.json"


def test_a_reply_in_a_file_is_scored_as_check_scores_it() -> None:
    [answer] = st.score_reply(str(REPLY))
    row = json.loads(invoke(["check", str(REPLY), "--json"]).stdout)
    assert answer.confidence == pytest.approx(row["confidence"], abs=1e-9)
    assert answer.confidence_interval == pytest.approx(row["confidence_interval"], abs=1e-9)
    assert answer.explanation == row["explanation"] and answer.explanation in f"{answer.summary}.".replace(
        ": its", ": Its"
    )
    low, high = answer.confidence_interval
    assert 0 <= low <= answer.confidence <= high <= 1 and low < high
    for same in (REPLY, REPLY.read_text("utf-8"), json.loads(REPLY.read_text("utf-8"))):
        [again] = st.score_reply(same)
        assert (again.confidence, again.explanation) == (answer.confidence, answer.explanation)
    with pytest.raises(st.SemtokenError, match="nowhere"):
        st.score_reply("nowhere.json")


def test_the_doubtful_ones_of_a_folder_are_a_sequence() -> None:
    found = st.rank_replies(str(REPLY.parent))
    assert [one.rank for one in found[:3]] == [1, 2, 3] and len(found) == len(found.answers) == 6
    confidences = [one.confidence for one in found]
    assert confidences == sorted(confidences) and all(one.explanation and one.where for one in found)


def test_one_calibrator_holds_probabilities_and_a_threshold(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    probabilities = random.beta(2, 0.5, 600)
    correct = random.random(600) < probabilities
    scores = np.log(probabilities)
    calibrator = st.Calibrator.fit(scores, correct, alpha=0.1, unlabeled=np.log(random.beta(2, 0.5, 600)))
    alone = st.Calibrator.fit(scores, correct)
    assert alone.threshold is None and alone.guarantee == ""
    assert "at most 10%" in calibrator.guarantee
    decision = calibrator.decide(-1e-4)
    assert decision.accepted and decision.guarantee == calibrator.guarantee
    assert decision.probability_correct == alone.predict_proba(-1e-4) == calibrator.predict_proba(-1e-4)
    assert not calibrator.decide(-5.0).accepted
    calibrator.save(tmp_path)
    assert st.Calibrator.load(tmp_path).guarantee == calibrator.guarantee


def test_a_calibrator_of_decisions_decides_on_an_answer(tmp_path: Path) -> None:
    random, question = np.random.default_rng(0), Predicate("may_run", "May it run?")
    records: list[DecisionRecord] = []
    for n, p in enumerate(random.beta(1.2, 0.4, 500).tolist()):
        values = answer_values(Answer(question, (p, 1 - p)), ReadingOptions())
        line = {"state": f"call {n}", "labels": {"may_run": bool(random.random() < p)}, "answers": {"may_run": values}}
        records += records_of(line)
    st.DecisionCalibrator.fit(records, alpha=0.1).save(str(tmp_path / "may-run"))
    calibrator = st.DecisionCalibrator.load(str(tmp_path / "may-run"))
    sure, torn = Answer(question, (0.999, 0.001)), Answer(question, (0.51, 0.49))
    decision = calibrator.decide(sure)
    assert decision.accepted and "at most 10%" in decision.guarantee and 0.8 < (decision.probability_correct or 0) < 1
    assert not calibrator.decide(torn).accepted and calibrator.decide(torn).reason == "uncertain"
    other = calibrator.decide(Answer(Predicate("other", "Is it another?"), (0.9, 0.1)))
    assert not other.accepted and other.reason == "no_threshold" and other.probability_correct is None


def test_a_model_answers_with_a_decision_and_so_does_your_own_generate(tmp_path: Path) -> None:
    question = "Answer these questions:\n\nQuestion:\nWhat is the capital of Japan?\nAnswer:\n"
    known = st.ScoredModel.from_pretrained("almanac").fingerprint("almanac")
    probabilities = np.random.default_rng(0).beta(2, 0.5, 600)
    correct = np.random.default_rng(1).random(600) < probabilities
    st.Calibrator.fit(np.log(probabilities), correct, alpha=0.1, fingerprint=known).save(tmp_path)
    model = st.ScoredModel.from_pretrained("almanac", calibrator=tmp_path)
    [answer] = model.generate([question], max_new_tokens=8)
    assert answer.summary.startswith(f"confidence {answer.confidence:.2f}") and answer.decision is not None
    assert 0 < (answer.probability_correct or 0) < 1 and answer.decision.action in ("answer", "abstain")

    inputs = model.tokenizer(question, return_tensors="pt", return_token_type_ids=False)
    recorder = st.Recorder(model.tokenizer)
    sequences = model.model.generate(**inputs, max_new_tokens=8, do_sample=False, logits_processor=[recorder])
    [own] = recorder.answers(sequences)
    assert own.text == answer.text and own.confidence == pytest.approx(answer.confidence, abs=1e-6)
