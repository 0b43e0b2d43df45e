"""`semtoken serve` with a number that was learned from labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from scipy.stats import ks_2samp

import semtoken as st
from semtoken.almanac import PROMPT, load_questions
from semtoken.calibration.apply import CalibratorInUse
from semtoken.errors import CalibratorMismatch, SemtokenError
from semtoken.journal.entries import AnswerOrigin, Recording
from semtoken.journal.store import Journal
from semtoken.journal.watch import watch
from semtoken.journal.writer import JournalWriter
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.recorder import AnswerRecorder
from semtoken.web.review import PromiseWatch
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.web.servers import running
from tests.web.test_journal_servers import wait_for

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def calibrator() -> st.Calibrator:
    """From made-up labels that the states know."""
    stc = st.STC.from_pretrained("almanac", states=True)
    prompts = [PROMPT.replace("{question}", one.question) for one in load_questions("dev")[:160]]
    answers = stc.generate(prompts, 16, batch_size=32, stop_at_newline=True)
    states = np.stack([answer.state.values for answer in answers if answer.state is not None])
    centred = (states - states.mean(axis=0)) / states.std(axis=0)
    known = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    return st.Calibrator.fit(answers, list(known > np.median(known)), learn=True)


@contextmanager
def recorder_of(path: Path) -> Iterator[AnswerRecorder]:
    journal = Journal.open(str(path))
    rule, salt = journal.sampling()
    recording = Recording(AnswerOrigin("serve"), rule, salt)
    yield AnswerRecorder(recording, JournalWriter(journal), PromiseWatch(journal, every=0.5))
    journal.close()


def test_a_served_answer_has_its_learned_number_and_another_prompt_the_reason_why_not(
    calibrator: st.Calibrator, tmp_path: Path
) -> None:
    assert calibrator.learned is not None
    stc = st.STC.from_pretrained("almanac")
    stc.use_learned(calibrator.learned)
    asked = load_questions("dev")[200].question
    own = st.STC.from_pretrained("almanac", calibrator=calibrator)
    [expected] = own.generate(PROMPT.replace("{question}", asked), 16, stop_at_newline=True)
    offer = Offer("almanac", PROMPT, True, 5, CalibratorInUse(calibrator))
    database = tmp_path / "journal.db"
    with ExitStack() as stack:
        recorder = stack.enter_context(recorder_of(database))
        url = stack.enter_context(running(serve_app(Engine(stc), offer, recorder=recorder)))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=60))
        message = {"messages": [{"role": "user", "content": asked}], "max_tokens": 16}
        scored = block = client.post("/v1/chat/completions", json=message).json()["choices"][0]["semtoken"]
        assert block["scores"]["learned"] == pytest.approx(expected.scores["learned"], abs=1e-3)
        assert block["scores"]["state_distance"] == pytest.approx(expected.scores["state_distance"], rel=1e-3)
        assert block["chance"] == pytest.approx(expected.chance, abs=1e-3) and block["n_labels"] == 160
        other = {"prompt": "The capital of France is", "max_tokens": 4}
        block = client.post("/v1/completions", json=other).json()["choices"][0]["semtoken"]
        assert "learned on prompts each of which begins with" in block["calibrator_refused"]
        assert "chance" not in block and "learned" not in block.get("scores", {})
        messages = [[{"role": "user", "content": one.question}] for one in load_questions("dev")[200:212]]
        blocks = [
            client.post("/v1/chat/completions", json={"messages": one, "max_tokens": 16}).json()["choices"][0][
                "semtoken"
            ]
            for one in messages
        ]
        assert recorder.writer.flush(30)
        assert scored["scores"] == blocks[0]["scores"]  # one question, asked twice: it counts once
        distances = [one["scores"]["state_distance"] for one in blocks]
        expected_distance = ks_2samp(calibrator.learned.distances, distances).statistic
        report = watch(recorder.writer.journal)
        assert report.states_moved is not None and report.states_moved.n_recent == 12
        assert report.states_moved.distance == pytest.approx(expected_distance)
        assert "hidden states, of 12 different questions, are at a distance of" in report.states_sentence
        figure = f'semtoken_drift_distance{{of="states"}} {report.states_moved.distance}'
        wait_for(lambda: figure in client.get("/metrics").text)
        kept = [row["numbers"] for row in recorder.writer.journal.entries()]
        assert all(len(one) == 3 for numbers in kept for one in numbers.values())  # a value and its bounds; no states


def test_a_number_that_is_exchanged_goes_back_with_its_calibrator(calibrator: st.Calibrator) -> None:
    assert calibrator.learned is not None
    other = replace(calibrator.learned, intercept=calibrator.learned.intercept + 1)
    first, second = CalibratorInUse(calibrator), CalibratorInUse(replace(calibrator, learned=other))
    stc = st.STC.from_pretrained("almanac")
    slot = CalibratorSlot(first, lambda: second, lambda applied: stc.use_learned(applied.calibrator.learned))
    stc.use_learned(first.calibrator.learned)
    slot.reload()
    assert stc.learned == second.calibrator.learned != first.calibrator.learned

    def away(applied: CalibratorInUse) -> None:
        raise SemtokenError("the journal is away")

    slot.on_change = away
    with pytest.raises(SemtokenError):
        slot.back()
    assert stc.learned == second.calibrator.learned and slot.current is second
    slot.on_change = lambda applied: None
    slot.back()
    assert stc.learned == first.calibrator.learned and slot.current is first


def test_replies_of_an_api_are_learned_from_by_their_cheap_numbers(served: str) -> None:
    """Five of the best tokens a step: no states, an interval of the entropy, and the same gate."""
    asked = [one.question for one in load_questions("dev")[:170]]
    with httpx.Client(base_url=served, timeout=60) as client:
        replies = [
            client.post(
                "/v1/chat/completions",
                json={
                    "messages": [{"role": "user", "content": question}],
                    "max_tokens": 16,
                    "logprobs": True,
                    "top_logprobs": 5,
                },
            ).json()
            for question in asked
        ]
    answers = [st.score_payload(reply, methods=["max_token_entropy"])[0] for reply in replies]
    gap = np.array([answer.scores["max_token_entropy"] + answer.log_probability for answer in answers])
    correct = list(gap[:160] > np.median(gap))
    calibrator = st.Calibrator.fit(answers[:160], correct, learn=True)
    assert calibrator.learned is not None and not calibrator.learned.reads_states
    assert calibrator.learned.names[0] == "probability"
    chances = calibrator.chance(answers[160:])
    assert np.mean((chances > 0.5) == (gap[160:] > np.median(gap))) >= 0.8
    bare = st.score_payload(replies[160])[0]
    with pytest.raises(CalibratorMismatch, match="--methods max_token_entropy"):
        calibrator.chance(bare)
