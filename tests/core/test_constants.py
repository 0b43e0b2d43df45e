"""What the constants of scoring decide, at the places where an answer changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.results import Running
from tests.core.test_scoring import small_kind
from tests.rows import each


def scored(zeros: int, others: int, empty_lists: bool) -> Any:
    """An answer of so many tokens at log-probability 0 and of so many at -0.5, none with alternatives."""
    steps: list[dict[str, Any]] = [{"token": f" w{i}", "logprob": 0.0} for i in range(zeros)]
    steps += [{"token": f" v{i}", "logprob": -0.5} for i in range(others)]
    for step in steps:
        step |= {"top_logprobs": []} if empty_lists else {}
    text = "".join(step["token"] for step in steps)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": {"content": steps}}
    return st.score_reply({"object": "chat.completion", "choices": [choice]})[0]


@pytest.mark.parametrize("zeros", [3, 4, 5, 6])
def test_five_zeros_without_lists_are_doubted_and_four_are_not(zeros: int) -> None:
    codes = {flag.code for flag in scored(zeros, 2, True).flags}
    assert ("zero_log_probabilities" in codes) == (zeros >= 5)


@pytest.mark.parametrize(("beyond", "exceeds"), [(0.0, False), (0.9e-6, False), (1.1e-6, True)])
def test_a_running_answer_exceeds_a_limit_by_more_than_rounding(beyond: float, exceeds: bool) -> None:
    assert Running(0.5, (0.5, 0.5), 1, 1, (-3.0, -0.7 - beyond)).exceeds(0.7) == exceeds


@each("by", ["rows", "lists"])
@each(("others", "told"), [(7, 7), (8, 8), (9, 8), (12, 8)])
def test_eight_other_tokens_of_a_step_are_told_at_most(by: str, others: int, told: int) -> None:
    clusters = small_kind("byte-level").clusters
    ids = [i for i, piece in enumerate(clusters.vocabulary.pieces) if piece.isalpha() and len(piece) > 1][: others + 1]
    row = np.full((1, clusters.vocabulary.size), -30.0)
    row[0, ids] = -np.arange(others + 1) / 8
    row -= np.log(np.exp(row).sum())
    step = TopStep(TopToken(row[0, ids[0]], ids[0]), [TopToken(row[0, i], i) for i in ids])
    answer = st.score_logits(row, ids[:1], clusters) if by == "rows" else st.score_logprobs([step], clusters)
    assert [one.id for one in answer.tokens[0].alternatives] == ids[1 : told + 1]
