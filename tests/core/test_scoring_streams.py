"""Running scores: they settle behind the answer by a bounded lag, hold the final value, and end in it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semtoken import score_logits, score_logprobs
from semtoken.core import LogitsStream, LogprobsStream
from semtoken.core.results import Running
from semtoken.errors import InvalidInputError, SemtokenError
from tests import tiny, worked
from tests.core.test_scoring import small_kind
from tests.core.test_top_logprobs import RULES, best, drawn, log_probs

SLACK = 1e-9


def check_run(seen: list[Running], finals: list[tuple[float, float]]) -> None:
    """`finals`: bounds of the score of the answer cut off after each token."""
    former, least = 0, 0.0
    for n, (running, final) in enumerate(zip(seen, finals, strict=True), 1):
        low, high = running.sequence_uncertainty_interval
        assert running.n_tokens == n
        assert former <= running.n_settled <= n
        assert low - SLACK <= final[0] and final[1] <= high + SLACK
        assert running.sequence_uncertainty <= high + SLACK
        assert low >= least - SLACK, "what is certain of an answer that goes on is never taken back"
        former, least = running.n_settled, low
    assert least <= finals[-1][0] + SLACK


@pytest.mark.parametrize("by", ["rows", "lists"])
@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@settings(max_examples=6)
@given(data=st.data())
def test_running_scores_hold_the_final_one_and_end_in_it(name: str, by: str, data: st.DataObject) -> None:
    """Under the default rules no step waits for what follows it."""
    kind = small_kind(name)
    logits, ids = drawn(kind, data)
    rules = data.draw(st.sampled_from(RULES))
    if by == "rows":
        rows = LogitsStream(kind.clusters, **rules)
        seen = [rows.add(row, token) for row, token in zip(logits, ids, strict=True)]
        cut = [score_logits(logits[:n], ids[:n], kind.clusters, **rules) for n in range(1, len(ids) + 1)]
        assert rows.finish() == cut[-1]
    else:
        k = data.draw(st.sampled_from([1, 5, 20]))
        steps = best(log_probs(logits[:, : kind.clusters.vocabulary.size]), ids, k)
        lists = LogprobsStream(kind.clusters, **rules)
        seen = [lists.add(step) for step in steps]
        cut = [score_logprobs(steps[:n], kind.clusters, **rules) for n in range(1, len(ids) + 1)]
        assert lists.finish() == cut[-1]
    check_run(
        seen,
        [
            (scored if scored.text.strip() else running).sequence_uncertainty_interval
            for scored, running in zip(cut, seen, strict=True)
        ],
    )
    assert rules is not RULES[0] or all(running.n_settled == running.n_tokens for running in seen)


def text_stream(name: str, text: str, seed: int = 0) -> tuple[np.ndarray[Any, Any], list[int]]:
    tokenizer = tiny.TOKENIZERS[name]()
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    logits = np.random.default_rng(seed).normal(size=(len(ids), len(tokenizer))).astype(np.float32)
    return logits, ids


TEXT = "Paris is the capital of France and New York is not the same television"


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
def test_the_settled_part_grows_and_is_the_score_of_a_beginning(name: str) -> None:
    """Once the first n steps are settled, no continuation changes what they count."""
    kind = small_kind(name)
    logits, ids = text_stream(name, TEXT)
    whole = score_logits(logits, ids, kind.clusters)
    stream = LogitsStream(kind.clusters)
    for row, token in zip(logits, ids, strict=True):
        running = stream.add(row, token)
        part = sum(t.log_agreeing_probability for t in whole.tokens[: running.n_settled])
        assert running.sequence_uncertainty == pytest.approx(-np.expm1(part), abs=1e-9)
    assert running.n_settled > len(ids) / 2


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
def test_the_lag_is_the_longest_normalized_string(name: str) -> None:
    """Once so many characters follow the beginning of a step, the step is settled."""
    kind = small_kind(name)
    logits, ids = text_stream(name, TEXT, seed=1)
    longest = max(len(text) for text in kind.clusters.vocabulary.normalized)
    spans = kind.clusters.vocabulary.offsets(ids)
    stream = LogitsStream(kind.clusters)
    for n, (row, token) in enumerate(zip(logits, ids, strict=True), 1):
        running = stream.add(row, token)
        reach = spans[n - 1][1] - 8  # the blank before a word, and what cleaning up may still change
        due = [i for i in range(n) if reach - spans[i][0] > longest]
        assert running.n_settled >= len(due)
    assert due


def test_a_certain_answer_has_an_uncertainty_of_zero_without_a_sign() -> None:
    [row] = worked.logits({"TV": 1.0})
    [token] = worked.ids("TV")
    logits, lists = LogitsStream(worked.vocabulary()), LogprobsStream(worked.vocabulary())
    for running in (logits.add(row, token), lists.add((token, {token: 0.0}))):
        assert str((running.sequence_uncertainty, running.sequence_uncertainty_interval[0])) == "(0.0, 0.0)"
    assert str(logits.add(row, token).sequence_uncertainty_interval) == "(0.0, 0.0)"


@pytest.mark.parametrize("refused", [(1, {1: -0.1, 2: -0.1}), (1, {1: 0.5}), {"token": "x"}])
def test_an_answer_that_lacks_a_refused_step_has_no_score(refused: Any) -> None:
    """The stream refused all later steps as that one, and gave the score of the steps before it as that of all."""
    step = (1, {1: -0.1, 2: -3.0})
    stream = LogprobsStream(worked.vocabulary())
    stream.add(step)
    with pytest.raises(SemtokenError) as first:
        stream.add(refused)
    for again in (lambda: stream.add(step), stream.finish):
        with pytest.raises(type(first.value), match=re.escape(str(first.value))):
            again()


@pytest.mark.parametrize(("number", "token"), [(math.nan, 1), (-math.inf, 1), (0.0, 10**6)])
def test_an_answer_that_lacks_a_refused_row_has_no_score(number: float, token: int) -> None:
    vocabulary = worked.vocabulary()
    stream, row = LogitsStream(vocabulary), np.linspace(0.0, 1.0, vocabulary.size)
    stream.add(row, 1)
    with pytest.raises(SemtokenError) as first:
        stream.add(np.full(vocabulary.size, number), token)
    for again in (lambda: stream.add(row, 1), stream.finish):
        with pytest.raises(type(first.value), match=re.escape(str(first.value))):
            again()


@pytest.mark.parametrize(("token", "said"), [(10**6, "Token id 1000000 at step 2 is"), (1.5, "Got 1.5 at step 2 in")])
def test_an_id_that_is_none_is_named_by_its_step(token: Any, said: str) -> None:
    vocabulary = worked.vocabulary()
    stream, row = LogitsStream(vocabulary), np.linspace(0.0, 1.0, vocabulary.size)
    for known in (1, 2):
        stream.add(row, known)
    with pytest.raises(SemtokenError, match=said):
        stream.add(row, token)


def test_a_stream_records_a_distribution_that_there_is() -> None:
    for stream in (LogitsStream(worked.vocabulary()), LogprobsStream(worked.vocabulary())):
        with pytest.raises(InvalidInputError, match="'distribution' must be one of"):
            stream.finish("RAW")  # type: ignore[arg-type]


@pytest.mark.parametrize(("beyond", "exceeds"), [(0.0, False), (0.9e-6, False), (1.1e-6, True)])
def test_a_running_answer_exceeds_a_limit_by_more_than_rounding(beyond: float, exceeds: bool) -> None:
    assert Running(0.5, (0.5, 0.5), 1, 1, (-3.0, -0.7 - beyond)).exceeds(0.7) == exceeds
