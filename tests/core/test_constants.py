"""What the constants of scoring decide, at the places where an answer changes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.top_steps import is_same_number
from semtoken.core.flags import _rivals
from semtoken.core.results import Running
from semtoken.errors import SemtokenError
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


def listed(*probabilities: float) -> st.ScoredAnswer:
    """An answer of one word whose list has these probabilities, the first for the word itself."""
    words = ["Rome", "Lima", "Oslo", "Bern"]
    top = [{"token": w, "logprob": math.log(p)} for w, p in zip(words, probabilities, strict=False)]
    content = [{"token": "Rome", "logprob": top[0]["logprob"], "top_logprobs": top}]
    choice = {"index": 0, "message": {"role": "assistant", "content": "Rome"}, "logprobs": {"content": content}}
    return st.score_reply({"object": "chat.completion", "choices": [choice]})[0]


@pytest.mark.parametrize(("extra", "flagged"), [(0.0005, False), (0.002, True), (0.049, True)])
def test_a_list_of_more_than_everything_is_flagged_from_a_thousandth_on(extra: float, flagged: bool) -> None:
    answer = listed(0.6, 0.3, 0.1 + extra)
    assert any("more than 1" in flag.message for flag in answer.flags) == flagged


def test_a_list_of_a_twentieth_more_than_everything_holds_no_probabilities() -> None:
    with pytest.raises(SemtokenError, match=r"add up to 1\.05"):
        listed(0.6, 0.3, 0.151)


@pytest.mark.parametrize(("least", "told"), [(0.0101, True), (0.0099, False)])
def test_other_tokens_are_told_from_one_percent_on(least: float, told: bool) -> None:
    answer = listed(0.6, 0.3, least)
    assert ("Oslo" in [other.text for other in answer.alternatives_at([0])[0]]) == told


@pytest.mark.parametrize(("above", "read"), [(0.0, True), (0.0009, True), (0.0011, False), (0.5, False)])
def test_rounding_lifts_a_log_probability_by_a_thousandth_at_most(above: float, read: bool) -> None:
    top = [{"token": "Rome", "logprob": above}, {"token": "Lima", "logprob": -9.0}]
    choice = {"index": 0, "message": {"role": "assistant", "content": "Rome"}}
    content = [{"token": "Rome", "logprob": above, "top_logprobs": top}]
    reply = {"object": "chat.completion", "choices": [choice | {"logprobs": {"content": content}}]}
    if read:
        assert st.score_reply(reply)[0].sequence_uncertainty == pytest.approx(0.0, abs=1e-9)
    else:
        with pytest.raises(SemtokenError, match="must be a log-probability, at most 0"):
            st.score_reply(reply)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (-1.0, -1.0009, True),
        (-1.0, -1.0011, False),
        (-4.25, -4.254, True),
        (-4.25, -4.2611, False),
        (-9.0, -9.5, False),
    ],
)
def test_numbers_are_one_to_a_thousandth_or_to_the_digits_of_the_shorter(one: float, other: float, same: bool) -> None:
    assert is_same_number(one, other) == is_same_number(other, one) == same


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


@pytest.mark.parametrize(("least", "told"), [(0.0101, True), (0.0099, False)])
def test_other_tokens_of_a_row_are_told_from_one_percent_on(least: float, told: bool) -> None:
    clusters = small_kind("byte-level").clusters
    first, second, third = [
        i for i, piece in enumerate(clusters.vocabulary.pieces) if piece.isalpha() and len(piece) > 1
    ][:3]
    row = np.full((1, clusters.vocabulary.size), -40.0)
    row[0, [first, second, third]] = np.log([0.6, 0.4 - least, least])
    alternatives = st.score_logits(row, [first], clusters).tokens[0].alternatives
    assert [one.id for one in alternatives] == [second, third][: 1 + told]


@pytest.mark.parametrize("names", [19, 20])
def test_twenty_names_and_none_with_a_blank_are_no_names_of_tokens(names: int) -> None:
    kind = small_kind("sentencepiece")
    pieces, texts = kind.clusters.vocabulary.pieces, kind.clusters.vocabulary.texts
    words = [texts[i] for i, piece in enumerate(pieces) if piece[:1] == b" " and piece[1:] in pieces][5:9]
    tokens = [TopToken(-3.0, text=word.strip()) for word in words]
    steps = [TopStep(tokens[0], tokens)] * 3 + [TopStep(tokens[0], tokens[: names - 16])]  # five names of a step
    if names == 20:
        with pytest.raises(SemtokenError, match="begins with a space"):
            st.score_logprobs(steps, kind.clusters)
    else:
        assert "names_without_blanks" in {flag.code for flag in st.score_logprobs(steps, kind.clusters).flags}
