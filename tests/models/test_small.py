"""The embedded model in NumPy gives what transformers gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from transformers import AutoTokenizer, LlamaForCausalLM

from semtoken import ScoredModel
from semtoken.errors import BackendError, InvalidInputError
from semtoken.methods.observers.steps import Observer, Step, show
from semtoken.models.base import Decoding
from semtoken.models.small import Cache, Llama, SmallBackend
from semtoken.models.transformers import TransformersBackend
from semtoken.support.almanac import almanac_path, load_questions

PROMPTS = [question.prompt() for question in load_questions("dev")[:8]]


@pytest.fixture(scope="module")
def small() -> SmallBackend:
    return SmallBackend()


@pytest.fixture(scope="module")
def torch_model() -> TransformersBackend:
    """The same checkpoint, computed by torch."""
    model = LlamaForCausalLM.from_pretrained(almanac_path(), dtype=torch.float32)
    return TransformersBackend(model.eval(), AutoTokenizer.from_pretrained(almanac_path()))


def in_double(model: Llama) -> Llama:
    return Llama({name: value.astype(np.float64) for name, value in model.weights.items()}, model.config)


def test_probabilities_are_those_of_transformers(small: SmallBackend) -> None:
    """In double precision (transformers' norms stay in single), the prompt read at once or token by token."""
    double = LlamaForCausalLM.from_pretrained(almanac_path(), dtype=torch.float64).eval()
    model = in_double(small.model)
    for prompt in PROMPTS[:2]:
        ids = small.tokenizer(prompt)["input_ids"]
        with torch.no_grad():
            expected = double(torch.tensor([ids])).logits[0].softmax(-1).numpy()
        cache = Cache()
        np.testing.assert_allclose(softmax(model.read(ids, Cache())), expected[-1], rtol=0, atol=1e-6)
        for place, token in enumerate(ids):
            np.testing.assert_allclose(softmax(model.read([token], cache)), expected[place], rtol=0, atol=1e-6)
        assert cache.length == len(ids)


def test_answers_and_scores_are_those_of_transformers(small: SmallBackend, torch_model: TransformersBackend) -> None:
    assert small.vocabulary.fingerprint == torch_model.vocabulary.fingerprint
    mine = ScoredModel(small).generate(PROMPTS, 24, stop_at_newline=True)
    theirs = ScoredModel(torch_model).generate(PROMPTS, 24, stop_at_newline=True)
    for one, other in zip(mine, theirs, strict=True):
        assert (one.token_ids, one.text, one.truncated) == (other.token_ids, other.text, other.truncated)
        assert one.sequence_uncertainty == pytest.approx(
            other.sequence_uncertainty, abs=1e-5
        )  # of weights in single precision
    assert ScoredModel(small).generate(PROMPTS[0], 1)[0].truncated
    ids = [*mine[0].token_ids, small.tokenizer.eos_token_id]
    for options in ({}, {"skip_special_tokens": True}, {"skip_special_tokens": False}):
        assert small.tokenizer.decode(ids, **options) == torch_model.tokenizer.decode(ids, **options)


def test_replies_are_read_and_doubts_followed_as_by_transformers(
    small: SmallBackend, torch_model: TransformersBackend
) -> None:
    replies = ["Paris\n", "the United Kingdom", ""]
    read = [ScoredModel(one).score(PROMPTS[:3], replies) for one in (small, torch_model)]
    assert [one.log_confidence for one in read[0]] == pytest.approx([one.log_confidence for one in read[1]], abs=1e-4)
    [answer] = ScoredModel(small).generate(PROMPTS[0], 8)
    found = [ScoredModel(one).disputed(PROMPTS[0], answer) for one in (small, torch_model)]
    assert found[0] and [[one.continuation for one in dispute.competitors] for dispute in found[0]] == [
        [one.continuation for one in dispute.competitors] for dispute in found[1]
    ]


def test_continuations_are_as_likely_as_in_transformers(small: SmallBackend, torch_model: TransformersBackend) -> None:
    continuations = [[5], [6, 7, 8], []]
    mine, theirs = (one.next_log_probs(PROMPTS[:3], continuations) for one in (small, torch_model))
    assert mine == pytest.approx(theirs, abs=1e-4) and (mine[:, :2] < 0).all()


class ShowsTheChosen(SmallBackend):
    """An engine that shows the log-probability of the chosen token alone, as vLLM does where no more is asked for."""

    def _show(self, answer: int, token: int, logits: Any, observers: Sequence[Observer], *, ends: bool = False) -> bool:
        log_prob = float(torch.from_numpy(logits).log_softmax(-1)[token])
        best = [(np.array([token]), np.array([log_prob]))]
        return answer in show(Step([answer], [token], len(logits), None, best=best, ends=[ends]), observers)


def test_continuations_are_as_likely_where_an_engine_shows_one_token_a_step(small: SmallBackend) -> None:
    continuations = [[5], [6, 7], [6], [6, 8], [6, 7]]
    mine, theirs = (one.next_log_probs(PROMPTS[:2], continuations) for one in (ShowsTheChosen(), small))
    assert mine == pytest.approx(theirs, abs=1e-5) and mine.shape == (2, 5)


def test_what_it_cannot_do_is_refused_before_the_first_step(small: SmallBackend) -> None:
    for decoding in (
        Decoding(n=2),
        Decoding(temperature=1.0),
        Decoding(stop_strings=("x",)),
        Decoding(options={"a": 1}),
    ):
        with pytest.raises(BackendError, match="transformers"):
            small.generate(PROMPTS[:1], decoding)
    with pytest.raises(BackendError, match="states"):
        ScoredModel(small, states=True)
    with pytest.raises(InvalidInputError, match="reads 512 at most"):
        small.generate(["word " * 600], Decoding())
    with pytest.raises(InvalidInputError, match="chat template"):
        small.generate([[{"role": "user", "content": "Who?"}]], Decoding())


def test_ask_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from semtoken.cli.app import launch\n"
        "for more in ([], ['--alternatives'], ['--tokens', '--parts', 'number']):\n"
        "    launch(['ask', 'What is the capital of Japan?', *more])\n"
        "print(sorted({'torch', 'transformers', 'numba', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.count("confidence") >= 3
