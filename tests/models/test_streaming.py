"""Answers streamed by a transformers model: the same as generated ones, stopped and failing where they should."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

import semtoken as st
from semtoken.errors import BackendError, InvalidInputError, InvalidLogits
from semtoken.stream import AnswerStream, stream_generate
from tests import tiny
from tests.models.test_transformers import PROMPTS, assert_same, scorer
from tests.rows import each


class Calls:
    """Counts the forward passes over a scorer's answers, and does something at one of them."""

    def __init__(self, stc: st.ScoredModel, at: int = -1, do: Any = None) -> None:
        self.count = 0
        self._at, self._do = -1, do
        stc.model.register_forward_hook(self)
        stc.generate(PROMPTS[0], max_new_tokens=1)  # a hook may change a model, so all is found out about it again
        self.count, self._at = 0, at

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        self.count += 1
        if self.count == self._at:
            self._do(output)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "semtoken-stream"]


@each(
    ("kind", "options"),
    [
        *((kind, {}) for kind in tiny.TOKENIZERS),
        ("byte-level", {"stop_strings": "["}),
        ("byte-level", {"do_sample": True, "temperature": 1.3}),
    ],
)
def test_the_end_is_what_generate_gives(kind: str, options: dict[str, Any]) -> None:
    stc = scorer(kind)
    for prompt in PROMPTS:
        torch.manual_seed(5)
        [expected] = stc.generate(prompt, max_new_tokens=12, **options)
        torch.manual_seed(5)
        stream = stream_generate(stc, prompt, max_new_tokens=12, **options)
        tokens = list(stream)
        assert_same(stream.result, expected)
        assert [token.id for token in tokens] == expected.token_ids
        assert len(tokens) < 12 or "stop_strings" not in options
        text = "".join(token.text for token in tokens)
        assert expected.text.startswith(text)
        rest = set(expected.text[len(text) :])
        assert rest <= {"\N{REPLACEMENT CHARACTER}"} or options  # a character that never became whole, or a stop string
        assert [token.running.n_tokens for token in tokens] == list(range(1, len(tokens) + 1))
        if expected.text.strip():
            low, high = tokens[-1].running.sequence_uncertainty_interval
            assert low - 1e-6 <= stream.result.sequence_uncertainty <= high + 1e-6
    assert not threads()


def test_it_comes_while_it_is_written() -> None:
    stc = scorer()
    released = threading.Event()
    calls = Calls(stc, at=4, do=lambda _: released.wait(20))
    stream = stream_generate(stc, PROMPTS[0], max_new_tokens=200)
    assert [next(stream).running.n_tokens for _ in range(3)] == [1, 2, 3]
    assert calls.count <= 4
    released.set()
    stream.close()


@pytest.mark.parametrize("leave", ["close", "with", "drop"])
def test_a_stream_that_is_left_stops_the_model(leave: str) -> None:
    stc = scorer()
    stc.model.generation_config.eos_token_id = None
    stc.tokenizer.eos_token, former = None, stc.tokenizer.eos_token
    try:
        calls = Calls(stc)
        stream: AnswerStream | None = stream_generate(stc, PROMPTS[0], max_new_tokens=200)
        assert stream is not None
        next(stream)
        if leave == "close":
            stream.close()
        elif leave == "with":
            with stream:
                next(stream)
        else:
            stream = None
            gc.collect()
        done = calls.count
        assert not threads()
        assert done < 200
        assert len(stc.generate(PROMPTS[0], max_new_tokens=3)[0].tokens) == 3  # the model is as it was
        if stream is not None:
            assert list(stream) == []
            with pytest.raises(BackendError, match="not complete"):
                _ = stream.result
    finally:
        stc.tokenizer.eos_token = former


def test_what_goes_wrong_reaches_the_listener() -> None:
    def fail(output: Any) -> None:
        raise RuntimeError("out of memory")

    stc = scorer()
    Calls(stc, at=3, do=fail)
    stream = stream_generate(stc, PROMPTS[0], max_new_tokens=20)
    next(stream)
    next(stream)
    with pytest.raises(RuntimeError, match="out of memory"):
        next(stream)
    assert not threads()
    with pytest.raises(BackendError, match="not complete"):
        _ = stream.result


def test_a_model_that_gives_nan() -> None:
    stc = scorer()
    Calls(stc, at=2, do=lambda output: output.logits.fill_(torch.nan))
    with pytest.raises(InvalidLogits, match="step 1"):
        list(stream_generate(stc, PROMPTS[0], max_new_tokens=20))


def test_two_streams_of_one_model_do_not_mix() -> None:
    stc = scorer()
    expected = stc.generate(PROMPTS[:2], max_new_tokens=8, batch_size=1)
    streams = [stream_generate(stc, prompt, max_new_tokens=8) for prompt in PROMPTS[:2]]
    for _ in range(9):
        for stream in streams:
            next(stream, None)
    for stream, other in zip(streams, expected, strict=True):
        assert_same(stream.result, other)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_beams": 2}, BackendError),
        ({"num_return_sequences": 2}, InvalidInputError),
        ({"max_new_tokens": 0}, InvalidInputError),
    ],
)
def test_what_cannot_be_streamed_is_refused_at_once(options: dict[str, Any], error: type[st.SemtokenError]) -> None:
    with pytest.raises(error):
        stream_generate(scorer(), PROMPTS[0], **options)
    with pytest.raises(InvalidInputError, match="empty"):
        stream_generate(scorer(), " ")
