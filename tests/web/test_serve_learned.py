"""`semtoken serve` with a number that was learned from labels."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

import semtoken as st
from semtoken.almanac import load_questions
from semtoken.almanac.questions import PROMPT
from semtoken.calibration.apply import Applied
from semtoken.errors import CalibratorMismatch
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.web.servers import running

pytest.importorskip("sklearn")


def made() -> st.Calibrator:
    """From made-up labels that the states know."""
    stc = st.STC.from_pretrained("almanac", states=True)
    prompts = [PROMPT.replace("{question}", one.question) for one in load_questions("dev")[:160]]
    answers = stc.generate(prompts, 16, batch_size=32, stop_at_newline=True)
    states = np.stack([answer.state.values for answer in answers if answer.state is not None])
    centred = (states - states.mean(axis=0)) / states.std(axis=0)
    known = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    return st.Calibrator.fit(answers, list(known > np.median(known)), learn=True)


def test_a_served_answer_has_its_learned_number_and_another_prompt_the_reason_why_not() -> None:
    calibrator = made()
    assert calibrator.learned is not None
    stc = st.STC.from_pretrained("almanac")
    stc.use_learned(calibrator.learned)
    asked = load_questions("dev")[200].question
    own = st.STC.from_pretrained("almanac", calibrator=calibrator)
    [expected] = own.generate(PROMPT.replace("{question}", asked), 16, stop_at_newline=True)
    offer = Offer("almanac", PROMPT, True, 5, Applied(calibrator))
    with running(serve_app(Engine(stc), offer)) as url, httpx.Client(base_url=url, timeout=60) as client:
        message = {"messages": [{"role": "user", "content": asked}], "max_tokens": 16}
        block = client.post("/v1/chat/completions", json=message).json()["choices"][0]["semtoken"]
        assert block["scores"]["learned"] == pytest.approx(expected.scores["learned"], abs=1e-3)
        assert block["scores"]["state_distance"] == pytest.approx(expected.scores["state_distance"], rel=1e-3)
        assert block["chance"] == pytest.approx(expected.chance, abs=1e-3) and block["n_labels"] == 160
        other = {"prompt": "The capital of France is", "max_tokens": 4}
        block = client.post("/v1/completions", json=other).json()["choices"][0]["semtoken"]
        assert "learned on prompts each of which begins with" in block["calibrator_refused"]
        assert "chance" not in block and "learned" not in block.get("scores", {})


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
