"""Running scores of people's own `generate`: the same as a stream of its logits, from streamers, criteria, threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from transformers import StoppingCriteria, TextStreamer

import semtoken as st
from semtoken.core import LogitsStream
from semtoken.core.results import Running
from tests import tiny
from tests.models.plain_pass import generated
from tests.models.test_transformers import PROMPTS, assert_same, full_logits, recorded, scorer


class Watch(StoppingCriteria):
    """Asks after every token, and stops the answers whose uncertainty is sure to be above a threshold."""

    def __init__(self, recorder: st.Recorder, threshold: float = 2.0) -> None:
        self.recorder = recorder
        self.threshold = threshold
        self.seen: list[list[Running]] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.seen.append(self.recorder.running(input_ids))
        return torch.tensor([one.sequence_uncertainty_interval[0] > self.threshold for one in self.seen[-1]])


class Asking(TextStreamer):
    """A streamer that keeps what is known with each text."""

    def __init__(self, tokenizer: Any, recorder: st.Recorder) -> None:
        super().__init__(tokenizer, skip_prompt=True)
        self.recorder = recorder
        self.seen: list[list[Running]] = []

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.seen.append(self.recorder.running())


def streamed(stc: st.ScoredModel, prompt: str, answer: list[int]) -> list[Running]:
    """The values so far that `LogitsStream` gives for the logits of one forward pass."""
    stream = LogitsStream(stc.clusters)
    return [stream.add(row, token) for row, token in zip(full_logits(stc, prompt, answer), answer, strict=True)]


def assert_close(found: Running, expected: Running) -> None:
    assert (found.n_tokens, found.n_settled) == (expected.n_tokens, expected.n_settled)
    assert found.sequence_uncertainty == pytest.approx(expected.sequence_uncertainty, abs=1e-4)
    assert found.sequence_uncertainty_interval == pytest.approx(expected.sequence_uncertainty_interval, abs=1e-4)


def one(stc: st.ScoredModel, recorder: st.Recorder, **options: Any) -> Any:
    options = {"max_new_tokens": 12, "pad_token_id": 0} | options
    return generated(stc.model, stc.tokenizer, PROMPTS[0], recorder, **options)


@pytest.mark.parametrize("kind", list(tiny.TOKENIZERS))
def test_every_token_gives_what_a_stream_of_its_logits_gives(kind: str) -> None:
    stc = scorer(kind, padding=0)
    recorder = st.Recorder(stc.clusters)
    watch = Watch(recorder)
    sequences = one(stc, recorder, stopping_criteria=[watch])
    last = recorder.running(sequences)
    assert last == watch.seen[-1]
    [result] = recorder.answers(sequences)
    for [found], expected in zip(watch.seen, streamed(stc, PROMPTS[0], result.token_ids), strict=True):
        assert_close(found, expected)
    assert_same(result, st.score_logits(full_logits(stc, PROMPTS[0], result.token_ids), result.token_ids, stc.clusters))
    low, high = last[0].sequence_uncertainty_interval
    assert low - 1e-9 <= result.sequence_uncertainty <= high + 1e-9
    assert recorder.running() == []


@pytest.mark.parametrize("function_words", ["paper", "off"])
def test_the_last_running_score_of_a_finished_answer_is_its_result(function_words: Any) -> None:
    """Answers of a batch that end at different tokens and are padded."""
    stc = scorer(padding=0)
    free = [answer.token_ids for answer in stc.generate(PROMPTS, max_new_tokens=8)]
    ends = sorted({ids[2 + i] for i, ids in enumerate(free)})
    recorder = st.Recorder(stc.clusters, st.ScoringRules(function_words=function_words), eos_token_id=ends)
    watch = Watch(recorder)
    sequences = recorded(stc, recorder, eos_token_id=ends, stopping_criteria=[watch])
    results = recorder.answers(sequences)
    assert len({len(result.tokens) for result in results}) > 1
    for found, result in zip(watch.seen[-1], results, strict=True):
        assert found.n_tokens == found.n_settled == len(result.tokens)
        assert found.sequence_uncertainty == result.sequence_uncertainty
        assert found.sequence_uncertainty_interval == (result.sequence_uncertainty, result.sequence_uncertainty)


def test_a_criterion_stops_an_answer_that_is_too_uncertain() -> None:
    stc = scorer(padding=0)
    recorder = st.Recorder(stc.clusters)
    watch = Watch(recorder, threshold=0.9)
    [result] = recorder.answers(one(stc, recorder, max_new_tokens=60, stopping_criteria=[watch]))
    lows = [running.sequence_uncertainty_interval[0] for [running] in watch.seen]
    assert len(result.tokens) == len(lows) < 60
    assert lows[-1] > 0.9 and max(lows[:-1], default=0.0) <= 0.9
    assert result.sequence_uncertainty >= lows[-1]


def test_a_streamer_knows_all_but_the_newest_token() -> None:
    stc = scorer(padding=0)
    recorder = st.Recorder(stc.clusters)
    streamer = Asking(stc.tokenizer, recorder)
    sequences = one(stc, recorder, streamer=streamer)
    [result] = recorder.answers(sequences)
    expected = streamed(stc, PROMPTS[0], result.token_ids)
    counts = [running.n_tokens for [running] in streamer.seen]
    assert counts == sorted(counts) and counts[-1] == len(result.tokens) - 1
    for [running] in streamer.seen:
        if running.n_tokens:
            assert_close(running, expected[running.n_tokens - 1])


def test_another_thread_may_ask_at_any_time() -> None:
    stc = scorer(padding=0)
    recorder = st.Recorder(stc.clusters)
    done = threading.Event()
    seen: list[list[Running]] = []
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            while not done.is_set():
                seen.append(recorder.running())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        sequences = recorded(stc, recorder, max_new_tokens=8)
    finally:
        done.set()
        thread.join()
    assert not failed
    assert max(len(running) for running in seen) == len(PROMPTS)
    for i in range(len(PROMPTS)):
        lows = [running[i].sequence_uncertainty_interval[0] for running in seen if running]
        assert lows == sorted(lows)
    expected = stc.generate(PROMPTS, max_new_tokens=8)
    for result, answer in zip(recorder.answers(sequences), expected, strict=True):
        assert_same(result, answer)
