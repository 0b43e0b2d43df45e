"""The proxy with a calibrator: probability and decision in every final block, and calibrators that do not belong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import semtoken as st
from semtoken import TokenClusters
from semtoken.core.rules import ScoringRules
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.answer_records import answer_record
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.journal.entries import AnswerOrigin, Recording
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.watch import watch
from semtoken.guarantees.journal.writer import JournalWriter
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.recorder import AnswerRecorder
from semtoken.web.review import GuaranteeWatch
from tests.cli.run import invoke
from tests.guarantees.made_up import put
from tests.rows import each
from tests.web import lima
from tests.web.asking import CHAT, assert_error, block_of, blocks_in, events_in, post
from tests.web.conftest import proxy_of
from tests.web.servers import events, raw_upstream, response, running


def made(folder: Path, **origin: Any) -> st.Calibrator:
    """A calibrator of top-k scores, from simulated labels."""
    known: dict[str, Any] = {"signature": ScoringRules().signature, "scores": "top-k", "k": 20}
    return put(folder, **(known | origin))


def test_final_blocks_carry_chance_and_decision(served: str, almanac_clusters: TokenClusters, tmp_path: Path) -> None:
    calibrator = made(tmp_path)
    with proxy_of(served, almanac_clusters, calibrator=CalibratorInUse(calibrator), hold=30.0) as url:
        block = block_of(post(url))
        blocks = blocks_in(events_in(post(url, json=CHAT | {"stream": True}).text))
    score = np.log1p(-block["sequence_uncertainty"])
    assert block["probability_correct"] == pytest.approx(calibrator.predict_proba(score), abs=1e-6)
    assert calibrator.threshold is not None
    assert (block["n_labels"], block["guarantee"]) == (300, calibrator.threshold.statement)
    assert block["decision"] in ("answer", "abstain")
    assert blocks[-1]["probability_correct"] == block["probability_correct"]
    assert all(("probability_correct" in one) == bool(one.get("final")) for one in blocks)


@pytest.mark.parametrize(
    ("origin", "named"), [({"scores": "exact"}, "'exact'"), ({"k": 5}, "5"), ({"signature": "k:9"}, "'k:9'")]
)
def test_the_proxy_does_not_start_with_a_calibrator_of_other_scores(
    almanac_clusters: TokenClusters, tmp_path: Path, origin: dict[str, Any], named: str
) -> None:
    made(tmp_path, **origin)
    options = ("--base-url", "http://127.0.0.1:9", "--tokenizer", "almanac", "--port", "0")
    result = invoke(["proxy", *options, "--calibrator", tmp_path])
    assert result.exit_code == 1
    assert "This calibrator was fitted on scores with" in result.stderr and named in result.stderr


WITHHELD = 'I do not know. "Ask" me <again>.'
FOR_ALL = CHAT | {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
FOR_ALL |= {"semtoken": {"tokens": True, "parts": "word", "competing": 2}}
COMPLETION = {"model": "almanac", "prompt": "Paris is"}


@pytest.fixture
def strict(served: str, almanac_clusters: TokenClusters, tmp_path: Path) -> Iterator[Callable[[float], Any]]:
    """A proxy that shows what is accepted up to an uncertainty, and another text in place of all else."""
    calibrator = made(tmp_path)
    assert calibrator.threshold is not None

    @contextmanager
    def proxy(limit: float, upstream: str = served, **changes: Any) -> Iterator[str]:
        threshold = replace(calibrator.threshold, min_log_score=-limit)  # type: ignore[type-var]
        applied = CalibratorInUse(replace(calibrator, threshold=threshold), abstain_text=WITHHELD)
        with proxy_of(upstream, almanac_clusters, calibrator=applied, **changes) as url:
            yield url

    yield proxy


def test_answers_that_are_not_accepted_are_replaced_if_wanted(served: str, strict: Any) -> None:
    answer = post(served).json()["choices"][0]["message"]["content"].strip()
    assert answer
    with strict(0.0) as url:
        reply = post(url, json=FOR_ALL)
        [legacy] = post(url, "/v1/completions", json=COMPLETION | {"logprobs": 2}).json()["choices"]
    [choice] = reply.json()["choices"]
    assert choice["message"]["content"] == legacy["text"] == WITHHELD
    assert choice["semtoken"]["decision"] == "abstain" and choice["semtoken"]["probability_correct"] > 0
    assert choice["logprobs"] is None and legacy["logprobs"] is None and choice.get("token_ids") is None
    assert answer not in reply.text and "tokens" not in choice["semtoken"] and "parts" not in choice["semtoken"]
    with strict(1e9) as url:
        [accepted] = post(url, json=FOR_ALL).json()["choices"]
    assert accepted["message"]["content"].strip() == answer and accepted["logprobs"]["content"]
    assert accepted["semtoken"]["decision"] == "answer" and accepted["semtoken"]["parts"]


SPELLINGS = (
    "/v1/chat/completions/",
    "/v1/chat/completions;x",
    "/v1/chat/completions;x=1/",
    "/v1/chat/completions%20",
    "/v1/chat/completions%2520",
    "/v1/chat/completions%00",
    "/v1/chat/%63ompletions/",
    "/v1/chat%2Fcompletions%2F",
    "/v1//chat//completions//",
    "/v1/Chat/Completions",
    "/v1/chat\\completions.",
    "/v1/completion",
    "/v1/responses",
    "/v1beta/models/almanac:generateContent",
    "/v1/models/almanac:streamGenerateContent",
    "/v1/generations",
    "/v1/batches",
    "/v2/models/almanac/infer",
    "/predict",
)


def test_no_spelling_of_the_path_shows_what_was_not_decided(strict: Any) -> None:
    reply = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "the secret"}}]}).encode()
    with raw_upstream(response(reply)) as upstream, strict(1e9, upstream.url) as url:
        tried = [("POST", path) for path in SPELLINGS]
        tried += [(method, "/v1/chat/completions") for method in ("PUT", "PATCH", "GET", "DELETE", "OPTIONS")]
        for method, path in tried:
            said = httpx.request(method, url + path, json=CHAT, timeout=30)
            assert "secret" not in said.text and said.status_code in (400, 403), (method, path, said.text)
        assert not upstream.requests
        assert "secret" not in post(url).text
        other = post(url, "/v1/embeddings", json={"input": "x"})
        model = httpx.get(f"{url}/v1/models/Qwen2.5-Chat", timeout=30)
    assert other.content == model.content == reply


@each("changed", [{}, {"reasoning_content": "the secret", "refusal": "the secret"}])
def test_why_an_answer_has_no_score_does_not_quote_one_that_is_withheld(strict: Any, changed: dict[str, str]) -> None:
    token = {"token": "the secret", "logprob": -2.0, "bytes": list(b"the secret")}
    message = {"role": "assistant", "content": "the secret", **changed}
    reply = lima.reply(lima.choice(0, message, {"content": [{**token, "top_logprobs": [token]}]}))
    with raw_upstream(response(reply)) as upstream, strict(1e9, upstream.url) as url:
        said = post(url)
    assert said.json()["choices"][0]["message"]["content"] == WITHHELD
    assert "secret" not in said.text and "could not be scored" in block_of(said)["reason"]


def test_what_cannot_be_decided_is_not_shown(strict: Any) -> None:
    with strict(1e9) as url:
        for refused in (post(url, json=CHAT | {"stream": True}), post(url, content=b"{")):
            assert refused.status_code == 400 and "abstain_text" in refused.json()["error"]["message"]
        echo = post(url, "/v1/completions", json=COMPLETION | {"echo": True})
    assert echo.status_code >= 400 or echo.json()["choices"][0]["text"].startswith(WITHHELD)
    with strict(1e9, max_scored_bytes=50) as url:
        assert_error(post(url), 502, "held_back")


def named_reply(model: str, *, stream: bool = False) -> bytes:
    """A reply, whole or streamed, in which a model says "Lima" and ends its turn."""
    end = {"token": "<|im_end|>", "logprob": -0.1, "bytes": list(b"<|im_end|>")}
    ended = {"content": [end | {"top_logprobs": [end]}]}
    if not stream:
        both = {"content": lima.LIMA["content"] + ended["content"]}
        return response(lima.reply(lima.choice(0, {"role": "assistant", "content": "Lima"}, both), model=model))
    parts = [lima.event(), lima.event("", "stop")]
    parts[1]["choices"][0]["logprobs"] = ended
    named = [part | {"object": "chat.completion.chunk", "model": model} for part in parts]
    return response(events(*named), kind=b"text/event-stream")


@pytest.mark.parametrize(
    ("answered", "fits", "stream"), [("prod", True, True), ("other", False, False), ("other", False, True)]
)
def test_a_model_that_was_exchanged_behind_the_proxy_gets_no_probability(
    almanac_clusters: TokenClusters, tmp_path: Path, answered: str, *, fits: bool, stream: bool
) -> None:
    calibrator = CalibratorInUse(made(tmp_path, model="prod"))
    journal = Journal.open(str(tmp_path / "journal.db"))
    rule, salt = journal.sampling()
    writer = JournalWriter(journal)
    recorder = AnswerRecorder(Recording(AnswerOrigin("proxy"), rule, salt), writer, GuaranteeWatch(journal))
    with raw_upstream(named_reply(answered, stream=stream)) as upstream:
        app = proxy_app(ProxySettings(upstream.url), calibrator=calibrator, recorder=recorder)
        with running(app) as url:
            block = block_of(post(url, json=CHAT | {"model": "prod", "stream": stream}))
            assert writer.flush(30)
    assert ("probability_correct" in block, "decision" in block) == (fits, fits)
    [entry] = journal.entries()
    assert entry["model"] == answered and (entry["probability_correct"] is not None) == fits
    report = watch(journal)
    assert report.models == {answered: 1}
    if fits:
        assert "calibrator_refused" not in block and report.models_sentence == ""
    else:
        assert "'prod'" in block["calibrator_refused"] and "'other'" in block["calibrator_refused"]
        assert block["calibrated_elsewhere"] and set(entry["flags"]) >= {"calibrated_elsewhere", "calibrator_refused"}
        assert "1 from 'other'" in report.models_sentence


def test_the_numbers_of_an_answer_by_another_model_stay_where_it_is_withheld(
    almanac_clusters: TokenClusters, tmp_path: Path
) -> None:
    applied = CalibratorInUse(made(tmp_path, model="prod"), abstain_text=WITHHELD)
    with (
        raw_upstream(named_reply("other")) as upstream,
        proxy_of(upstream.url, almanac_clusters, calibrator=applied) as url,
    ):
        said = post(url)
    block = block_of(said)
    assert said.json()["choices"][0]["message"]["content"] == WITHHELD and "Lima" not in said.text
    assert "'other'" in block["calibrator_refused"] and 0 < block["confidence"] < 1


def test_a_calibrator_is_fitted_on_the_answers_of_one_model(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    scores = -generator.exponential(1, 60)
    correct = generator.random(60) < np.exp(scores)
    records = [{"log_confidence": float(s), "question": f"q{i}", "model": "prod"} for i, s in enumerate(scores)]
    answers = [answer_record(f"line {i}", record) for i, record in enumerate(records)]
    fitted = st.Calibrator.fit(answers, correct)
    assert fitted.fingerprint.model == "prod"
    another = answer_record("line 1", records[0] | {"model": "other"})
    with pytest.raises(CalibratorMismatchError, match="'other' gave this one"):
        fitted.predict_proba(another)
    with pytest.raises(InvalidInputError, match="--group-by model"):
        st.Calibrator.fit([another, *answers[1:]], correct)
    assert 0 < fitted.predict_proba(answer_record("line 1", {"log_confidence": -0.1})) < 1  # it names none
