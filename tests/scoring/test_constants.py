"""What the constants of scoring decide, at the places where an answer changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import semtoken as st
from semtoken.scoring.mass_flags import _rivals


def scored(zeros: int, others: int, empty_lists: bool) -> Any:
    """An answer of so many tokens at log-probability 0 and of so many at -0.5, none with alternatives."""
    steps: list[dict[str, Any]] = [{"token": f" w{i}", "logprob": 0.0} for i in range(zeros)]
    steps += [{"token": f" v{i}", "logprob": -0.5} for i in range(others)]
    for step in steps:
        step |= {"top_logprobs": []} if empty_lists else {}
    text = "".join(step["token"] for step in steps)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": {"content": steps}}
    return st.score_payload({"object": "chat.completion", "choices": [choice]})[0]


@pytest.mark.parametrize("zeros", [3, 4, 5, 6])
def test_five_zeros_without_lists_are_doubted_and_four_are_not(zeros: int) -> None:
    codes = {flag.code for flag in scored(zeros, 2, True).flags}
    assert ("zero_log_probabilities" in codes) == (zeros >= 5)


@pytest.mark.parametrize(
    ("text", "other", "flagged"),
    [("Tallinn", "Talbot", False), ("Tallinn", "Tartu", True), ("walks", "walked", False), ("Rome", "Lima", True)],
)
def test_words_of_a_cluster_are_rivals_unless_their_first_three_letters_agree(
    text: str, other: str, flagged: bool
) -> None:
    rival = SimpleNamespace(text=other, source="cluster", counted=True, probability=0.4)
    token: Any = SimpleNamespace(text=text, alternatives=[rival])
    assert bool(list(_rivals(token))) == flagged
