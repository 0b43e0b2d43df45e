"""`semtoken doctor --quick` on real engines: a server says again what each of them said.

`python -m tests.engines.held` recorded the requests and what the doctor said then.
"""

from __future__ import annotations

import json
from functools import cache

import pytest

from semtoken.core.engine_tokens import TopStep
from semtoken.core.engine_tokens.top_steps import TopToken
from semtoken.web.doctor import Diagnosis, examine
from semtoken.web.doctor.numbers import judge
from tests.engines.held.doctoring import consultations, replayed, told
from tests.known import known
from tests.rows import each

RECORDED = consultations()
KINDS = {"vllm-processed": "processed", "transformers-serve": "unknown"}
"""What the numbers of engines are, where they are not raw."""


@cache
def examined(engine: str) -> Diagnosis:
    with replayed(RECORDED[engine]) as url:
        return examine(url, "smollm2", quick=True)


@each("engine", RECORDED)
def test_the_doctor_says_what_it_said_of_the_engine(engine: str) -> None:
    found = told(examined(engine))
    assert json.loads(json.dumps(found)) == RECORDED[engine].found


@each("engine", RECORDED)
def test_two_requests_tell_raw_from_processed(engine: str) -> None:
    found = examined(engine)
    # mlx-lm refuses 20 log-probabilities a token; the sampled answer of the other begins with a merged character.
    assert found.requests == (4 if engine in ("mlx-lm", "llama-server-q4") else 2)
    assert found.numbers.distribution == KINDS.get(engine, "raw")
    assert found.usable == (engine not in ("transformers-serve", "llama-server-draft"))


def said(engine: str) -> str:
    return " | ".join(f"{verdict.level}: {verdict.text}" for verdict in examined(engine).verdicts)


def test_the_setting_to_change_is_named() -> None:
    assert "Start the engine without speculative decoding" in said("llama-server-draft")
    assert "Start the engine" not in said("llama-server")
    assert "start vLLM with --logprobs-mode raw_logprobs" in said("vllm-processed")
    assert "logprobs-mode" not in said("vllm")


def test_answers_whose_lists_give_no_score_are_told_with_the_cause() -> None:
    assert "note: A sampled answer gets no score: The reply counts 8 tokens and lists 7" in said("llama-server")
    assert "the list names the likeliest tokens for the chosen ones (mlx-lm above temperature 0)" in said("mlx-lm")
    assert "gets no score" not in said("vllm")


def step(*log_probs: float, names: str = "abcdef") -> TopStep:
    """A step of which the first listed token was chosen."""
    top = [TopToken(value, text=name) for name, value in zip(names, log_probs, strict=False)]
    return TopStep(top[0], top)


IN_FULL = (-0.28768207, -2.40790271, -3.10104990)


def test_rounded_numbers_are_noticed() -> None:
    assert judge([step(*IN_FULL)], [step(*IN_FULL)]).off is None
    rounded = step(*(round(value, 2) for value in IN_FULL))
    assert judge([rounded], [rounded]).off == pytest.approx(0.01, abs=1e-4)
    few = step(*(float(f"{value:.2g}") for value in (-0.0028768207, -0.12345, -31.01049)))
    assert known(judge([few], [few]).off) > 0.1, "the second digit of a number of -1 may be another"


def test_repeated_and_excluded_entries_and_sums_above_one_are_noticed() -> None:
    """As where several tokens are spelled alike, a sampler excludes some, or the numbers are logits."""
    assert judge([step(*IN_FULL, names="abb")], []).repeated == 1
    assert judge([step(*IN_FULL)], []).repeated == 0
    assert judge([step(-0.1, -9999.0)], []).impossible == 1
    assert judge([step(-0.1, -0.2)], []).above_one
    assert not judge([step(*IN_FULL)], []).above_one
